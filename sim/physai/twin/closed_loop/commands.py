"""Check that a policy is the one that drove the robot in recordings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sim.policies.onnx import OnnxPolicy
from physai.twin.closed_loop.runs import commanded_joints, samples_of, speeds_of
from physai.twin.logs import LogError, RobotLog

Array = npt.NDArray[np.float64]

SHIFTS = 4
"""Samples after a measurement in which its command may be logged: 0 to 3."""
TOLERANCE = 0.1
"""Difference of a command that still counts as the same, as a share of the commands' root mean square."""
FLOOR = 0.01
"""The same as a share of the command's range, where the root mean square is less."""
AGREEMENT = 0.9
"""Share of the control periods that must agree, for each commanded joint."""

_SENSORS = ("joint_pos", "joint_vel", "joint_effort")


@dataclass(frozen=True)
class CommandCheck:
    """Comparison of a policy's commands with the recorded ones."""

    agreement: float
    """Share of the control periods that agree, of the joint with the fewest."""
    shift: int
    """Samples after the measurement in which the command is logged."""
    joint: str
    """The joint with the fewest."""
    recorded: float
    """Its command where the difference is the median of all that disagree [rad, m, N·m or N]; NaN if none."""
    computed: float
    """The policy's there."""
    place: str
    """Recording and time of it."""


def check_commands(policy: OnnxPolicy, logs: Sequence[RobotLog]) -> CommandCheck:
    """Give the recorded measurements to a policy and compare what it commands with what was recorded.

    The policy's memory of its last command holds the recorded one, so that differences do not add up.

    Raises:
        LogError: the policy reads or commands what these recordings do not contain, or they have another period.
    """
    _require_readable(policy, logs)
    samples = [samples_of(log, policy.contract.timing.control_dt) for log in logs]
    steps = max(len(rows) for rows in samples)
    # After its end a recording repeats its last sample; those rows are not compared.
    rows = np.stack([np.concatenate([s, np.full(steps - len(s), s[-1])]) for s in samples])
    valid = np.arange(steps) < np.array([len(s) for s in samples])[:, None]
    joints = commanded_joints(policy.contract)
    sent = np.stack([_sent(log, part, joints) for log, part in zip(logs, rows, strict=True)])
    computed = _computed(policy, logs, rows, sent)
    scale = np.sqrt((sent[:, :, 0][valid] ** 2).mean(axis=0))
    terms = policy.contract.action.terms
    span = np.array([up - low for term in terms for low, up in zip(term.lower, term.upper, strict=True)])
    tolerance = np.maximum(TOLERANCE * scale, FLOOR * span)
    agree = np.abs(computed - sent) <= tolerance
    shares = agree[valid].mean(axis=0).min(axis=1)
    shift = int(np.argmax(shares))
    joint = int(np.argmin(agree[valid][:, shift].mean(axis=0)))
    wrong = np.argwhere(~agree[:, :, shift, joint] & valid)
    names = [policy.contract.robot.joint_names[j] for j in joints]
    if not len(wrong):
        return CommandCheck(float(shares[shift]), shift, names[joint], np.nan, np.nan, "")
    sizes = np.abs(computed - sent)[wrong[:, 0], wrong[:, 1], shift, joint]
    place = wrong[np.argsort(sizes)[len(sizes) // 2]]
    log, step = int(place[0]), int(place[1])
    return CommandCheck(
        agreement=float(shares[shift]),
        shift=shift,
        joint=names[joint],
        recorded=float(sent[log, step, shift, joint]),
        computed=float(computed[log, step, shift, joint]),
        place=f"{logs[log].name} at {logs[log].time[rows[log, step]]:.3f} s",
    )


def require_same_policy(policy: OnnxPolicy, check: CommandCheck) -> None:
    """Require that the policy commands what was recorded.

    Raises:
        LogError: it is another one.
    """
    if not check.agreement >= AGREEMENT:
        raise LogError(
            f"{policy.source} is not what drove the robot in these recordings: given the recorded measurements, its "
            f"command of {check.joint} agrees in {_floored(check.agreement)} of the control periods, {AGREEMENT:.0%} "
            f"are needed; in {check.place} it commands {check.computed:.4g}, recorded is {check.recorded:.4g}; give "
            "the policy file that ran, or the recordings of this one"
        )


def _floored(share: float) -> str:
    """Write a share with as many decimals as tell it from what is needed."""
    digits = next((digits for digits in range(7) if round(share, digits + 2) < AGREEMENT), 7)
    return f"{share:.{digits}%}"


def _require_readable(policy: OnnxPolicy, logs: Sequence[RobotLog]) -> None:
    contract = policy.contract
    if contract.command.fields:
        names = ", ".join(field.name for field in contract.command.fields)
        raise LogError(f"{policy.source} follows commands ({names}), which these recordings do not contain")
    wanted = [name for name in policy.header.inputs if not name.startswith("state.")]
    for name in wanted:
        if name not in _SENSORS:
            raise LogError(f"{policy.source} reads {name}, which these recordings do not contain")
    kinds = {"joint_pos" if term.kind.startswith("joint_pos") else "joint_effort" for term in contract.action.terms}
    for log in logs:
        missing = [name for name in wanted if name == "joint_effort" and log.joint_effort is None]
        if missing:
            raise LogError(f"{policy.source} reads {missing[0]}, which log {log.name} does not contain")
        if kinds != {log.command_kind}:
            raise LogError(
                f"{policy.source} commands {' and '.join(sorted(kinds))}, the commands in log {log.name} are "
                f"{log.command_kind}: it is a recording of another controller"
            )


def _sent(log: RobotLog, rows: Array, joints: Sequence[int]) -> Array:
    """Return the logged commands of each control period under each shift, shape (S, SHIFTS, C)."""
    last = len(log.time) - 1
    return np.stack([log.command[np.minimum(rows + shift, last)][:, joints] for shift in range(SHIFTS)], axis=1)


def _computed(policy: OnnxPolicy, logs: Sequence[RobotLog], rows: Array, sent: Array) -> Array:
    """Return the policy's commands, shape (L, S, SHIFTS, C), one world per recording and shift."""
    count, steps = rows.shape
    computed = np.zeros(sent.shape)
    terms = policy.contract.action.terms
    ends = np.cumsum([len(term.joints) for term in terms]).tolist()
    columns = {t.target_name: slice(end - len(t.joints), end) for t, end in zip(terms, ends, strict=True)}
    everything = np.ones(count * SHIFTS, bool)
    fields = {
        "joint_pos": [log.joint_pos for log in logs],
        "joint_vel": [speeds_of(log) for log in logs],
        "joint_effort": [log.joint_effort for log in logs],
    }
    policy.reset(count * SHIFTS)
    before = sent[:, 0].reshape(count * SHIFTS, -1)
    for step in range(steps):
        sensors = {
            name: np.repeat([v[rows[log, step]] for log, v in enumerate(values) if v is not None], SHIFTS, axis=0)
            for name, values in fields.items()
            if name in policy.header.inputs
        }
        targets = policy({name: values.astype(np.float32) for name, values in sensors.items()}, {})
        now = sent[:, step].reshape(count * SHIFTS, -1)
        for name, part in columns.items():
            computed[:, step, :, part] = targets[name].reshape(count, SHIFTS, -1)
        policy.remember(
            {name: now[:, part].astype(np.float32) for name, part in columns.items()},
            {name: (now - before)[:, part].astype(np.float32) for name, part in columns.items()},
            everything,
        )
        before = now
    return computed
