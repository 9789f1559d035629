"""`physai demo`: the whole workflow on one computer: calibrate, train, export, validate, sign, install, run, film."""

import argparse
import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.extras import DISTRIBUTION
from physai.sdk.base.file_names import POLICY_FILE
from physai.sdk.cli.command import CliCommand
from physai.train.cli.demo_drive import drive, driven_text
from physai.train.cli.verb import verb_command

if TYPE_CHECKING:
    from physai.sdk.evidence.verdict import Verdict

TWIN_FILE = "twin.json"
REPORT_FOLDER = "validation"
PASS = "PASS"
EVIDENCE_FILE = "latency.json"
KEYS_FOLDER = "keys"
CALIBRATION_STEPS = 4_000_000
"""Physics steps of the calibration, half a minute; ten million replay no better."""
ACCEPT = ["--accept", "stand-in,computer"]
"""Evidence that the demo's installation accepts, unlike a robot by default: the demo involves no robot."""
MAX_JOBS = 8
INSTALL_TRIES = 3
"""Attempts at an installation."""
DRIVE_S = 20.0
"""How long the installed policy drives the virtual robot [s]."""
STOP_AT = 0.99
"""Success rate at which training stops, above the gates' requirement to leave them a margin."""
EVAL_MIN_SUCCESS = 1.0
"""Value of `eval_min_success`, which makes the policy robust to the parameter uncertainty that the logs leave:
of ur10e-reach, a policy at 99 % without exploration had 93 % there, one that also reached it exploring 98 %."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai demo`."""
    parser.add_argument("--task", default="ur10e-reach", help="task to train (default: ur10e-reach)")
    parser.add_argument(
        "--time-budget-s", type=float, default=600.0, metavar="S", help="longest training [s] (default: 600)"
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the results (default: demo)")
    parser.add_argument("--episodes", type=int, default=256, metavar="N", help="evaluation episodes (default: 256)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(arguments: argparse.Namespace) -> int:
    """Runs the steps, each a `physai` verb that a user can run alone."""
    if not arguments.time_budget_s > 0.0:
        raise PhysaiError(f"--time-budget-s must be a positive number of seconds, got {arguments.time_budget_s}")
    _require_torch()
    folder: Path = arguments.out / arguments.task
    if folder.exists():
        _keep_old(folder)
    twin = _twin(arguments.task, folder)
    in_twin = ["--twin", str(twin)] if twin else []
    _step("3 of 8: training on this computer")
    started = time.monotonic()
    budget = ["--time-budget-s", str(arguments.time_budget_s), "--seed", str(arguments.seed)]
    settings = ["--set", f"stop_at_success={STOP_AT}", "--set", f"eval_min_success={EVAL_MIN_SUCCESS}"]
    _verb(["train", arguments.task, "--out", str(folder), *budget, *in_twin, *settings])
    trained_s = time.monotonic() - started
    _step("4 of 8: exporting the policy as one ONNX graph, and evaluating it in the twin, without torch")
    _verb(["export", str(folder)])
    judged = json.loads(_verb(["eval", str(folder), "--episodes", str(arguments.episodes), "--json"], torch=False))
    _step("5 of 8: measuring its latency on this computer instead of a robot, and validating it: ten gates in the twin")
    verdict = _validate(folder, in_twin)
    _step("6 of 8: signing the bundle, and installing it as on a robot")
    installed = _install(folder, verdict)
    driven: dict[str, Any] = {}
    _step(f"7 of 8: driving a virtual robot in another process over DDS, for {DRIVE_S:g} s")
    if "root" not in installed:
        print(f"skipped, since no policy is installed ({installed['robot']})", file=sys.stderr)
    else:
        driven = {"driven": drive(arguments.task, twin, Path(installed["root"]), DRIVE_S)}
    _step("8 of 8: rendering a video")
    film = arguments.out / f"{arguments.task}.mp4"
    filmed = _film(folder, film)
    summary = (
        _summary(folder, film if filmed else None, judged, trained_s) | _judgement(verdict, folder) | installed | driven
    )
    if arguments.json:
        print(json.dumps(summary))
    else:
        print_summary(summary)
    return 0


def _require_torch() -> None:
    """Raises MissingExtraError now, instead of after the minutes of the steps that need no torch."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"physai demo trains, which needs torch: pip install '{DISTRIBUTION}[train]'"
        ) from error


def _twin(task: str, folder: Path) -> Path | None:
    """Records a virtual robot and calibrates a twin from the logs; None for a floating base, which is not supported."""
    from physai.sim.robots import robot_names
    from physai.sim.tasks.registry import load_task

    robot = load_task(task).robot
    if robot.spec.base == "floating":
        print(f"{robot.name} has a floating base: nothing is recorded, the twin stays nominal", file=sys.stderr)
        return None
    work = folder.with_name(f"{folder.name}-robot")
    if work.exists():
        _keep_old(work)
    name = robot.name if robot.name in robot_names() else str(robot.path)
    _step(f"1 of 8: recording a simulated {robot.name} with hidden parameters, in place of a real robot")
    _verb(["sim", "record", name, "--out", str(work)], torch=False)
    _step("2 of 8: calibrating the twin on the recordings")
    twin = work / TWIN_FILE
    logs = sorted(str(path) for path in work.glob("*.csv"))
    limits = ["--out", str(twin), "--report", str(work), "--budget-steps", str(CALIBRATION_STEPS)]
    _verb(["sim", "calibrate", name, *logs, *limits], torch=False, accepted=(0, 1))
    return twin


def _validate(folder: Path, in_twin: list[str]) -> "Verdict":
    """Measures the latency, runs the gates and returns the verdict: PASS, FAIL or INCONCLUSIVE."""
    from physai.sdk.evidence.verdict import parse_verdict

    evidence = str(folder / EVIDENCE_FILE)
    _verb(["robot", "measure", str(folder / "export" / POLICY_FILE), "--out", evidence], torch=False)
    jobs = str(min(MAX_JOBS, len(os.sched_getaffinity(0))))
    where = ["--report", str(folder / REPORT_FOLDER), "--latency", evidence, *ACCEPT]
    verb = ["sim", "validate", str(folder), *in_twin, *where, "--jobs", jobs, "--json"]
    return parse_verdict(_verb(verb, torch=False, accepted=(0, 1, 2)), source="physai sim validate")


def _install(folder: Path, verdict: "Verdict") -> dict[str, Any]:
    """Packs and signs the bundle and installs it into slots in a folder; without a PASS it is only packed."""
    keys, bundle = folder.parent / KEYS_FOLDER, folder.parent / f"{folder.name}.physai"
    if not keys.exists():
        _verb(["keys", "init", str(keys)], torch=False)
    pack = ["bundle", "pack", str(folder), "--out", str(bundle), "--sign", "--key", str(keys / "publisher.key")]
    if verdict.outcome.value != PASS:
        _verb(pack, torch=False)
        return {"bundle": str(bundle), "robot": f"rejects it: the verdict is {verdict.outcome.value}"}
    signed = ["--verdict", str(folder / REPORT_FOLDER), "--validator-key", str(keys / "validator.key"), *ACCEPT]
    signed += ["--replay", "3"]
    _verb([*pack, *signed], torch=False)
    robot = json.loads(_verb(["bundle", "inspect", str(bundle), "--json"], torch=False))["manifest"]["robot"]
    root = folder.with_name(f"{folder.name}-slots")
    if not root.exists():
        trust = ["--robot", robot, "--trust", str(keys / "trust.json"), "--stand-in", *ACCEPT]
        _verb(["robot", "setup", "--root", str(root), *trust], torch=False)
    install = ["robot", "install", str(bundle), "--root", str(root), "--activate"]
    if not install_eventually(install):
        return {"bundle": str(bundle), "robot": f"not installed, see above; again: physai {shlex.join(install)}"}
    return {"bundle": str(bundle), "robot": f"installed: physai robot status --root {root}", "root": str(root)}


def install_eventually(install: list[str]) -> bool:
    """Install in up to `INSTALL_TRIES` attempts and return whether one succeeds.

    A robot refuses a policy as long as other programs make it miss deadlines.
    """
    for left in reversed(range(INSTALL_TRIES)):
        try:
            _verb(install, torch=False)
            return True
        except PhysaiError:
            if left:
                print("installing again, in case other programs kept this computer busy", file=sys.stderr)
    return False


def _judgement(verdict: "Verdict", folder: Path) -> dict[str, Any]:
    return {
        "verdict": verdict.outcome.value,
        "gates": {gate.gate: gate.shown for gate in verdict.gates},
        "gates_passed": verdict.passed,
        "verdict_reasons": [f"{gate.gate}: {gate.message}" for gate in verdict.gates if gate.outcome.value != PASS],
        "report": str(folder / REPORT_FOLDER / "report.html"),
        "evidence": (
            f"the twin is from {verdict.evidence.twin}, the latency from {verdict.evidence.latency}; the slots of this "
            f"demo accept that ({' '.join(ACCEPT)}), a robot rejects it unless its owner allows it"
        ),
    }


def _keep_old(folder: Path) -> None:
    """Renames an earlier demo's folder instead of overwriting it."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    shutil.move(folder, aside)
    print(f"the earlier demo is kept in {aside}", file=sys.stderr)


def _verb(arguments: list[str], *, torch: bool = True, accepted: Sequence[int] = (0,)) -> str:
    """Runs a verb in a separate process, with progress on this terminal; returns its standard output."""
    done = subprocess.run(verb_command(arguments, torch=torch), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in accepted or (done.returncode and not done.stdout):
        raise PhysaiError(f"`physai {' '.join(arguments)}` failed; its message is above")
    return done.stdout


def _film(folder: Path, film: Path) -> bool:
    """Renders two episodes; returns False where that fails, as on a machine without OpenGL."""
    try:
        _verb(["play", str(folder), "--video", str(film), "--episodes", "2"], torch=False)
    except PhysaiError as error:
        print(f"no video: {error}", file=sys.stderr)
        return False
    return True


def _summary(folder: Path, film: Path | None, judged: dict[str, Any], trained_s: float) -> dict[str, Any]:
    from physai.sim.policies.resolve import find_policy
    from physai.train.runners.reporting import CURVE_FILE

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


def print_summary(summary: dict[str, Any]) -> None:
    """Prints the results for a terminal."""
    lower, upper = summary["success_interval_95"]
    print(f"\n{summary['task']}: trained in {summary['training_s']:.0f} s")
    print(
        f"  success         {summary['succeeded']} of {summary['judged']} = {summary['success']:.1%}, "
        f"95 % interval {lower:.1%} to {upper:.1%} ({summary['criterion']})"
    )
    print(f"  verdict         {summary['verdict']}: {summary['gates_passed']}")
    for reason in summary["verdict_reasons"]:
        print(f"                  {reason}")
    for label in ("policy", "bundle", "robot", "fingerprint", "report", "learning_curve", "film"):
        if summary[label]:
            print(f"  {label.replace('_', ' '):<15} {summary[label]}")
    print(f"\nNO ROBOT WAS INVOLVED: {summary['evidence']}")
    if "driven" in summary:
        print(f"\nthe installed policy drove a virtual robot for {DRIVE_S:g} s:\n{driven_text(summary['driven'])}")


_STARTED = time.monotonic()


def _step(text: str) -> None:
    elapsed_s = round(time.monotonic() - _STARTED)
    print(f"\n[{elapsed_s // 60}:{elapsed_s % 60:02d}  step {text}]", file=sys.stderr)


command = CliCommand(
    summary="calibrate, train, judge, sign, install, run and film a policy on this computer",
    add_arguments=add_arguments,
    run=run,
)
