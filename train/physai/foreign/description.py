"""Everything that a policy from elsewhere has to state before it can run, filled in by a reader and the user.

Vectors of joints are in the order of `joints`, which is the order of the network's outputs.
"""

import math
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from physai.sdk.contract.robot import MAX_JOINTS, Finite, Frozen, Name, NonNegative, Positive
from physai.sdk.contract.terms import GaitClock

COMMAND = "velocity_command"
"""Command of the task `velocity`: forwards [m/s], to the left [m/s], turn to the left [rad/s], in the base frame."""

Joints = Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)]
PerJoint = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=MAX_JOINTS)]
Three = tuple[Finite, Finite, Finite]
_ACTIVATIONS = "celu|elu|gelu|leaky_relu|mish|relu|selu|sigmoid|silu|softplus|softsign|tanh"
Activation = Annotated[str, Field(pattern=f"^({_ACTIVATIONS})$")]


class TermDescription(Frozen):
    """One block of the observation."""

    of: Literal[
        "ang_vel",
        "gravity",
        "command",
        "joint_pos",
        "joint_vel",
        "last_action",
        "clock",
        "constant",
        "motion",
        "motion_orientation",
        "orientation",
        "roll_pitch_yaw",
        "base_lin_vel",
    ]
    """`ang_vel`: of the base in its own frame [rad/s]; `gravity`: its direction in the base's frame; `command`: see
    `COMMAND`; `joint_pos`: relative to the default pose [rad]; `joint_vel` [rad/s]; `last_action`: the network's last
    output; `clock` and `constant`: see the contract; `motion`: positions and then velocities of the joints in the
    motion that the policy follows; `motion_orientation`: rotation from the robot's body to the motion's, first two
    columns of its matrix by rows, both relative to their heading at the start; `orientation`: of the base in the world,
    a quaternion wxyz; `roll_pitch_yaw`: the same as angles about the fixed axes x, y and z, in this order [rad].
    `base_lin_vel`, which no robot measures, is refused by name."""
    joints: Joints | None = None
    """Joints in this order; None for those of the policy."""
    elements: Annotated[tuple[int, ...], Field(min_length=1, max_length=256)] | None = None
    scale: Finite = 1.0
    offset: Finite = 0.0
    clip: Positive | None = None
    history: Annotated[int, Field(ge=1, le=64)] = 1
    clock: GaitClock | None = None
    values: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=256)] | None = None


class MotionDescription(Frozen):
    """A motion that the policy follows, which its network looks up by the number of the period."""

    index: Annotated[str, Field(min_length=1, max_length=256)] = "time_step"
    """Input of the network with the number of the period, from 0."""
    joint_pos: Annotated[str, Field(min_length=1, max_length=256)] = "joint_pos"
    """Output with the positions of the joints in the order of `joints` [rad]."""
    joint_vel: Annotated[str, Field(min_length=1, max_length=256)] = "joint_vel"
    """Output with their velocities [rad/s]."""
    position: Annotated[str, Field(min_length=1, max_length=256)]
    """Output with the position of the body in the world [m]."""
    orientation: Annotated[str, Field(min_length=1, max_length=256)]
    """Output with the orientation of the body in the world, a quaternion."""
    quaternion: Literal["wxyz", "xyzw"]
    body: Name
    """Name of the body."""
    lag: Annotated[int, Field(ge=0, le=8)]
    """Periods by which the observed motion is behind the number of the period; the first observation is that of 0."""


class NetworkInput(Frozen):
    """Part of the input of one of several networks: terms of the observation, or the output of an earlier network."""

    network: Annotated[int, Field(ge=0, le=15)] | None = None
    """Index of an earlier network, all of whose output it is; None for terms."""
    terms: Annotated[tuple[Annotated[int, Field(ge=0, le=63)], ...], Field(min_length=1, max_length=64)] | None = None
    """Indices of terms in the observation, in this order."""
    samples: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of samples, the newest ones, of each term; None for its whole history."""
    layout: Literal["term", "time"] = "term"
    """Order of the samples: all of a term, then the next term; or all terms of a sample, then the next sample."""
    newest: Literal["last", "first"] = "last"
    """Place of the newest sample."""


class NetworkDescription(Frozen):
    """One of several networks that run in order, the last of which returns the actions."""

    file: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the ONNX or TorchScript file, relative to the last network's folder."""
    reads: Annotated[tuple[NetworkInput, ...], Field(min_length=1, max_length=16)]
    """Parts of its input, one after the other."""


class HeldJoint(Frozen):
    """A joint that the policy does not command, held by its servo."""

    position: Finite
    """Position [rad]."""
    stiffness: NonNegative
    """Position gain [N·m/rad]."""
    damping: NonNegative
    """Velocity gain [N·m·s/rad]."""


class PolicyDescription(Frozen):
    """A policy from elsewhere."""

    format_version: Literal[1] = 1
    joints: Joints
    default_pos: PerJoint
    """Pose to which positions and actions are relative [rad]."""
    stiffness: PerJoint
    """Position gains of the motors [N·m/rad]."""
    damping: PerJoint
    """Velocity gains of the motors [N·m·s/rad]."""
    action_scale: Finite | PerJoint
    """Target = default_pos + action_scale · output [rad]."""
    control_dt: Annotated[float, Field(ge=1e-3, le=0.5)]
    """Period of the policy [s]."""
    observation: Annotated[tuple[TermDescription, ...], Field(min_length=1, max_length=64)]
    command: tuple[Three, Three] | None = None
    """Least and greatest command that the policy was trained for: forwards, to the left [m/s], turn [rad/s]. None for
    one that follows a motion."""
    motion: MotionDescription | None = None
    """The motion that the policy follows; None for one that follows a command."""
    output_limit: Positive | None = None
    """Bound on the magnitude of the network's outputs; None for none."""
    target_lower: PerJoint | None = None
    """Least targets that the program sends [rad]; None for no bounds but the robot's ranges, which hold as well."""
    target_upper: PerJoint | None = None
    """Greatest targets that the program sends [rad]."""
    layout: Literal["term", "time"] = "term"
    newest: Literal["last", "first"] = "last"
    first_fill: Literal["repeat", "zero"] = "repeat"
    effort: PerJoint | None = None
    """Effort limits [N·m]; None for the robot's."""
    armature: PerJoint | None = None
    """Inertia of the rotors at the joints [kg·m²]; None for the robot's."""
    velocity_limit: PerJoint | None = None
    """Speed limits of the joints [rad/s]; None for the robot's."""
    networks: Annotated[tuple[NetworkDescription, ...], Field(min_length=1, max_length=16)] | None = None
    """Networks that run in order; None for one that reads the whole observation. With them, `layout` and `newest` of
    the observation are those of their inputs."""
    held: dict[Name, HeldJoint] | None = None
    """Joints that the policy does not command."""
    activation: Activation | None = None
    """Function between the layers of a network that is given as weights alone; None for a file with a graph."""
    start_lower: PerJoint | None = None
    """Least positions at which the policy may take over [rad]. None, like the next three, for the importer's: the pose
    in which it begins, and what the twin's episodes begin with around it."""
    start_upper: PerJoint | None = None
    """Greatest positions at which it may take over [rad]."""
    start_speed: Positive | None = None
    """Greatest speed of each joint then [rad/s]."""
    start_tilt: Annotated[float | None, Field(gt=0.0, le=3.2)] = None
    """Greatest tilt of the base then [rad]."""
    start_ramp_s: Annotated[float | None, Field(ge=0.0, le=10.0)] = None
    """Time in which the targets turn from the positions at the start into the policy's [s]; None for at once. A
    program that moves the robot to its default pose before the policy runs has none."""
    command_slew: tuple[Positive, Positive, Positive] | None = None
    """Greatest change per second of the command that the network sees [m/s², m/s², rad/s²]; None for none."""
    command_gate: Positive | None = None
    """Norm of the command below which the network sees zeros; None for none."""
    squash: Literal["none", "tanh", "clip"] | None = None
    """Bound that its program sets to the outputs of such a network: none, tanh, or clip to ±1, or to the range of its
    action space where the file states one."""
    licence: Annotated[str, Field(max_length=200)] = ""
    """Licence of the weights."""


QUESTIONS: dict[str, str] = {
    "joints": "names of the joints in the order of the network's outputs; a graph does not show one",
    "default_pos": "pose to which positions and actions are relative [rad]",
    "stiffness": "position gains of the motors [N·m/rad]",
    "damping": "velocity gains of the motors [N·m·s/rad]",
    "action_scale": "target = default_pos + action_scale · output [rad]",
    "control_dt": "period of the policy [s]",
    "observation": "terms of the observation in their order; write them in a physai.yaml",
    "command": "least and greatest command it was trained for: [[forwards, left, turn], [forwards, left, turn]]",
    "activation": "function between the layers, such as elu, relu or tanh, which weights do not show",
    "squash": "bound that its program sets to the outputs: none, tanh, or clip to ±1",
}
"""What has to be stated, in words."""
WEIGHTS_QUESTIONS = ("activation", "squash")
"""Those of networks that are given as weights alone."""
GENERAL_QUESTIONS = tuple(name for name in QUESTIONS if name not in WEIGHTS_QUESTIONS)
"""Those of every policy."""

MAX_DEPTH = 8
GREATEST = 1e9
"""Greatest magnitude of a number."""
VECTORS = (
    "default_pos",
    "stiffness",
    "damping",
    "effort",
    "armature",
    "velocity_limit",
    "target_lower",
    "target_upper",
    "start_lower",
    "start_upper",
)
SPREAD_RAD = 0.1
"""Greatest difference of each joint from the pose in which a policy begins, unless a file states more: as far as
quadrupeds begin from home in the twin, and wide enough for joints that sag under the robot's weight."""
OURS = (
    "start_lower",
    "start_upper",
    "start_speed",
    "start_tilt",
    "start_ramp_s",
    "command_slew",
    "command_gate",
)
"""Fields that are rules of the program and no properties of the network, so that the user may set others."""


def lengths(values: dict[str, Any]) -> list[str]:
    """Return the contradictions between the number of joints and the vectors that have one number for each."""
    joints = _sequence(values.get("joints"))
    if joints is None:
        return []
    if len(joints) > MAX_JOINTS:
        return [f"joints has {len(joints)} names, a robot has at most {MAX_JOINTS} joints"]
    found = [f"joints has {name} twice" for name in sorted({str(one) for one in joints if joints.count(one) > 1})]
    held = values.get("held")
    both = [str(name) for name in joints if isinstance(held, dict) and name in held]
    found += [f"held has {name}, which the policy commands" for name in both]
    scales = _sequence(values.get("action_scale")) or [values.get("action_scale", 1.0)]
    least = min((one for one in scales if isinstance(one, int | float)), default=1.0)
    if not least > 0.0:
        found.append(f"action_scale has {least:g}, scales are above 0")
    for name in (*VECTORS, "action_scale"):
        vector = _sequence(values.get(name))
        if vector is not None and len(vector) != len(joints):
            found.append(f"{name} has {len(vector)} numbers, joints has {len(joints)} names")
    return found


def unusable(value: Any, depth: int = 0) -> str:
    """Return what in a value is no finite number, text or truth value of sane size; empty if there is nothing."""
    if depth > MAX_DEPTH:
        return f"more than {MAX_DEPTH} brackets in each other"
    if value is None or isinstance(value, bool | str):
        return ""
    if isinstance(value, int | float):
        return (
            ""
            if math.isfinite(value) and abs(value) <= GREATEST
            else f"{value:.6g}"
            if value != value
            else "a number too large"
        )
    if isinstance(value, dict):
        keys = cast("dict[Any, Any]", value)
        if not all(isinstance(key, str) for key in keys):
            return "a key that is no text"
        return next((text for one in keys.values() if (text := unusable(one, depth + 1))), "")
    inner = _sequence(value)
    if inner is None:
        return f"a {type(value).__name__}"
    return next((text for one in inner if (text := unusable(one, depth + 1))), "")


def _sequence(value: Any) -> list[Any] | None:
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else None
