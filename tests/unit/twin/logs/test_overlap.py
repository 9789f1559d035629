"""Recordings with the same samples are found whatever their file is called, and independent ones are not."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.real_recordings import of_double_pendulum

from physai.sdk.contract.robot import RobotSpec
from physai.sim.robots import load_robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.logs import LogError, RobotLog, read_logs
from physai.twin.logs.comparison.overlap import overlapping

Array = NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)


def recorded(
    seed: int, *, count: int = 1500, noise: float = 1e-3, resolution: float = 0.0, joints: int = 2
) -> RobotLog:
    """Always the same motion; the noise, or what rounds it, differs by seed."""
    time = 0.005 * np.arange(count, dtype=np.float64)
    position = np.stack([np.sin((2.0 + j) * time) for j in range(joints)], axis=1)
    position += noise * np.random.default_rng(seed).normal(size=position.shape)
    if resolution:
        position = resolution * np.round(position / resolution)
    names = tuple(f"j{j}" for j in range(joints))
    zero = np.zeros_like(position)
    return RobotLog(f"log{seed}", names, time, position, None, zero, zero, "joint_effort", f"{seed}.csv", "0" * 64)


def part(log: RobotLog, rows: slice) -> RobotLog:
    time = log.time[rows] - log.time[rows][0]
    return replace(
        log,
        time=time,
        joint_pos=log.joint_pos[rows],
        joint_effort=None if log.joint_effort is None else log.joint_effort[rows],
        command=log.command[rows],
    )


@given(SEEDS, st.integers(0, 1100), st.integers(400, 1500))
@settings(deadline=None)
def test_every_part_is_found(seed: int, start: int, length: int) -> None:
    """It shares all of its samples with the whole, wherever it begins; another recording of the motion shares none."""
    log, other = recorded(seed), recorded(seed + 1)
    found = list(overlapping([other, log, part(log, slice(start, start + length))]))
    assert found == [(1, 2, 1.0)]


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_half_a_recording_in_another(seed: int) -> None:
    log = recorded(seed)
    ((one, other, share),) = overlapping([part(log, slice(0, 1000)), part(log, slice(500, 1500))])
    assert (one, other) == (0, 1)
    assert share == pytest.approx(0.5, abs=0.25)


@pytest.mark.parametrize("digits", [4, 5, 6, 9])
def test_fewer_digits_are_the_same_recording(digits: int) -> None:
    """Text with few digits and single precision still agree in nearly every run of samples."""
    log = recorded(3)
    rounded = replace(log, joint_pos=np.asarray(np.round(log.joint_pos, digits).astype(np.float32), dtype=np.float64))
    ((_, _, share),) = overlapping([log, rounded])
    assert share > 0.5


@given(SEEDS, st.sampled_from([1.5e-3, 4e-4]))
@settings(deadline=None, max_examples=30)
def test_coarse_encoders_repeat_a_motion_without_being_copies(seed: int, resolution: float) -> None:
    """One joint with 4096 counts per turn and noise of a fifth of a count, the same motion twice."""
    logs = [recorded(seed + k, noise=0.2 * resolution, resolution=resolution, joints=1) for k in range(2)]
    assert list(overlapping(logs)) == []


def test_robots_at_rest_are_not_copies() -> None:
    log = recorded(0, noise=0.0)
    still = replace(log, joint_pos=np.zeros_like(log.joint_pos))
    assert list(overlapping([still, still])) == []


def test_many_copies_name_each_other() -> None:
    found = list(overlapping([recorded(5)] * 40))
    assert found == [(k, k + 1, 1.0) for k in range(39)]


def test_a_copy_in_another_format_is_refused(
    write: Callable[..., Path], motion: dict[str, Array], arm: RobotSpec
) -> None:
    """Renamed, compressed and with fewer digits, so that no byte is the same."""
    random = np.random.default_rng(0)
    noisy = {**motion, **{name: motion[name] + 1e-4 * random.normal(size=1000) for name in ("q1", "q2")}}
    one = write(noisy)
    fewer = write({name: np.round(values, 6) for name, values in noisy.items()}, name="fewer.csv")
    other = fewer.with_name("monday.csv.gz")
    other.write_bytes(gzip.compress(fewer.read_bytes()))
    with pytest.raises(LogError, match=r"monday\.csv\.gz: \d+% of its samples are those of .*log\.csv; give each once"):
        read_logs([one, other], arm)


def test_part_of_a_fitted_recording_is_not_held_out() -> None:
    robot = load_robot("cartpole")
    other, log = (replace(recorded(seed), joint_names=robot.spec.joint_names) for seed in (1, 2))
    with pytest.raises(LogError, match="in common; a held-out recording must not be fitted"):
        fit_twin(robot, [other, log], [replace(part(log, slice(0, 500)), sha256="1" * 64)])


def test_real_recordings_are_not_copies_of_each_other(recordings: Path) -> None:
    """Ten attempts of two controllers and five recordings of a pendulum, and a servo's nine of the same motions."""
    for name, files in (
        ("double_pendulum", of_double_pendulum(recordings)),
        ("xl330_pendulum", sorted(recordings.glob("bam_xl330/raw/*.json.gz"))),
    ):
        assert len(files) >= 8
        logs = read_logs(files, load_robot(name).spec)
        assert list(overlapping(logs)) == []
