"""Plausible values of sensors, worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from physai.sdk.contract.gaps import contract_lacks
from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.sim.robots import load_robot
from physai.sim.tasks.arms.reach import reach_task
from physai.sim.tasks.arms.reach_targets import box
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.sensor_ranges import plausible_ranges


def robot(*sensors: SensorField, **limits: Any) -> RobotSpec:
    """A joint with the given limits, and one that turns freely and has no motor."""
    joints = (
        JointSpec(name="a", kind="revolute", **({"effort_limit": 10.0} | limits)),
        JointSpec(name="b", kind="continuous", effort_limit=0.0),
    )
    return RobotSpec(name="arm", base="fixed", joints=joints, sensors=sensors)


POS = SensorField(name="joint_pos", size=2, unit="rad")
VEL = SensorField(name="joint_vel", size=2, unit="rad/s")
EFFORT = SensorField(name="joint_effort", size=2, unit="N·m")
QUAT = SensorField(name="imu_quat", size=4, unit="")
TEMPERATURE = SensorField(name="temperature", size=2, unit="K")


def test_ranges_follow_from_the_limits() -> None:
    """A range of 4 rad and a quarter of it on both sides; five times 3 rad/s and 10 N·m."""
    made = robot(POS, VEL, EFFORT, QUAT, TEMPERATURE, position_lower=-1.0, position_upper=3.0, velocity_limit=3.0)
    ranges = plausible_ranges(made)
    assert ranges is not None
    assert {one.name: (one.lower, one.upper) for one in ranges} == {
        "joint_pos": ((-2.0, None), (4.0, None)),
        "joint_vel": ((-15.0, None), (15.0, None)),
        "joint_effort": ((-50.0, None), (50.0, None)),
        "imu_quat": ((-1.1,) * 4, (1.1,) * 4),
    }


def test_a_robot_without_limits_has_no_ranges() -> None:
    assert plausible_ranges(robot(POS, VEL, TEMPERATURE)) is None


def test_speeds_can_be_given() -> None:
    ranges = plausible_ranges(robot(POS, VEL), speeds=(20.0, 60.0))
    assert ranges is not None
    assert [(one.name, one.upper) for one in ranges] == [("joint_vel", (20.0, 60.0))]


def test_a_joint_may_be_as_fast_as_its_limit() -> None:
    """A limit above what the energy permits: a sample at the limit is inside of the envelope, so it is plausible."""
    ranges = plausible_ranges(robot(VEL, velocity_limit=38.0), speeds=(20.0, 60.0))
    assert ranges is not None
    assert (ranges[0].lower, ranges[0].upper) == ((-38.0, -60.0), (38.0, 60.0))
    pendulum = load_task("swingup", robot="simple_pendulum").contract
    (limit,) = (joint.velocity_limit for joint in pendulum.safety.joints)
    speeds = {one.name: one.upper for one in pendulum.safety.sensor_ranges or ()}
    assert speeds["joint_vel"] == (limit,)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("ur10e-reach", ()),
        ("go2-velocity", ("no following_error_limit",)),
        ("cartpole-swingup", ("no velocity_limit",)),
        ("pendubot-swingup", ("Sensor joint_pos: no sensor_ranges",)),
        ("acrobot-swingup", ("Sensor joint_pos: no sensor_ranges",)),
    ],
)
def test_the_tasks_contracts_lack_what_they_say(name: str, lacks: tuple[str, ...]) -> None:
    """A leg does not follow its targets; cart and pole have no speed limit; a pendulum's turns are not bounded."""
    contract = load_task(name).contract
    assert contract.format_version == 2
    found = contract_lacks(contract)
    assert len(found) == len(lacks)
    assert all(text in sentence for text, sentence in zip(lacks, found, strict=True))


def test_an_arm_needs_three_periods_to_turn_round() -> None:
    contract = load_task("ur10e-reach").contract
    period, scales = contract.timing.control_dt, contract.action.terms[0].scale
    for envelope, scale in zip(contract.safety.joints, scales, strict=True):
        assert envelope.acceleration_limit is not None
        assert 20.0 < envelope.acceleration_limit < 40.0
        assert 3.0 < 2.0 * scale / (envelope.acceleration_limit * period**2) < 4.0


def test_a_legs_targets_may_turn_round_at_once() -> None:
    """Full effort on the rotor alone: 23.7 / 0.01 and 45.43 / 0.02 rad/s²."""
    contract = load_task("go2-velocity").contract
    period = contract.timing.control_dt
    for index, envelope in enumerate(contract.safety.joints):
        assert envelope.acceleration_limit is not None
        assert envelope.velocity_limit is not None
        assert envelope.acceleration_limit == (2271.5 if index % 3 == 2 else 2370.0)
        assert envelope.acceleration_limit * period**2 > envelope.velocity_limit * period


def test_an_arm_without_limits_has_a_contract_too() -> None:
    """Accelerations and mismatches from the speed that the task assumes, 2 rad/s; nothing from limits it lacks."""
    arm = load_robot("ur10e")
    joints = tuple(
        joint.model_copy(update={"position_lower": None, "position_upper": None, "velocity_limit": None})
        for joint in arm.spec.joints
    )
    arm = replace(arm, spec=arm.spec.model_copy(update={"joints": joints}))
    somewhere = (0.9, 0.2, 0.2)
    targets = box(centre=somewhere, half_size=(0.1, 0.1, 0.1), facing=somewhere, tilt=somewhere)
    contract = reach_task("any-reach", arm, targets=targets).contract
    for envelope in contract.safety.joints:
        assert envelope.acceleration_limit == 20.0
        assert envelope.velocity_mismatch_limit == 0.08
        assert envelope.velocity_limit is None
        # Four times the error at which a servo saturates: 4 · 330 N·m / 1320 N·m/rad, and the same at each joint.
        assert envelope.following_error_limit == 1.0
    assert [one.name for one in contract.safety.sensor_ranges or ()] == ["joint_effort"]
