"""The double pendulum as it would be and what it recorded, its twin, and twins of it that are wrong."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tests.mutation.mutants import springs
from tests.mutation.mutants.bench import SETTLE, TASKS, Trial, write
from tests.mutation.mutants.edits import golden_of
from tests.mutation.mutants.twins import Recorder, credible_twin, recordings, rescored, with_tested_lag

from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.registry import load_task
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import SensorNoise, Timing
from physai.twin.parameters.parameters import DELAY

ROBOT = "double_pendulum"
HIDDEN = {
    "link1.mass": 0.54,
    "link1.com_z": -0.16,
    "link2.mass": 0.64,
    "link2.com_z": -0.245,
    "joint1.friction": 0.3,
    "joint1.armature": 0.0045,
    "joint2.friction": 0.12,
    "joint2.armature": 0.0035,
}
"""What the robot really is, about as far from the published figures as its real recordings say."""
LENGTHS = (0.2, 0.3)
"""Of the links [m]."""
PUBLISHED_INERTIA = (0.031887, 0.050870)
"""About the joint axes, where the published URDF takes it to be about the centres of mass [kg·m²]."""
LATE_S = 0.03
"""From a command to its effect, of the robot whose effort is not measured [s]."""


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """What is wrong with a twin."""

    factors: dict[str, float] = field(default_factory=dict[str, float])
    """Times the right value."""
    values: dict[str, float] = field(default_factory=dict[str, float])
    file: tuple[str, str] | None = None
    """Text in the robot's file, and what stands there instead."""
    measured_effort: bool = True
    """Whether the recordings that show it hold the effort."""


def rods() -> dict[str, float]:
    """Uniform rods that turn freely: centre in the middle, m·L²/12 about it."""
    found = {"joint1.friction": 0.0, "joint2.friction": 0.0}
    for link, length in zip(("link1", "link2"), LENGTHS, strict=True):
        found[f"{link}.com_z"] = -0.5 * length
        found |= {f"{link}.spread_{axis}": length / 24.0**0.5 for axis in "xyz"}
    return found


def literal_urdf() -> dict[str, float]:
    """Inertia about the joint axes taken to be about the centres of mass: m·r² counts twice."""
    found: dict[str, float] = {}
    for link, inertia in zip(("link1", "link2"), PUBLISHED_INERTIA, strict=True):
        spread = (0.5 * inertia / HIDDEN[f"{link}.mass"]) ** 0.5
        found |= {f"{link}.spread_{axis}": spread for axis in "xyz"}
    return found


def fitted(robot: Robot, values: dict[str, float]) -> Twin:
    """A twin with the given values, as a good fit would leave it: a posterior of two per cent."""
    twin = credible_twin(
        robot,
        {name: 0.0 if name == DELAY else 0.02 for name in values},
        values=values,
        noise=SensorNoise(joint_pos_std=(2e-4,) * 2, joint_vel_std=(0.05,) * 2),
        timing=Timing(command_lag_mean_s=0.006, command_lag_p99_s=0.007, period_median_s=0.01, period_p99_s=0.0102),
    )
    # A delay is part of replays from commands, which test it.
    return twin if DELAY in values else with_tested_lag(twin, robot)


def truth(measured_effort: bool) -> dict[str, float]:
    """The right values; the delay is one of them where the effort is not measured."""
    return HIDDEN if measured_effort else {**HIDDEN, DELAY: LATE_S}


@cache
def held_out(measured_effort: bool) -> tuple[RobotLog, ...]:
    """What the robot recorded, and no fit has seen."""
    robot = fitted(load_robot(ROBOT), truth(measured_effort))
    return recordings(robot, count=2, seed=7, recorder=Recorder(length_s=6.0, measured_effort=measured_effort))


def trial(folder: Path, wrong: Wrong, **options: float) -> Trial:
    """A policy that brings the pendulum to rest, to be judged in a wrong twin.

    Args:
        folder: where its files go.
        wrong: what is wrong with the twin, if anything.
        options: of `springs.spring` that differ from those of the honest policy.
    """
    robot = load_robot(ROBOT)
    path = None
    if wrong.file is not None:
        old, new = wrong.file
        text = robot.path.read_text()
        assert old in text
        path = folder / "double_pendulum.xml"
        path.write_text(text.replace(old, new))
        robot = load_robot(path)
    right = truth(wrong.measured_effort)
    values = right | {name: factor * right[name] for name, factor in wrong.factors.items()} | wrong.values
    data = springs.spring(load_task(TASKS["settle"], robot=None if path is None else str(path)), **SETTLE | options)
    return Trial(
        path=write(folder, data, golden_of(data, b"")),
        base="settle",
        robot=None if path is None else str(path),
        twin=rescored(fitted(robot, values), held_out(wrong.measured_effort)),
    )


def of_a_light_world(folder: Path) -> Trial:
    """A twin of the same robot where everything weighs 10 % less, and the robot as it is."""
    light = trial(folder, Wrong(file=('gravity="0 0 -9.81"', 'gravity="0 0 -8.829"')))
    return replace(light, robot=None)
