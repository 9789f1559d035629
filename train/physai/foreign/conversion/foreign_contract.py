"""The contract of a policy from elsewhere: its description together with its robot."""

import math
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from physai.foreign.conversion.fitted_robot import FittedRobot
from physai.foreign.conversion.tracking.front import ATTITUDE, PATH, path_joints
from physai.foreign.description import COMMAND, PolicyDescription, TermDescription
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.contract.io import contract_error
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.contract.terms import (
    ActionSpec,
    ActionTerm,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
)
from physai.sim.robots.importing.timestep import stable_timestep
from physai.sim.robots.loader import Robot
from physai.sim.tasks.common import envelope, timing
from physai.sim.tasks.sensor_ranges import SPEED_FACTOR, plausible_ranges
from physai.sim.tasks.walking.velocity import FROZEN_SAMPLES, MISMATCH_RAD

STEP = 0.002
"""Greatest physics step [s], that of the programs which run such policies; with 4 ms, a biped with point feet walks
16 % further."""
UNLIMITED = 1e3
"""Bound of a command of a joint without limits, which it never reaches [rad]."""
OBSERVATION_AGE = 3.0
"""Greatest age of an observation, in control periods."""

MOTION = ("motion", "motion_orientation")
"""Terms that the graph looks up and no sensor measures."""

_KINDS: dict[str, dict[str, str]] = {
    "ang_vel": {"kind": "sensor", "source": "imu_ang_vel_b"},
    "gravity": {"kind": "projected_gravity"},
    "orientation": {"kind": "sensor", "source": "imu_quat"},
    "roll_pitch_yaw": {"kind": "function", "source": "imu_quat"},
    "command": {"kind": "command", "source": COMMAND},
    "joint_pos": {"kind": "joint_pos_rel"},
    "joint_vel": {"kind": "sensor", "source": "joint_vel"},
    "last_action": {"kind": "previous_action"},
    "clock": {"kind": "clock"},
    "constant": {"kind": "constant"},
}


def foreign_contract(described: PolicyDescription, fitted: FittedRobot, *, task: str) -> PolicyContract:
    """Make the contract of a policy.

    Args:
        described: the policy.
        fitted: robot with the policy's gains and pose.
        task: name of the task that the policy does.

    Raises:
        ForeignPolicyError: the policy reads what no robot measures, or parts of it do not fit together.
    """
    robot, spec = fitted.robot, fitted.robot.spec
    speeds = [SPEED_FACTOR * speed for speed in fitted.speeds]
    try:
        return PolicyContract(
            format_version=3,
            task=task,
            robot=spec,
            observation=ObservationSpec(
                terms=tuple(_terms(described, robot)),
                layout=described.layout,
                newest=described.newest,
                first_fill=described.first_fill,
            ),
            action=ActionSpec(terms=(_action(described, spec),)),
            command=_command(described),
            timing=timing(*_steps(described.control_dt, robot), max_observation_age=OBSERVATION_AGE),
            safety=envelope(
                spec,
                parity_tolerance=0.01,
                velocity_mismatch=[MISMATCH_RAD] * len(spec.joints),
                frozen_samples=FROZEN_SAMPLES,
                sensor_ranges=plausible_ranges(spec, speeds=speeds if all(speeds) else ()),
            ),
        )
    except ValidationError as error:
        raise ForeignPolicyError(str(contract_error(error, source="the policy's contract"))) from None


def _command(described: PolicyDescription) -> CommandSpec:
    if described.command is None:
        return CommandSpec()
    lower, upper = described.command
    field = CommandField(
        name=COMMAND,
        size=3,
        unit="m/s, m/s, rad/s",
        frame="b",
        lower=lower,
        upper=upper,
        slew=described.command_slew,
        gate=described.command_gate,
    )
    return CommandSpec(fields=(field,))


def _terms(described: PolicyDescription, robot: Robot) -> Iterator[ObservationTerm]:
    """Terms that are measured; of a policy that follows a motion, then those that its body is turned by."""
    seen: dict[str, int] = {}
    motion = described.motion
    for term in described.observation:
        if term.of not in MOTION:
            yield _term(term, described, seen)
        elif motion is None:
            raise ForeignPolicyError(f"the observation has the term {term.of}, and no `motion` is stated")
        elif term.history > 1 or term.elements is not None or term.clip is not None:
            raise ForeignPolicyError(f"the term {term.of} has a history, elements or a clip, which are not supported")
    if motion is not None:
        yield ObservationTerm(name=ATTITUDE, kind="sensor", source="imu_quat")
        if joints := path_joints(robot, motion.body):
            yield ObservationTerm(name=PATH, kind="sensor", source="joint_pos", joints=joints)


def _term(term: TermDescription, described: PolicyDescription, seen: dict[str, int]) -> ObservationTerm:
    if term.of == "base_lin_vel":
        raise ForeignPolicyError(
            "the policy reads the linear velocity of the base (base_lin_vel), which no sensor of a robot measures; it "
            "needs an estimator, or to be trained without"
        )
    seen[term.of] = seen.get(term.of, 0) + 1
    name = term.of if seen[term.of] == 1 else f"{term.of}_{seen[term.of]}"
    fields: dict[str, Any] = {**_KINDS[term.of], "elements": term.elements}
    if term.of in ("joint_pos", "joint_vel"):
        fields["joints"] = term.joints or described.joints
    elif term.joints is not None:
        raise ForeignPolicyError(f"observation term {name} has joints, which it does not consist of")
    if term.of == "clock" and term.clock is not None and term.clock.gate:
        fields["source"] = COMMAND
    if term.of == "roll_pitch_yaw":
        fields |= _angles(term)
    shared = {label: getattr(term, label) for label in ("scale", "offset", "clip", "history", "clock", "values")}
    try:
        return ObservationTerm(name=name, **fields, **shared)
    except ValidationError as error:
        raise ForeignPolicyError(f"observation term {name}: {error.errors()[0]['msg']}") from None


def _angles(term: TermDescription) -> dict[str, Any]:
    """Return the function of a term of angles: what a function returns cannot be selected from."""
    functions: dict[tuple[int, ...], str] = {(0, 1, 2): "roll_pitch_yaw", (0, 1): "roll_pitch"}
    function = functions.get(term.elements or (0, 1, 2))
    if function is None:
        raise ForeignPolicyError(f"a term roll_pitch_yaw has the elements {term.elements}, not all or (0, 1)")
    return {"function": function, "size": function.count("_") + 1, "elements": None}


def _action(described: PolicyDescription, spec: RobotSpec) -> ActionTerm:
    joints = {joint.name: joint for joint in spec.joints}
    count, scale = len(described.joints), described.action_scale
    scales = scale if isinstance(scale, tuple) else (scale,) * count
    ranges = [(joints[name].position_lower, joints[name].position_upper) for name in described.joints]
    least = described.target_lower or (-UNLIMITED,) * count
    most = described.target_upper or (UNLIMITED,) * count
    return ActionTerm(
        kind="joint_pos",
        joints=described.joints,
        scale=scales,
        offset=described.default_pos,
        lower=tuple(a if low is None else max(a, low) for a, (low, _) in zip(least, ranges, strict=True)),
        upper=tuple(b if high is None else min(b, high) for b, (_, high) in zip(most, ranges, strict=True)),
        output_limit=described.output_limit,
    )


def _steps(control_dt: float, robot: Robot) -> tuple[float, int]:
    """Physics step [s], and how many of them make a control period."""
    count = math.ceil(control_dt / min(STEP, stable_timestep(robot.model)) - 1e-9)
    return control_dt / count, count
