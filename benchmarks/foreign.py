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

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.foreign import PolicyImport, audit, import_policy
from physai.foreign.auditing.deployment_log import read_deployment_log
from physai.foreign.auditing.rebuilt import rebuilt
from physai.foreign.zoo.fetch import fetch_policy
from physai.foreign.zoo.table import ZooPolicy, load_zoo
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract
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
    if made.contract.task != "track":
        _audit(made, folder, tally, report)


def _audit(made: PolicyImport, folder: Path, tally: Tally, report: ProgressCallback) -> None:
    right = _log(made, folder)
    tally.alarms += bool(_differs(right, made.folder, folder))
    for name, wrong in _wrong(made.contract, right):
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


def _log(made: PolicyImport, folder: Path) -> Arrays:
    """A log of the imported policy in the twin, as its own program would write it."""
    policy, task = OnnxPolicy.load(made.folder), find_origin(made.folder / "export" / "policy.onnx").load()
    env = Environment(task, 1, seed=1)
    now = env.reset()
    policy.reset(1)
    contract, rows = made.contract, list[Arrays]()
    for number in range(PERIODS):
        fields = {name: np.asarray(value[0], np.float64) for name, value in {**now.sensors, **now.commands}.items()}
        targets = policy(now.sensors, now.commands)
        action = contract.action.terms[0]
        target = targets["joint_pos_target"][0].astype(np.float64)
        output = (target - np.array(action.offset)) / np.array(action.scale)
        last = policy.state.get("previous_action")
        own = output if last is None else np.asarray(last[0], np.float64)
        rows.append({**fields, "target": target, "action": own, "time": np.array(number * contract.timing.control_dt)})
        now = env.step(targets)
        if now.done.any():
            break
    log = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    columns = contract.robot.joint_index(contract.action.terms[0].joints)
    joints = [contract.robot.joints[index] for index in columns]
    stiffness, damping = (np.array([getattr(joint, gain) for joint in joints]) for gain in ("stiffness", "damping"))
    log["joint_effort"] = np.zeros_like(log["joint_pos"])
    lead = log["target"] - log["joint_pos"][:, columns]
    log["joint_effort"][:, columns] = stiffness * lead - damping * log["joint_vel"][:, columns]
    unseen: Mapping[str, Any] = {**log, "observation": np.zeros((len(rows), contract.observation_size))}
    np.savez(folder / "raw.npz", **unseen)
    log["observation"] = rebuilt(contract, read_deployment_log(folder / "raw.npz", contract, {}))
    return log


def _wrong(contract: PolicyContract, log: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Copies of a log, each with one convention changed."""
    slices = _slices(contract)
    action = contract.action.terms[0]
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
    for title, name, change in changes:
        yield from ((title, wrong) for _, wrong in seen(name, change))
    yield sent("scale of the action", pose + 2.0 * (log["target"] - pose))
    yield sent("targets without the pose", log["target"] - np.where(pose == 0.0, 0.1, pose))
    yield sent("order of targets", pose + (log["target"] - pose)[:, ::-1])
    yield sent("targets late", _late(log["target"]))
    yield "gains doubled", {**log, "joint_effort": 2.0 * log["joint_effort"]}
    yield "period doubled", {**log, "time": 2.0 * log["time"]}
    yield "period halved", {**log, "time": 0.5 * log["time"]}


def _slices(contract: PolicyContract) -> Mapping[str, slice]:
    """Blocks of the observation by term; none of an observation in the order of time, which is not one block each."""
    return {} if contract.observation.layout == "time" else contract.observation_slices


def _late(values: Any) -> Any:
    return np.vstack([values[:1], values[:-1]])
