"""Split recordings into those that are fitted and those that are held out, with every kind of evidence in both."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from physai.twin.logs import RobotLog, command_lag
from physai.twin.logs.comparison.same_motion import same_motion
from physai.twin.logs.comparison.trajectories import by_trajectory

Array = npt.NDArray[np.float64]

HELD_OUT_SHARE = 0.4
"""Share of the recordings that a split holds out."""
STILL_RANGE = 0.01
"""Range of motion below which a robot counts as at rest [rad or m]."""
SHOWN = 0.5
"""Recordings show a range if one of them reaches this share of the greatest value in any."""
TOP = 0.99
"""Quantile of speeds and efforts that counts as the greatest: single samples may be faults."""
SPEED_S = 0.02
"""Time over which speeds are measured [s]."""
LAG_OF = "the lag of "
"""Begins the name of the evidence for a lag."""
MAX_SPLITS = 500
"""Number of random splits that are compared."""


def without_still(logs: Sequence[RobotLog]) -> tuple[tuple[RobotLog, ...], tuple[RobotLog, ...]]:
    """Separate recordings with motion from those at rest, which only show sensor noise."""
    moving = [bool((np.ptp(log.positions, axis=0) >= STILL_RANGE).any()) for log in logs]
    return (
        tuple(log for log, moves in zip(logs, moving, strict=True) if moves),
        tuple(log for log, moves in zip(logs, moving, strict=True) if not moves),
    )


def split_logs(logs: Sequence[RobotLog], seed: int) -> tuple[tuple[RobotLog, ...], tuple[RobotLog, ...]]:
    """Split recordings into training and held-out ones, each in the given order.

    Of all splits that hold out `HELD_OUT_SHARE`, it is the one with the most evidence in both parts, see `evidence`;
    what a single recording shows is fitted. Among equals, the seed decides. Recordings of one trajectory or motion stay
    together, unless that would hold out more than half of all recordings.
    """
    if len(logs) < 2:
        return tuple(logs), ()
    # Recordings stay whole: two halves of one share friction, temperature and errors, so they are not independent.
    groups = _joined(by_trajectory(logs), logs)
    if all(len(logs) < 2 * len(group) for group in groups):
        groups = tuple((number,) for number in range(len(logs)))
    shown = np.array(list(evidence(logs).values()))
    best, most = frozenset[int](), -1.0
    for held in _splits(groups, len(logs), seed):
        places = np.isin(np.arange(len(logs)), list(held))
        if places.all():
            continue
        fitted, tested = shown[:, ~places].max(axis=1), shown[:, places].max(axis=1)
        # What was not fitted cannot be tested.
        found = round(float((fitted + np.minimum(fitted, tested)).sum()), 6)
        if found > most:
            best, most = held, found
    train = tuple(log for number, log in enumerate(logs) if number not in best)
    return train, tuple(log for number, log in enumerate(logs) if number in best)


def _joined(groups: Sequence[Sequence[int]], logs: Sequence[RobotLog]) -> tuple[tuple[int, ...], ...]:
    """Join the groups of recordings that show one motion."""
    label = list(range(len(logs)))
    for group in groups:
        for number in group:
            label[number] = group[0]
    for one, other, _ in same_motion(logs):
        label = [label[one] if now == label[other] else now for now in label]
    return tuple(tuple(np.flatnonzero(np.array(label) == now).tolist()) for now in dict.fromkeys(label))


def _splits(groups: Sequence[Sequence[int]], total: int, seed: int) -> Iterator[frozenset[int]]:
    """Yield sets of held-out recordings, as many as `MAX_SPLITS`, in random order."""
    count = max(1, round(HELD_OUT_SHARE * total))
    random = np.random.default_rng(seed)
    for _ in range(MAX_SPLITS):
        held: set[int] = set()
        order: list[int] = random.permutation(len(groups)).tolist()
        for place in order:
            if len(held) < count and 2 * len(held | set(groups[place])) <= max(total, 2 * count):
                held |= set(groups[place])
        yield frozenset(held)


def evidence(logs: Sequence[RobotLog]) -> dict[str, Array]:
    """Return what recordings show, in words, with the share of the most that each of them shows, shape (L,).

    Lags are shown or not; of each joint's motion, speed and effort, it is the size relative to the greatest one.
    """
    shown: dict[str, Array] = {}
    lags = [command_lag(log) if log.command_kind == "joint_effort" else () for log in logs]
    for joint, name in enumerate(logs[0].joint_names):
        known = [len(each) > joint and (lag := each[joint]) is not None and lag.identified for each in lags]
        if any(known):
            shown[f"{LAG_OF}{name}"] = np.array(known, np.float64)
    for what, sizes in _ranges(logs).items():
        for name, size in zip(logs[0].joint_names, sizes.T, strict=True):
            if size.max() > 0.0:
                shown[f"the {what} of {name}"] = size / size.max()
    # A free body has no joints, and one throw shows as much as another.
    return shown or {"motion": np.ones(len(logs))}


def _ranges(logs: Sequence[RobotLog]) -> dict[str, Array]:
    """Return the size of each joint's motion, speed and effort in each recording, shape (L, J) each."""
    ranges = {
        "range": np.stack([np.ptp(log.joint_pos, axis=0) for log in logs]),
        "speed": np.stack([_speed(log) for log in logs]),
    }
    efforts = [np.quantile(np.abs(log.joint_effort), TOP, axis=0) for log in logs if log.joint_effort is not None]
    if len(efforts) == len(logs):
        ranges["effort"] = np.stack(efforts)
    return ranges


def _speed(log: RobotLog) -> Array:
    # Over some samples, as noise of the positions would make a speed of its own.
    span = max(1, round(SPEED_S / float(np.median(np.diff(log.time)))))
    if len(log.time) <= span:
        return np.zeros(len(log.joint_names))
    moved = (log.joint_pos[span:] - log.joint_pos[:-span]) / (log.time[span:] - log.time[:-span])[:, None]
    return np.asarray(np.quantile(np.abs(moved), TOP, axis=0), np.float64)


def untested(train: Sequence[RobotLog], held_out: Sequence[RobotLog]) -> tuple[str, ...]:
    """Return what fitted recordings show and no held-out one does, ascending; nothing without held-out recordings."""
    if not train or not held_out:
        return ()
    found: list[str] = []
    for name, shares in evidence((*train, *held_out)).items():
        fitted, tested = shares[: len(train)].max(), shares[len(train) :].max()
        if fitted >= SHOWN > tested:
            found.append(name)
    return tuple(sorted(found))
