"""Recordings of one motion are found through noise, sampling, cuts and shifts, and other motions are not."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.real_recordings import of_double_pendulum

from physai.sim.robots import load_robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.logs import LogError, RobotLog, read_logs
from physai.twin.logs.comparison.same_motion import same_motion

Array = NDArray[np.float64]
Disguise = Callable[[RobotLog], RobotLog]

SEEDS = st.integers(0, 2**32 - 1)
RATE_HZ, LENGTH_S = 500.0, 8.0


def recorded(seed: int, *, noise: float = 1e-4, length_s: float = LENGTH_S) -> RobotLog:
    """Two joints that follow sums of five sines, with sensor noise; equal seeds give equal motions and noise."""
    random = np.random.default_rng(seed)
    time = np.arange(0.0, length_s, 1.0 / RATE_HZ)
    rates, phases = random.uniform(1.0, 9.0, (2, 5)), random.uniform(0.0, 6.28, (2, 5))
    position = np.stack(
        [np.sin(np.outer(time, rate) + phase).sum(axis=1) for rate, phase in zip(rates, phases, strict=True)], axis=1
    )
    position = 0.3 * position + noise * random.normal(size=position.shape)
    zero = np.zeros_like(position)
    name = f"log{seed}"
    return RobotLog(name, ("j0", "j1"), time, position, None, zero, zero, "joint_effort", f"{name}.csv", f"{seed:064x}")


def recorded_at(position: Array) -> RobotLog:
    """Positions of two joints, without commands or efforts."""
    log = recorded(0)
    zero = np.zeros_like(position)
    return replace(log, time=np.arange(len(position)) / RATE_HZ, joint_pos=position, joint_effort=zero, command=zero)


def sampled(log: RobotLog, moments: Array) -> RobotLog:
    def there(values: Array | None) -> Array | None:
        if values is None:
            return None
        columns: list[Array] = [np.interp(moments, log.time, one) for one in values.T]
        return np.stack(columns, axis=1)

    values = {name: there(getattr(log, name)) for name in ("joint_pos", "joint_vel", "joint_effort", "command")}
    return replace(log, time=moments - moments[0], **values)


DISGUISES: dict[str, Disguise] = {
    "noise": lambda log: replace(
        log, joint_pos=log.joint_pos + 1e-4 * np.random.default_rng(9).normal(size=log.joint_pos.shape)
    ),
    "400 Hz": lambda log: sampled(log, np.arange(0.0, log.time[-1], 1.0 / 400.0)),
    "90 Hz": lambda log: sampled(log, np.arange(0.0, log.time[-1], 1.0 / 90.0)),
    "another zero": lambda log: replace(log, joint_pos=log.joint_pos + np.array([4e-3 / 3.0, 0.02])),
    "cut": lambda log: sampled(log, log.time[(log.time > 1.7) & (log.time < 5.1)]),
    "filtered": lambda log: replace(
        log, joint_pos=np.stack([np.convolve(one, np.full(9, 1.0 / 9.0), "same") for one in log.joint_pos.T], axis=1)
    ),
    "mirrored": lambda log: replace(log, joint_pos=-log.joint_pos),
}


@pytest.mark.parametrize("how", DISGUISES)
@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_a_copy_is_found_through_a_disguise(how: str, seed: int) -> None:
    log, other = recorded(seed), recorded(seed + 1)
    ((one, copy, share),) = same_motion([other, log, DISGUISES[how](log)])
    assert (one, copy) == (1, 2)
    assert share > 0.5


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_a_copy_is_found_through_all_disguises_together(seed: int) -> None:
    log = recorded(seed)
    copy = log
    for how in ("noise", "cut", "400 Hz", "another zero", "mirrored"):
        copy = DISGUISES[how](copy)
    assert [share > 0.9 for _, _, share in same_motion([log, copy])] == [True]


@given(SEEDS)
@settings(deadline=None, max_examples=15)
def test_other_motions_are_not_found(seed: int) -> None:
    assert list(same_motion([recorded(seed + number) for number in range(5)])) == []


def test_the_common_share_is_that_of_the_shorter_one() -> None:
    log = recorded(3, length_s=16.0)
    first, second = (sampled(log, log.time[part]) for part in (slice(0, 5000), slice(3000, 8000)))
    ((_, _, share),) = same_motion([first, second])
    assert share == pytest.approx(0.4, abs=0.05)


def test_long_recordings_that_cross_now_and_then_show_no_common_motion() -> None:
    """One joint, five minutes, a noise of a hundredth of its motion: 2 % of the samples agree by chance."""
    logs = [recorded(seed, noise=4e-3, length_s=300.0) for seed in range(3)]
    first = {name: slice(0, 1) for name in ("joint_pos", "joint_effort", "command")}
    one_joint = [
        replace(log, joint_names=("j0",), **{name: getattr(log, name)[:, part] for name, part in first.items()})
        for log in logs
    ]
    assert list(same_motion(one_joint)) == []


def test_a_short_common_start_is_no_common_motion() -> None:
    part = recorded(0).joint_pos[:1500]
    paths = [recorded(seed, length_s=16.0).joint_pos for seed in (1, 2)]
    logs = [recorded_at(np.vstack([part, path - path[0] + part[-1]])) for path in paths]
    assert list(same_motion(logs)) == []


def test_loads_and_poses_make_another_motion_and_noise_of_efforts_does_not() -> None:
    log = recorded(5)
    effort = np.sin(log.joint_pos)
    noise = 0.3 * np.random.default_rng(0).normal(size=effort.shape)
    bare, noisy, loaded = (
        replace(log, joint_effort=one, command=one) for one in (effort, effort + noise, 1.5 * effort)
    )
    assert [share > 0.9 for _, _, share in same_motion([bare, noisy])] == [True]
    assert list(same_motion([bare, loaded])) == []
    # Either alone may be what no replay uses.
    assert [share > 0.9 for _, _, share in same_motion([bare, replace(loaded, command=effort)])] == [True]


def test_a_copy_of_moves_with_stops_is_found() -> None:
    def moves(seed: int) -> RobotLog:
        goals = np.random.default_rng(seed).uniform(-1.0, 1.0, (8, 2))
        share = np.minimum(np.arange(1000) / 400.0, 1.0)[:, None]
        parts = [one + (0.5 - 0.5 * np.cos(np.pi * share)) * (two - one) for one, two in pairwise(goals)]
        path = np.vstack(parts)
        return recorded_at(path + 1e-4 * np.random.default_rng(seed).normal(size=path.shape))

    assert list(same_motion([moves(seed) for seed in range(4)])) == []
    assert [share > 0.9 for _, _, share in same_motion([moves(0), sampled(moves(0), moves(0).time[700:6000])])] == [
        True
    ]


def test_robots_at_rest_show_no_common_motion() -> None:
    log = recorded(0)
    still = replace(log, joint_pos=1e-4 * np.random.default_rng(1).normal(size=log.joint_pos.shape))
    assert list(same_motion([still, still])) == []
    assert list(same_motion([])) == []


def test_a_disguised_copy_is_not_held_out() -> None:
    robot = load_robot("cartpole")
    fitted, other, log = (replace(recorded(seed), joint_names=robot.spec.joint_names) for seed in (1, 2, 3))
    copy = replace(DISGUISES["400 Hz"](DISGUISES["noise"](fitted)), sha256="1" * 64, name="monday")
    with pytest.raises(LogError, match=r"log1 and monday have \d+% of the shorter one's motion in common; a held-out"):
        fit_twin(robot, [fitted, other], [log, copy])
    copy = replace(DISGUISES["mirrored"](log), sha256="1" * 64, name="monday")
    with pytest.raises(LogError, match=r"log3 and monday have \d+% of the shorter one's motion in common; hold out"):
        fit_twin(robot, [fitted, other], [log, copy])


def test_real_recordings_are_different_motions(recordings: Path) -> None:
    """Ten attempts of two controllers and six recordings of a pendulum, and a servo's eight of two motions."""
    for name, files in (
        ("double_pendulum", of_double_pendulum(recordings)),
        ("xl330_pendulum", sorted(recordings.glob("bam_xl330/raw/*.json.gz"))),
    ):
        logs = read_logs(files, load_robot(name).spec)
        assert len(logs) >= 8
        assert list(same_motion(logs)) == []
        for log in [log for log in logs if np.ptp(log.joint_pos) > 0.1][:5]:
            copy = DISGUISES["400 Hz"](DISGUISES["noise"](log))
            assert [share > 0.5 for _, _, share in same_motion([log, copy])] == [True]
