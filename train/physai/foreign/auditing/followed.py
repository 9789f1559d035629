"""Finds the place of a log in the motion that its policy follows, and names what differs from the motion's terms."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from physai.foreign.auditing.deployment_log import DeploymentLog, Floats
from physai.foreign.auditing.findings import AuditFinding
from physai.foreign.auditing.hypotheses import NOTHING, Readings, agrees, compare_block, fits
from physai.foreign.description import MotionDescription, TermDescription

JOINTS, ORIENTATION = "motion", "motion_orientation"
"""Terms of a motion."""
PLACE = "motion_start"
"""Part of an audit: lag of the motion, and headings at its start."""
MAX_LAG = 8
"""Greatest lag of a motion; a program that shows the first frame for longer waits."""
MOST_ROWS = 1000
"""Number of rows by which a log is found in the motion."""
HEADING = 0.02
"""Greatest difference of a heading that agrees [rad]."""
_RATES = {2.0: "2 frames a period", 0.5: "a frame in 2 periods"}


@dataclass(frozen=True, kw_only=True)
class FollowedMotion:
    """A motion as its policy looks it up."""

    described: MotionDescription
    joints: tuple[str, ...]
    terms: Mapping[str, TermDescription]
    """Terms of the observation by their kinds."""
    joint_frames: Floats
    """Positions and speeds of the joints, shape (frames, 2 joints)."""
    quat: Floats
    """Orientations of the body as the graph has them, shape (frames, 4)."""

    def frames(self, first: int, rows: int, rate: float = 1.0) -> NDArray[np.int64]:
        """Return the frames of rows, the first of which is in this one; a motion stays at its ends."""
        return np.clip(np.floor(first + rate * np.arange(rows)).astype(np.int64), 0, len(self.quat) - 1)

    def rotations(self, *, swapped: bool = False) -> Floats:
        """Return the rotations of the body, shape (frames, 3, 3), also of quaternions in the other order."""
        xyzw = (self.described.quaternion == "xyzw") != swapped
        return rotations(np.roll(self.quat, 1, axis=1) if xyzw else self.quat)


def rotations(quat: Floats) -> Floats:
    """Return the rotations of quaternions wxyz, shape (rows, 3, 3)."""
    w, x, y, z = (quat / np.linalg.norm(quat, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)


def follow(
    motion: FollowedMotion,
    log: DeploymentLog,
    logged: Mapping[str, Floats],
    expected: Floats | None,
    default: Floats,
    *,
    starts: bool,
) -> Iterator[AuditFinding]:
    """Yield findings of the terms of a motion and of their place in it.

    Args:
        motion: of the policy.
        log: of its program.
        logged: blocks of the observation by the motion's terms.
        expected: orientation term in the period after the first one, as the graph has it for a robot whose heading at
            the start is 0; None without that term.
        default: pose of the joints that actions are relative to [rad].
        starts: whether the log begins with the policy.
    """
    lag, index = motion.described.lag, log.get("index")
    first = -lag if starts or index is None else round(float(index[0, 0])) - lag
    if JOINTS in logged:
        finding, found = _joints(motion, logged[JOINTS], first, default)
        first = first if found is None else found
        yield finding
        if found is None:
            yield AuditFinding(part=PLACE, outcome="undetermined", text="the log's place in the motion is not found")
            return
    headings = False
    if ORIENTATION in logged and expected is not None:
        finding, headings = _orientation(
            motion, logged[ORIENTATION], expected, first, log.get("imu_quat"), starts=starts
        )
        yield finding
    yield _place(motion, first, log, starts=starts, headings=headings)


def _joints(motion: FollowedMotion, logged: Floats, first: int, default: Floats) -> tuple[AuditFinding, int | None]:
    """Finding of the joints' term, and the frame of the first row, below 0 before the motion begins to move."""
    term, rows, count = motion.terms[JOINTS], len(logged), len(motion.joints)
    names = [f"{name}{suffix}" for suffix in ("", " speed") for name in motion.joints]
    kept: tuple[AuditFinding, int | None] | None = None
    pose = term.scale * np.concatenate([default, np.zeros(count)])

    def made(at: int, rate: float = 1.0) -> Floats:
        return (motion.joint_frames[motion.frames(at, rows, rate)] - term.offset) * term.scale

    tried = [(at, 1.0) for at in (first, *_located(motion.joint_frames, logged, count))]
    for at, rate in (*tried, *((at, rate) for rate in _RATES for at, _ in tried)):
        block = made(at, rate)
        if rate != 1.0:
            if agrees(block, logged):
                return AuditFinding(part=JOINTS, outcome="differs", text=f"runs at {_RATES[rate]}"), at
            continue
        others: Readings = {"relative to the default pose": lambda block=block: block - pose}
        finding = compare_block(JOINTS, block, logged, names, others)
        if finding.outcome != "differs":
            return finding, at
        if kept is None and finding.text:
            kept = finding, at
    if kept is not None:
        return kept
    return AuditFinding(part=JOINTS, outcome="differs", text="holds no part of the motion that is found in it"), None


def _located(frames: Floats, logged: Floats, count: int) -> Iterator[int]:
    """Yield frames in which a log may begin, by what no order, sign or scale of the joints changes."""
    rows = min(len(logged), MOST_ROWS)
    longer = np.concatenate([np.repeat(frames[:1], rows, axis=0), frames, np.repeat(frames[-1:], rows, axis=0)])
    for part in (slice(count, None), slice(0, count), slice(0, None)):
        short, long = (np.linalg.norm(block[:, part], axis=1) for block in (logged[:rows], longer))
        short = short - short.mean()
        total = np.cumsum(np.concatenate([[0.0], long])), np.cumsum(np.concatenate([[0.0], long * long]))
        mean, power = ((sums[rows:] - sums[:-rows]) / rows for sums in total)
        spread = np.sqrt(np.clip(power - mean * mean, 1e-18, None) * rows)
        likeness = np.correlate(long, short, "valid") / spread
        if float(np.abs(short).max(initial=0.0)) > 1e-9:
            yield int(likeness.argmax()) - rows


def _orientation(
    motion: FollowedMotion, logged: Floats, expected: Floats, first: int, quat: Floats | None, *, starts: bool
) -> tuple[AuditFinding, bool]:
    """Finding of the orientation's term, and whether it tells that the headings at the start are right."""
    term, rows = motion.terms[ORIENTATION], len(logged)
    wanted = motion.rotations()
    names = [f"{ORIENTATION}[{index}]" for index in range(6)]
    then = wanted[motion.frames(1 - motion.described.lag, 1)[0]]
    body = _level(wanted[0]).T @ then @ _whole(expected / term.scale + term.offset).transpose(0, 2, 1)
    shown = logged / term.scale + term.offset
    angle, block = _turned(body, wanted[motion.frames(first, rows)], shown)
    finding = compare_block(ORIENTATION, (block - term.offset) * term.scale, logged, names, {})
    if finding.outcome == "agrees" and starts:
        robot, own = _heading(body[0]), _heading(wanted[0])
        if text := _headings(angle, robot, own):
            return AuditFinding(part=ORIENTATION, outcome="differs", text=text), False
        return finding, abs(_wrapped(robot)) > HEADING
    if finding.outcome == "differs":
        for text, (whose, to, seen) in _readings(motion, body, first, shown, quat).items():
            if fits(_turned(whose, to, seen)[1], seen):
                return AuditFinding(part=ORIENTATION, outcome="differs", text=text), False
        if not finding.text:
            finding = replace(finding, text=NOTHING)
    return finding, False


def _readings(
    motion: FollowedMotion, body: Floats, first: int, shown: Floats, quat: Floats | None
) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Wrong readings of an orientation: those of the robot, those of the motion, and the term in the right order."""
    wanted, rows = motion.rotations(), len(shown)
    frames = motion.frames(first, rows)
    target, inverse = wanted[frames], _whole(shown).transpose(0, 2, 1)
    two = shown.reshape(rows, 2, 3)
    by_rows = np.concatenate([two, np.cross(two[:, :1], two[:, 1:])], axis=1)
    level = np.array([_level(one) for one in body])
    found = {
        "by columns and not by rows": (body, target, shown[:, [0, 3, 1, 4, 2, 5]]),
        "the first two rows and not the first two columns": (body, target, by_rows[:, :, :2].reshape(rows, 6)),
        "from the motion to the robot, which is the inverse": (body, target, inverse[:, :, :2].reshape(rows, 6)),
        "relative to the current heading and not to that at the start": (
            level.transpose(0, 2, 1) @ body,
            target,
            shown,
        ),
        "from the motion's quaternion in the other order": (body, motion.rotations(swapped=True)[frames], shown),
    }
    for late in (1, -1, 2, -2):
        word = f"{abs(late)} period{'' if abs(late) == 1 else 's'} {'after' if late > 0 else 'before'}"
        found[f"of the frame {word} that of the joints"] = body, wanted[motion.frames(first + late, rows)], shown
    if quat is not None:
        chain, wrong = rotations(quat).transpose(0, 2, 1) @ body, rotations(np.roll(quat, 1, axis=1))
        found[f"of the base and not of {motion.described.body}"] = rotations(quat), target, shown
        found["from the robot's quaternion xyzw that is read as wxyz"] = wrong @ chain, target, shown
    return found


def _headings(angle: float, robot: float, motion: float) -> str:
    """Name headings at the start that are not taken off; empty if both are, or if that is not told apart."""
    readings = {
        robot - motion: "",
        0.0: "with the headings at the start, which are to be taken off",
        -motion: "with the robot's heading at the start, which is to be taken off",
        robot: "with the motion's heading at the start, which is to be taken off",
    }
    for value, text in readings.items():
        if abs(_wrapped(angle - value)) < HEADING:
            return text
    return f"turned by {math.degrees(_wrapped(angle - robot + motion)):.3g}° about the vertical"


def _place(motion: FollowedMotion, first: int, log: DeploymentLog, *, starts: bool, headings: bool) -> AuditFinding:
    """Finding of the lag, and of what is not tested at all."""
    lag, index = motion.described.lag, log.get("index")
    if index is not None and not np.array_equal(np.diff(index[:, 0]), np.ones(log.rows - 1)):
        return AuditFinding(part=PLACE, outcome="differs", text="the index does not grow by 1 a period")
    shows = None if not starts and index is None else (0 if index is None else round(float(index[0, 0]))) - first
    if shows is None or shows > MAX_LAG:
        text = "the program waits in the first frame" if first < -lag else f"the log begins in frame {max(first, 0)}"
        text += "; the lag and the headings at the start are not tested: log from the policy's first period on"
        return AuditFinding(part=PLACE, outcome="undetermined", text=text)
    if shows != lag:
        early = "early" if shows < lag else "late"
        text = f"{abs(lag - shows)} period{'' if abs(lag - shows) == 1 else 's'} {early}"
        return AuditFinding(part=PLACE, outcome="differs", text=f"{text}: lags by {shows}, the contract says {lag}")
    if not headings and ORIENTATION in motion.terms:
        text = "the headings at the start are not tested: log from the policy's first period on, with the robot turned"
        return AuditFinding(part=PLACE, outcome="undetermined", text=text)
    return AuditFinding(part=PLACE, outcome="agrees", text="")


def _whole(two: Floats) -> Floats:
    """Rotations by their first two columns, which are given by rows, shape (rows, 6)."""
    columns = two.reshape(-1, 3, 2)
    return np.concatenate([columns, np.cross(columns[:, :, 0], columns[:, :, 1])[:, :, None]], axis=2)


def _turned(robot: Floats, motion: Floats, shown: Floats) -> tuple[float, Floats]:
    """Angle about the vertical by which the motion is turned so that the rotation to it is what is shown, and that."""
    back = robot.transpose(0, 2, 1)
    flat, quarter, up = np.diag([1.0, 1.0, 0.0]), np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0] * 3]), [0, 0, 1.0]
    cosine, sine, fixed = ((back @ part @ motion)[:, :, :2].reshape(-1, 6) for part in (flat, quarter, np.diag(up)))
    system = np.stack([cosine.ravel(), sine.ravel()], axis=1)
    (c, s), *_ = np.linalg.lstsq(system, (shown - fixed).ravel(), rcond=None)
    angle = math.atan2(s, c)
    return angle, math.cos(angle) * cosine + math.sin(angle) * sine + fixed


def _heading(rotation: Floats) -> float:
    return math.atan2(rotation[1, 0], rotation[0, 0])


def _level(rotation: Floats) -> Floats:
    """The turn about the vertical by a rotation's heading."""
    c, s = math.cos(_heading(rotation)), math.sin(_heading(rotation))
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def _wrapped(angle: float) -> float:
    return math.remainder(angle, 2.0 * math.pi)
