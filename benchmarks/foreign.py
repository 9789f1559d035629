"""`python -m benchmarks foreign`: public policies that import, and wrong conventions that the audit of a log names.

The policies are those of `physai zoo`. Each is fetched, or taken from the folder PHYSAI_ZOO, which holds what
`physai zoo fetch NAME -o PHYSAI_ZOO/NAME` wrote. Logs are made in the twin by the imported policy.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.foreign import PolicyImport, audit, import_policy
from physai.foreign.auditing.audited_policy import AuditedPolicy, audited_policy
from physai.foreign.body import probe
from physai.foreign.conversion.tracking.lookup import subgraph
from physai.foreign.zoo.fetch import fetch_policy
from physai.foreign.zoo.table import ZooPolicy, load_zoo
from physai.sdk.base.errors import PhysaiError
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_origin

PERIODS = 450
"""Length of a log: the command changes twice in it."""
ENOUGH = 0.9
"""Share of wrong conventions that has to be found for the workload to count."""

Arrays = dict[str, Any]


@dataclass(kw_only=True)
class Tally:
    """Counts over all policies."""

    admitted: int = 0
    of: int = 0
    parity: float = 0.0
    questions: int = 0
    caught: int = 0
    wrong: int = 0
    alarms: int = 0


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Imports each policy, and audits a right log of it and wrong ones."""
    names = options.chosen([policy.name for policy in load_zoo().policies])
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for name in names[:1] if options.quick else names:
            _measure(load_zoo().policy(name), Path(folder), tally, report)
    if not tally.admitted:
        raise WorkloadError("no policy could be fetched and imported; PHYSAI_ZOO names a folder with those of the zoo")
    if tally.caught < ENOUGH * tally.wrong or tally.alarms:
        raise WorkloadError(f"{tally.caught} of {tally.wrong} wrong logs were found, with {tally.alarms} false alarms")
    return [
        BenchmarkResult(name=name, unit=unit, runs=(float(value),))
        for name, unit, value in (
            ("admitted", "policies", tally.admitted),
            ("of", "policies", tally.of),
            ("parity_max", "rad", tally.parity),
            ("questions_max", "questions", tally.questions),
            ("wrong_caught", "logs", tally.caught),
            ("wrong_of", "logs", tally.wrong),
            ("false_alarms", "logs", tally.alarms),
        )
    ]


def _measure(policy: ZooPolicy, folder: Path, tally: Tally, report: ProgressCallback) -> None:
    home = Path(os.environ.get("PHYSAI_ZOO", folder)) / policy.name
    try:
        if not home.is_dir():
            fetch_policy(policy.name, out=home)
    except PhysaiError as error:
        report(f"{policy.name}: not measured: {str(error).splitlines()[0]}")
        return
    tally.of += 1
    zoo = load_zoo()
    robot = zoo.robots.get(policy.robot)
    model = policy.robot if robot is None else home / robot.source / robot.file
    settings = {name: setting.value for name, setting in policy.settings.items()}
    try:
        made = import_policy(
            home / policy.source / policy.file, model=model, out=folder / f"{policy.name}-run", settings=settings
        )
    except PhysaiError as error:
        report(f"{policy.name}: refused: {str(error).splitlines()[0]}")
        return
    tally.admitted += 1
    tally.parity = max(tally.parity, made.parity.greatest)
    tally.questions = max(tally.questions, len(settings))
    report(f"{policy.name}: {len(settings)} questions, {made.parity.greatest:.2g} rad")
    _audit(made, folder, tally, report)


def _audit(made: PolicyImport, folder: Path, tally: Tally, report: ProgressCallback) -> None:
    right = _log(made)
    for first in (0, 37):
        late = {name: value[first:] for name, value in right.items()}
        if found := _differs(late, made.folder, folder):
            tally.alarms += 1
            report(f"{made.folder.name}: a right log from row {first} on is said to differ in {', '.join(found)}")
    for name, wrong in _wrong(audited_policy(made.folder), right):
        tally.wrong += 1
        if _differs(wrong, made.folder, folder):
            tally.caught += 1
        else:
            report(f"{made.folder.name}: not found: {name}")


def _differs(log: Arrays, run: Path, folder: Path) -> list[str]:
    """Parts of the contract that differ in a log."""
    path = folder / "log.npz"
    np.savez(path, **log)
    return [finding.part for finding in audit(path, run).findings if finding.outcome == "differs"]


def _log(made: PolicyImport) -> Arrays:
    """A log of the imported policy in the twin, as its own program would write it; the graph says what it sees."""
    policy, task = OnnxPolicy.load(made.folder), find_origin(made.folder / "export" / "policy.onnx").load()
    library: Any = onnx
    model = library.load(str(made.folder / "export" / "policy.onnx"))
    contract, action = made.contract, made.contract.action.terms[0]
    seen = "observation" if contract.task == "velocity" else "net.seen"
    session = probe.session(subgraph(model, [value.name for value in model.graph.input], [seen]))
    needed = {value.name for value in session.get_inputs()}
    env = Environment(task, 1, seed=1)
    now = env.reset()
    policy.reset(1)
    rows = list[Arrays]()
    for number in range(PERIODS):
        read = {**now.sensors, **now.commands}
        feed = {**read, **{f"state.{name}": value for name, value in policy.state.items()}}
        observation = probe.run(session, {name: value for name, value in feed.items() if name in needed})[0][0]
        targets = policy(now.sensors, now.commands)
        target = targets["joint_pos_target"][0].astype(np.float64)
        output = (target - np.array(action.offset)) / np.array(action.scale)
        last = policy.state.get("previous_action")
        own = output if last is None else np.asarray(last[0], np.float64)
        row = {"observation": observation, "target": target, "action": own}
        fields = {name: np.asarray(value[0], np.float64) for name, value in read.items()}
        rows.append({**fields, **row, "time": np.array(number * contract.timing.control_dt)})
        now = env.step(targets)
        if now.done.any():
            break
    log = {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}
    columns = contract.robot.joint_index(action.joints)
    joints = [contract.robot.joints[index] for index in columns]
    stiffness, damping = (np.array([getattr(joint, gain) for joint in joints]) for gain in ("stiffness", "damping"))
    log["joint_effort"] = np.zeros_like(log["joint_pos"])
    lead = log["target"] - log["joint_pos"][:, columns]
    log["joint_effort"][:, columns] = stiffness * lead - damping * log["joint_vel"][:, columns]
    return log


def _wrong(policy: AuditedPolicy, log: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Copies of a log, each with one convention changed."""
    # Of an observation in the order of time, a term is not one block.
    slices: Mapping[str, list[int]] = {} if policy.contract.observation.layout == "time" else policy.columns
    action = policy.contract.action.terms[0]
    count, scale, pose = len(action.joints), np.array(action.scale), np.array(action.offset)

    def seen(name: str, change: Callable[[Any], Any]) -> Iterator[tuple[str, Arrays]]:
        if name in slices:
            block = log["observation"][:, slices[name]]
            whole = log["observation"].copy()
            whole[:, slices[name]] = change(block)
            # A scale of 1 that is applied twice is right.
            if not np.allclose(whole, log["observation"]):
                yield name, {**log, "observation": whole}

    def sent(name: str, value: Any) -> tuple[str, Arrays]:
        return name, {**{key: one for key, one in log.items() if key != "joint_effort"}, "target": value}

    def repeated(values: Any, block: Any) -> Any:
        return np.tile(values, block.shape[1] // len(values))

    changes: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("gravity upwards", "gravity", lambda b: -b),
        ("angular velocity without its scale", "ang_vel", lambda b: 4.0 * b),
        ("an axis of the angular velocity", "ang_vel", lambda b: b * repeated([1.0, -1.0, 1.0], b)),
        ("order of positions", "joint_pos", lambda b: b[:, ::-1]),
        ("a sign of positions", "joint_pos", lambda b: b * repeated([-1.0] + [1.0] * (count - 1), b)),
        ("positions in degrees", "joint_pos", np.degrees),
        ("positions late", "joint_pos", _late),
        ("positions not relative", "joint_pos", lambda b: b + repeated(np.where(pose == 0.0, 0.1, pose), b)),
        ("order of speeds", "joint_vel", lambda b: b[:, ::-1]),
        ("scale of speeds", "joint_vel", lambda b: 2.0 * b),
        ("speeds in degrees", "joint_vel", np.degrees),
        ("last action after its scale", "last_action", lambda b: b * repeated(scale, b)),
        ("last action late", "last_action", _late),
        ("order of last actions", "last_action", lambda b: b[:, ::-1]),
        ("scale of the command", "command", lambda b: 2.0 * b),
    )
    followed: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("order of the motion's joints", "motion", lambda b: np.hstack([b[:, :count][:, ::-1], b[:, count:]])),
        ("speeds of the motion first", "motion", lambda b: np.roll(b, count, axis=1)),
        ("the motion in degrees", "motion", np.degrees),
        ("the motion relative to the pose", "motion", lambda b: b - np.concatenate([pose, 0.0 * pose])),
        ("the motion a period late", "motion", _late),
        ("the motion's orientation by columns", "motion_orientation", lambda b: b[:, [0, 2, 4, 1, 3, 5]]),
        ("the motion's orientation late", "motion_orientation", _late),
        ("a sign of the motion's orientation", "motion_orientation", lambda b: b * np.array([1.0, -1.0] * 3)),
    )
    for title, name, change in (*changes, *followed):
        yield from ((title, wrong) for _, wrong in seen(name, change))
    yield sent("scale of the action", pose + 2.0 * (log["target"] - pose))
    yield sent("targets without the pose", log["target"] - np.where(pose == 0.0, 0.1, pose))
    yield sent("order of targets", pose + (log["target"] - pose)[:, ::-1])
    yield sent("targets late", _late(log["target"]))
    yield "gains doubled", {**log, "joint_effort": 2.0 * log["joint_effort"]}
    yield "period doubled", {**log, "time": 2.0 * log["time"]}
    yield "period halved", {**log, "time": 0.5 * log["time"]}
    yield from _other_fill(policy, log)


def _other_fill(policy: AuditedPolicy, log: Arrays) -> Iterator[tuple[str, Arrays]]:
    """A log whose histories begin with zeros instead of copies of the first sample, or the other way round."""
    spec = policy.contract.observation
    if all(term.history == 1 for term in spec.terms):
        return
    whole = log["observation"].copy()
    for term in spec.terms:
        block = whole[:, policy.columns[term.name]].reshape(len(whole), term.history, -1)
        samples = block[:, ::-1] if spec.newest == "last" else block
        for row in range(min(term.history - 1, len(whole))):
            samples[row, row + 1 :] = samples[0, 0] if spec.first_fill == "zero" else 0.0
        whole[:, policy.columns[term.name]] = block.reshape(len(whole), -1)
    yield "first fill of the histories", {**log, "observation": whole}


def _late(values: Any) -> Any:
    return np.vstack([values[:1], values[:-1]])
