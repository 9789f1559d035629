"""Parts of a contract: observation, action and command terms, and timing.

Each part validates itself; `physai.sdk.contract.checks` checks their consistency.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.contract.robot import (
    JOINT_SENSORS,
    MAX_JOINTS,
    Finite,
    Frozen,
    Label,
    Name,
    Positive,
    RobotSpec,
    require_unique,
)
from physai.sdk.contract.safety_envelope import SafetyEnvelope

FORMAT_VERSION = 2
"""Format of new contracts; increased when an older reader could misinterpret a newer contract. Format 1, which lacks
the optional fields marked in `safety_envelope`, is still supported."""

OLDEST_FORMAT_VERSION = 1
"""Oldest supported format."""


class ObservationTerm(Frozen):
    """One block of the observation vector: scale · (clip(x) - offset), newest sample last in a history."""

    name: Name
    kind: Literal[
        "sensor",
        "joint_pos_rel",
        "sin_cos",
        "projected_gravity",
        "command",
        "pose_error",
        "position_error",
        "previous_action",
        "last_target",
        "function",
    ]
    """`sensor`: a sensor field; `joint_pos_rel`: joint_pos - default_pos; `sin_cos`: sine and cosine of joint_pos;
    `projected_gravity`: the gravity direction in the base frame from imu_quat; `command`: a command field;
    `pose_error`: target minus forward kinematics in the base frame, position [m], then rotation axis times
    2 sin(angle / 2); `position_error`: a sensor or command field, the position of something in the base frame [m],
    minus the position by forward kinematics; `previous_action`: the network's last output; `last_target`: the last
    joint commands, positions less the measured position; `function`: a function of a sensor or command field, which
    the package that trains the policy contributes and the exported graph contains (`physai.observation_functions`)."""
    source: Name | None = None
    """Sensor, command or (for `pose_error`) command field it reads; None where the kind says it all. A
    `position_error` and a `function` read either."""
    function: Annotated[Name | None, Field(exclude_if=lambda function: function is None)] = None
    """Name of the function; left out of the document for other kinds."""
    size: Annotated[int | None, Field(ge=1, le=4096, exclude_if=lambda size: size is None)] = None
    """Number of elements that the function returns; left out of the document for other kinds."""
    chain: Name | None = None
    """Kinematic chain of a `pose_error` or `position_error`."""
    joints: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)] | None = None
    """Joints it selects of a joint vector; None for all."""
    scale: Finite = 1.0
    offset: Finite = 0.0
    clip: Positive | None = None
    """Bound on the magnitude of the raw value, in its unit."""
    history: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of control periods the block spans."""

    @model_validator(mode="after")
    def _joints_are_unique(self) -> Self:
        require_unique(f"observation term {self.name}: joint", self.joints or ())
        return self


class ObservationSpec(Frozen):
    """The observation vector, term after term."""

    terms: Annotated[tuple[ObservationTerm, ...], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _terms_are_unique(self) -> Self:
        require_unique("observation term", (t.name for t in self.terms))
        return self


class ActionTerm(Frozen):
    """Conversion of network outputs a into joint commands u of one kind.

    Absolute kinds: u = clip(offset + scale · a, lower, upper).
    Incremental kinds: u = clip(u_previous + scale · a, lower, upper), where u_previous starts at the measured
    position (`joint_pos_incremental`) or at 0 (`joint_effort_incremental`). The network output is bounded to
    [-1, 1] by the graph for every kind.
    """

    kind: Literal["joint_pos", "joint_pos_incremental", "joint_effort", "joint_effort_incremental"]
    joints: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_JOINTS)]
    scale: tuple[Positive, ...]
    """Joint units per unit of network output, one per joint."""
    offset: tuple[Finite, ...]
    """Command at network output 0, one per joint; not used by incremental kinds."""
    lower: tuple[Finite, ...]
    """Lower bound of the command, one per joint [rad, m, N·m or N]."""
    upper: tuple[Finite, ...]
    """Upper bound of the command, one per joint [rad, m, N·m or N]."""

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        require_unique("action joint", self.joints)
        for label in ("scale", "offset", "lower", "upper"):
            size = len(getattr(self, label))
            if size != len(self.joints):
                raise ValueError(f"action term {self.kind}: {label} has {size} values for {len(self.joints)} joints")
        for name, low, high in zip(self.joints, self.lower, self.upper, strict=True):
            if not low < high:
                raise ValueError(f"action joint {name}: lower {low} is not below upper {high}")
        return self

    @property
    def target_name(self) -> str:
        """Name of the graph output this term writes."""
        return "joint_pos_target" if self.kind.startswith("joint_pos") else "joint_effort_target"


class ActionSpec(Frozen):
    """The joint commands, term after term; their sizes add up to the network's outputs."""

    terms: Annotated[tuple[ActionTerm, ...], Field(min_length=1, max_length=2)]

    @model_validator(mode="after")
    def _joints_are_commanded_once(self) -> Self:
        require_unique("commanded joint", (j for t in self.terms for j in t.joints))
        require_unique("action output", (t.target_name for t in self.terms))
        return self

    @property
    def size(self) -> int:
        """Number of network outputs."""
        return sum(len(term.joints) for term in self.terms)


class CommandField(Frozen):
    """One vector an operator or planner sets, in SI units."""

    name: Name
    size: Annotated[int, Field(ge=1, le=256)]
    unit: Label
    """Unit of every element, empty for none."""
    frame: Label = ""
    """Frame the vector is expressed in, empty where it has none."""
    lower: tuple[Finite, ...]
    """Smallest value the policy was trained for, one per element."""
    upper: tuple[Finite, ...]
    """Greatest value the policy was trained for, one per element."""

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        for label in ("lower", "upper"):
            size = len(getattr(self, label))
            if size != self.size:
                raise ValueError(f"command {self.name}: {label} has {size} values, size is {self.size}")
        for low, high in zip(self.lower, self.upper, strict=True):
            if not low <= high:
                raise ValueError(f"command {self.name}: lower {low} is above upper {high}")
        return self


class CommandSpec(Frozen):
    """Commands to the policy, in addition to its sensors."""

    fields: Annotated[tuple[CommandField, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _fields_are_unique(self) -> Self:
        require_unique("command", (f.name for f in self.fields))
        return self


class TimingSpec(Frozen):
    """When things happen, in seconds."""

    control_dt: Annotated[float, Field(ge=1e-4, le=1.0)]
    """Period of the policy [s]."""
    physics_dt: Annotated[float, Field(ge=1e-5, le=0.1)]
    """Step of the twin's integrator [s]."""
    decimation: Annotated[int, Field(ge=1, le=1000)]
    """Physics steps per control period."""
    deadline_s: Annotated[float, Field(gt=0.0, le=1.0)]
    """Greatest time from a sensor sample's arrival to its command [s]."""
    max_observation_age_s: Annotated[float, Field(gt=0.0, le=10.0)]
    """Greatest age of a sensor sample a command may rest on [s]."""

    @model_validator(mode="after")
    def _periods_agree(self) -> Self:
        period = self.physics_dt * self.decimation
        if not abs(period - self.control_dt) <= 1e-9:
            raise ValueError(f"control_dt {self.control_dt} s differs from physics_dt · decimation = {period} s")
        if not self.deadline_s <= self.control_dt:
            raise ValueError(f"deadline_s {self.deadline_s} is longer than control_dt {self.control_dt}")
        return self


class ContractTerms(Frozen):
    """All parts of a contract, before they are compared with each other."""

    format_version: Literal[1, 2] = FORMAT_VERSION
    task: Name
    robot: RobotSpec
    observation: ObservationSpec
    action: ActionSpec
    command: CommandSpec
    timing: TimingSpec
    safety: SafetyEnvelope

    def term_width(self, term: ObservationTerm) -> int:
        """Number of elements of one sample of an observation term, before history."""
        if term.size is not None:
            return term.size
        if term.kind in ("previous_action", "last_target"):
            return self.action.size
        if term.kind in ("projected_gravity", "position_error"):
            return 3
        if term.kind == "pose_error":
            return 6
        if term.kind == "command":
            return next(field.size for field in self.command.fields if field.name == term.source)
        if term.kind == "sensor" and term.source not in JOINT_SENSORS:
            return next(sensor.size for sensor in self.robot.sensors if sensor.name == term.source)
        count = len(self.robot.joints if term.joints is None else term.joints)
        return 2 * count if term.kind == "sin_cos" else count

    @property
    def observation_slices(self) -> dict[str, slice]:
        """Slice of each term in the observation vector, by name, in order.

        A term with a history of h periods is h samples of `term_width` elements, oldest first.
        """
        slices: dict[str, slice] = {}
        start = 0
        for term in self.observation.terms:
            stop = start + self.term_width(term) * term.history
            slices[term.name] = slice(start, stop)
            start = stop
        return slices

    @property
    def observation_size(self) -> int:
        """Number of elements of the observation vector."""
        return sum(self.term_width(term) * term.history for term in self.observation.terms)
