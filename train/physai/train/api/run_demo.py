"""`physai demo` as a function: the whole workflow on one computer, from recordings to a policy in use and a film."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.extras import DISTRIBUTION
from physai.sdk.base.file_names import POLICY_FILE
from physai.sdk.base.parameters.arguments import MAX_SEED, require_range
from physai.sdk.base.parameters.option import Option
from physai.train.api.demo_drive import drive, verb_command

if TYPE_CHECKING:
    from physai.sdk.evidence.verdict import Verdict

TWIN_FILE = "twin.json"
REPORT_FOLDER = "validation"
PASS = "PASS"
EVIDENCE_FILE = "latency.json"
KEYS_FOLDER = "keys"
CALIBRATION_STEPS = 4_000_000
"""Physics steps of the calibration, half a minute; ten million replay no better."""
MAX_EPISODES = 100_000
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


def run_demo(
    task: str = "ur10e-reach",
    out: Annotated[Path | str, Option(metavar="DIR")] = Path("demo"),
    *,
    time_budget_s: float = 600.0,
    episodes: int = 256,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Carry a policy through the whole workflow on this computer, with a virtual robot instead of a real one.

    The steps are recording, calibration, training, export and evaluation, validation, installation, a drive and a film.
    Those that a robot or a validator does run in processes without torch.

    Args:
        task: task to train.
        out: folder for the results.
        time_budget_s: longest training [s].
        episodes: evaluation episodes.
        seed: seed of the training.
        say: receives the title of each step, and notes.

    Returns:
        Files and figures, as `physai demo --json` prints them.

    Raises:
        PhysaiError: a step failed.
        KeyboardInterrupt: a signal ended a step.
    """
    from physai.train.api.exporting import export
    from physai.train.api.training import train

    require_range("episodes", episodes, 1, MAX_EPISODES)
    require_range("seed", seed, 0, MAX_SEED)
    if not time_budget_s > 0.0:
        raise PhysaiError(f"`time_budget_s` must be a positive number of seconds, got {time_budget_s}")
    _require_torch()
    tell: Callable[[str], None] = say or (lambda text: None)
    step = _Steps(tell)
    folder = Path(out) / task
    if folder.exists():
        _keep_old(folder, tell)
    twin = _twin(task, folder, step)
    in_twin = ["--twin", str(twin)] if twin else []
    step("3 of 8: training on this computer")
    started = time.monotonic()
    settings = {"stop_at_success": STOP_AT, "eval_min_success": EVAL_MIN_SUCCESS}
    trained = train(task, folder, time_budget_s=time_budget_s, seed=seed, twin=twin, settings=settings, say=tell)
    if trained.interrupted:
        raise KeyboardInterrupt
    trained_s = time.monotonic() - started
    step("4 of 8: exporting the policy as one ONNX graph, and evaluating it in the twin, without torch")
    export(folder)
    judged = json.loads(_verb(["eval", str(folder), "--episodes", str(episodes), "--json"]))
    step("5 of 8: measuring its latency on this computer instead of a robot, and validating it: ten gates in the twin")
    verdict = _validate(folder, in_twin)
    step("6 of 8: signing the bundle, and installing it as on a robot")
    installed = _install(folder, verdict)
    driven: dict[str, Any] = {}
    step(f"7 of 8: driving a virtual robot in another process over DDS, for {DRIVE_S:g} s")
    if "root" not in installed:
        tell(f"skipped, since no policy is installed ({installed['robot']})")
    else:
        driven = {"driven": drive(task, twin, Path(installed["root"]), DRIVE_S)}
    step("8 of 8: rendering a video")
    film = folder.with_name(f"{task}.mp4")
    filmed = _film(folder, film, tell)
    summary = _summary(folder, film if filmed else None, judged, trained_s)
    return summary | _judgement(verdict, folder) | installed | driven


class _Steps:
    """Titles of the steps, with the time since the first."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self._started = say, time.monotonic()

    def __call__(self, text: str) -> None:
        elapsed_s = round(time.monotonic() - self._started)
        self.say(f"\n[{elapsed_s // 60}:{elapsed_s % 60:02d}  step {text}]")


def _require_torch() -> None:
    """Raises MissingExtraError now, instead of after the minutes of the steps that need no torch."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"physai demo trains, which needs torch: pip install '{DISTRIBUTION}[train]'"
        ) from error


def _twin(task: str, folder: Path, step: _Steps) -> Path | None:
    """Records a virtual robot and calibrates a twin from the logs; None for a floating base, which is not supported."""
    from physai.sim.robots import robot_names
    from physai.sim.tasks.registry import load_task

    robot = load_task(task).robot
    if robot.spec.base == "floating":
        step.say(f"{robot.name} has a floating base: nothing is recorded, the twin stays nominal")
        return None
    work = folder.with_name(f"{folder.name}-robot")
    if work.exists():
        _keep_old(work, step.say)
    name = robot.name if robot.name in robot_names() else str(robot.path)
    step(f"1 of 8: recording a simulated {robot.name} with hidden parameters, in place of a real robot")
    _verb(["sim", "record", name, "--out", str(work)])
    step("2 of 8: calibrating the twin on the recordings")
    twin = work / TWIN_FILE
    logs = sorted(str(path) for path in work.glob("*.csv"))
    limits = ["--out", str(twin), "--report", str(work), "--budget-steps", str(CALIBRATION_STEPS)]
    _verb(["sim", "calibrate", name, *logs, *limits], accepted=(0, 1))
    return twin


def _validate(folder: Path, in_twin: list[str]) -> Verdict:
    """Measures the latency, runs the gates and returns the verdict: PASS, FAIL or INCONCLUSIVE."""
    from physai.sdk.evidence.verdict import parse_verdict

    evidence = str(folder / EVIDENCE_FILE)
    _verb(["robot", "measure", str(folder / "export" / POLICY_FILE), "--out", evidence])
    jobs = str(min(MAX_JOBS, len(os.sched_getaffinity(0))))
    where = ["--report", str(folder / REPORT_FOLDER), "--latency", evidence, *ACCEPT]
    verb = ["sim", "validate", str(folder), *in_twin, *where, "--jobs", jobs, "--json"]
    return parse_verdict(_verb(verb, accepted=(0, 1, 2)), source="physai sim validate")


def _install(folder: Path, verdict: Verdict) -> dict[str, Any]:
    """Packs and signs the bundle and installs it into slots in a folder; without a PASS it is only packed."""
    keys, bundle = folder.parent / KEYS_FOLDER, folder.parent / f"{folder.name}.physai"
    if not keys.exists():
        _verb(["keys", "init", str(keys)])
    pack = ["bundle", "pack", str(folder), "--out", str(bundle), "--sign", "--key", str(keys / "publisher.key")]
    if verdict.outcome.value != PASS:
        _verb(pack)
        return {"bundle": str(bundle), "robot": f"rejects it: the verdict is {verdict.outcome.value}"}
    signed = ["--verdict", str(folder / REPORT_FOLDER), "--validator-key", str(keys / "validator.key"), *ACCEPT]
    signed += ["--replay", "3"]
    _verb([*pack, *signed])
    robot = json.loads(_verb(["bundle", "inspect", str(bundle), "--json"]))["manifest"]["robot"]
    root = folder.with_name(f"{folder.name}-slots")
    if not root.exists():
        trust = ["--robot", robot, "--trust", str(keys / "trust.json"), "--stand-in", *ACCEPT]
        _verb(["robot", "setup", "--root", str(root), *trust])
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
            _verb(install)
            return True
        except PhysaiError:
            if left:
                print("installing again, in case other programs kept this computer busy", file=sys.stderr)
    return False


def _judgement(verdict: Verdict, folder: Path) -> dict[str, Any]:
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


def _keep_old(folder: Path, say: Callable[[str], None]) -> None:
    """Renames an earlier demo's folder instead of overwriting it."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    shutil.move(folder, aside)
    say(f"the earlier demo is kept in {aside}")


def _verb(arguments: list[str], *, accepted: Sequence[int] = (0,)) -> str:
    """Run a verb in a process without torch, with progress on this terminal, and return its standard output."""
    done = subprocess.run(verb_command(arguments, torch=False), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in accepted or (done.returncode and not done.stdout):
        raise PhysaiError(f"`physai {' '.join(arguments)}` failed; its message is above")
    return done.stdout


def _film(folder: Path, film: Path, say: Callable[[str], None]) -> bool:
    """Renders two episodes; returns False where that fails, as on a machine without OpenGL."""
    try:
        _verb(["play", str(folder), "--video", str(film), "--episodes", "2"])
    except PhysaiError as error:
        say(f"no video: {error}")
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
