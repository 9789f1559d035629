"""`physai demo`: the whole way once, on this machine: train, export, drive the twin, show what came of it."""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from physai.sdk.cli.command import Command
from physai.sdk.errors import PhysaiError

TORCH_FREE = """
import sys
from physai.sdk.cli.main import main
code = main(sys.argv[1:])
if "torch" in sys.modules:
    sys.exit("physai demo: torch was imported where the robot has none")
sys.exit(code)
"""
"""Runs a verb and fails if it took torch to do so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai demo`."""
    parser.add_argument("--task", default="ur10e-reach", help="task to train (default: ur10e-reach)")
    parser.add_argument(
        "--time-budget-s", type=float, default=270.0, metavar="S", help="longest training [s] (default: 270)"
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results (default: demo)")
    parser.add_argument("--episodes", type=int, default=256, metavar="N", help="episodes to judge it in (default: 256)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(arguments: argparse.Namespace) -> int:
    """Trains, exports, judges and films; every step is a `physai` verb a user can run alone."""
    if not arguments.time_budget_s > 0.0:
        raise PhysaiError(f"--time-budget-s must be a positive number of seconds, got {arguments.time_budget_s}")
    folder = arguments.out / arguments.task
    if folder.exists():
        _keep_old(folder)
    started = time.monotonic()
    _step("1 of 4: training on this computer")
    budget = ["--time-budget-s", str(arguments.time_budget_s), "--seed", str(arguments.seed)]
    _verb(["train", arguments.task, "--out", str(folder), *budget])
    trained_s = time.monotonic() - started
    _step("2 of 4: exporting sensors-to-commands as one ONNX graph")
    _verb(["export", str(folder)])
    _step("3 of 4: driving the twin with the exported graph, without torch")
    judged = json.loads(_verb(["eval", str(folder), "--episodes", str(arguments.episodes), "--json"], torch=False))
    _step("4 of 4: filming it")
    film = arguments.out / f"{arguments.task}.mp4"
    filmed = _film(folder, film)
    summary = _summary(folder, film if filmed else None, judged, trained_s)
    if arguments.json:
        print(json.dumps(summary))
    else:
        _print_summary(summary)
    return 0


def _keep_old(folder: Path) -> None:
    """Moves an earlier demo aside instead of writing over it."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    shutil.move(folder, aside)
    print(f"the earlier demo is kept in {aside}", file=sys.stderr)


def _verb(arguments: list[str], *, torch: bool = True) -> str:
    """Runs a verb in a process of its own, progress on this terminal; returns what it printed."""
    program = "import sys; from physai.sdk.cli.main import main; sys.exit(main(sys.argv[1:]))" if torch else TORCH_FREE
    done = subprocess.run([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        raise PhysaiError(f"`physai {' '.join(arguments)}` failed; its message is above")
    return done.stdout


def _film(folder: Path, film: Path) -> bool:
    """Films a few episodes; a machine without OpenGL keeps the learning curve as its picture."""
    try:
        _verb(["play", str(folder), "--video", str(film), "--episodes", "2"], torch=False)
    except PhysaiError as error:
        print(f"no film: {error}", file=sys.stderr)
        return False
    return True


def _summary(folder: Path, film: Path | None, judged: dict[str, Any], trained_s: float) -> dict[str, Any]:
    from physai.sim.locate import find_policy
    from physai.train.reporting import CURVE_FILE

    return {
        "task": judged["task"],
        "training_s": trained_s,
        "policy": str(find_policy(folder)),
        "fingerprint": judged["fingerprint"],
        "success": judged["success"],
        "success_interval_95": judged["success_interval_95"],
        "judged": judged["judged"],
        "succeeded": judged["succeeded"],
        "criterion": judged["criterion"],
        "learning_curve": str(folder / CURVE_FILE),
        "film": str(film) if film else None,
    }


def _print_summary(summary: dict[str, Any]) -> None:
    lower, upper = summary["success_interval_95"]
    print(f"\n{summary['task']}: trained in {summary['training_s']:.0f} s")
    print(
        f"  success         {summary['succeeded']} of {summary['judged']} = {summary['success']:.1%}, "
        f"95 % interval {lower:.1%} to {upper:.1%} ({summary['criterion']})"
    )
    for label in ("policy", "fingerprint", "learning_curve", "film"):
        if summary[label]:
            print(f"  {label.replace('_', ' '):<15} {summary[label]}")


def _step(text: str) -> None:
    print(f"\n[{text}]", file=sys.stderr)


command = Command(summary="train, export and film a policy on this computer", add_arguments=add_arguments, run=run)
