"""Parts of a contract: observation, action and command terms, and timing.

Each part validates itself; `physai.sdk.contract.checks` checks their consistency.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.contract.plans import ImageTerm, InstructionSpec, PlanSpec, PlanTiming
from physai.sdk.contract.robot import (
    JOINT_SENSORS,
    MAX_JOINTS,
    Finite,
    Frozen,
    Label,
    Name,
    NonNegative,
    Positive,
    RobotSpec,
    require_unique,
)
from physai.sdk.contract.safety_envelope import SafetyEnvelope

FORMAT_VERSION = 3
"""Newest format; increased when an older reader could misinterpret a newer contract. Format 1 lacks the optional fields
marked in `safety_envelope`, format 2 those of policies from elsewhere (`fields_since_3`)."""

DEFAULT_VERSION = 2
"""Format of contracts that use no field of a newer one, so that older readers accept them."""

OLDEST_FORMAT_VERSION = 1
"""Oldest supported format."""


class GaitClock(Frozen):
    """Clock of a gait: `wave`(φ + phase) per phase, where φ advances by 2π control_dt / period_s before each sample.

    While the source, a command field, has a norm below `gate`, the robot is to stand: every phase is `standing_phase`,
    or every value 0 if that is None. After that φ begins at 0 again.
    """

    wave: Literal["sin", "cos"]
    period_s: Annotated[float, Field(ge=0.01, le=60.0)]
    """Period of the gait [s]."""
    phases: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=16)]
    """Phase of each leg at φ = 0 [rad]."""
    gate: NonNegative = 0.0
    """Norm of the command below which the robot stands; 0 for never."""
    standing_phase: Finite | None = None
    """Phase of all legs while it stands [rad]; None where the values are 0."""


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
        "clock",
        "constant",
    ]
    """`sensor`: a sensor field; `joint_pos_rel`: joint_pos - default_pos; `sin_cos`: sine and cosine of joint_pos;
    `projected_gravity`: the gravity direction in the base frame from imu_quat; `command`: a command field;
    `pose_error`: target minus forward kinematics in the base frame, position [m], then rotation axis times
    2 sin(angle / 2); `position_error`: a sensor or command field, the position of something in the base frame [m],
    minus the position by forward kinematics; `previous_action`: the network's last output, within the output limit of
    the action; `last_target`: the last joint commands, positions less the measured position; `function`: a function of
    a sensor or command field, which the package that trains the policy contributes and the exported graph contains
    (`physai.observation_functions`); `clock`: a `GaitClock`; `constant`: numbers that never change. The last two came
    with format 3."""
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
    elements: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=4096)], ...] | None,
        Field(min_length=1, max_length=4096, exclude_if=lambda elements: elements is None),
    ] = None
    """Elements it selects of a command or of a sensor that is no joint vector, in this order; None for all. Left out of
    the document if None, as are the next two."""
    clock: Annotated[GaitClock | None, Field(exclude_if=lambda clock: clock is None)] = None
    values: Annotated[
        tuple[Finite, ...] | None, Field(min_length=1, max_length=256, exclude_if=lambda values: values is None)
    ] = None
    """Values of a `constant`."""
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
    layout: Annotated[Literal["term", "time"], Field(exclude_if=lambda layout: layout == "term")] = "term"
    """Order of a history: all samples of a term, then the next term; or all terms of a sample, then the next sample,
    for which every term has the same history. This and the next two came with format 3."""
    newest: Annotated[Literal["last", "first"], Field(exclude_if=lambda newest: newest == "last")] = "last"
    """Place of the newest sample in a history."""
    first_fill: Annotated[Literal["repeat", "zero"], Field(exclude_if=lambda fill: fill == "repeat")] = "repeat"
    """Samples before the first one: copies of it, or zeros."""
    images: Annotated[tuple[ImageTerm, ...], Field(max_length=16, exclude_if=lambda images: not images)] = ()
    """Images that the graph reads, each an input of its own."""
    instructions: Annotated[InstructionSpec | None, Field(exclude_if=lambda instructions: instructions is None)] = None
    noise: Annotated[int, Field(ge=0, le=65_536, exclude_if=lambda noise: noise == 0)] = 0
    """Number of standard normal values that the graph reads, so that a policy that samples is a function of its
    inputs."""

    @model_validator(mode="after")
    def _terms_are_unique(self) -> Self:
        require_unique("observation term", (*(t.name for t in self.terms), *(i.name for i in self.images)))
        return self


class ActionTerm(Frozen):
    """Conversion of network outputs a into joint commands u of one kind.

    Absolute kinds: u = clip(offset + scale · a, lower, upper).
    Incremental kinds: u = clip(u_previous + scale · a, lower, upper), where u_previous starts at the measured
    position (`joint_pos_incremental`) or at 0 (`joint_effort_incremental`). The graph bounds the network output to
    ± output_limit.
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
    output_limit: Annotated[Positive | None, Field(exclude_if=lambda limit: limit == 1.0)] = 1.0
    """Bound on the magnitude of the network output; None for none. Other values than 1 came with format 3."""

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
    plan: Annotated[PlanSpec | None, Field(exclude_if=lambda plan: plan is None)] = None
    """None for a policy that answers with the command of one period; since format 3."""

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
    slew: Annotated[tuple[Positive, ...] | None, Field(exclude_if=lambda slew: slew is None)] = None
    """Greatest change of what the policy sees [unit/s], one per element, from 0 at its start; None for none. Left out
    of the document if None, as is `gate`; both came with format 3 (`physai.sdk.policy.command_shaping`)."""
    gate: Annotated[Positive | None, Field(exclude_if=lambda gate: gate is None)] = None
    """Norm of the vector below which the policy sees zeros; None for none."""

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        for label in ("lower", "upper", "slew"):
            given: tuple[float, ...] | None = getattr(self, label)
            size = self.size if given is None else len(given)
            if size != self.size:
                raise ValueError(f"command {self.name}: {label} has {size} values, size is {self.size}")
        for low, high in zip(self.lower, self.upper, strict=True):
            if not low <= high:
                raise ValueError(f"command {self.name}: lower {low} is above upper {high}")
            if self.shaped and not low <= 0.0 <= high:
                raise ValueError(
                    f"command {self.name}: with a slew or a gate the policy also sees 0, which lies outside "
                    f"[{low}, {high}]"
                )
        return self

    @property
    def shaped(self) -> bool:
        """Whether the policy may see another command than the one that was asked for, cut to its range."""
        return self.slew is not None or self.gate is not None


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
    plan: Annotated[PlanTiming | None, Field(exclude_if=lambda plan: plan is None)] = None
    """Timing of plans; None for a policy without. Since format 3."""

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

    format_version: Literal[1, 2, 3] = DEFAULT_VERSION
    task: Name
    robot: RobotSpec
    observation: ObservationSpec
    action: ActionSpec
    command: CommandSpec
    timing: TimingSpec
    safety: SafetyEnvelope

    def term_width(self, term: ObservationTerm) -> int:
        """Number of elements of one sample of an observation term, before history."""
        for chosen in (term.elements, term.values, None if term.clock is None else term.clock.phases):
            if chosen is not None:
                return len(chosen)
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

        A term with a history of h periods is h samples of `term_width` elements, oldest first. Of a vector in the order
        of time, the slices are those within one sample.
        """
        by_time = self.observation.layout == "time"
        slices: dict[str, slice] = {}
        start = 0
        for term in self.observation.terms:
            stop = start + self.term_width(term) * (1 if by_time else term.history)
            slices[term.name] = slice(start, stop)
            start = stop
        return slices

    @property
    def observation_size(self) -> int:
        """Number of elements of the observation vector."""
        return sum(self.term_width(term) * term.history for term in self.observation.terms)

    def fields_since_3(self) -> Iterator[str]:
        """Yield the path of every format 3 field that was set."""
        spec = self.observation
        changed = {"layout": spec.layout != "term", "newest": spec.newest != "last"}
        changed["first_fill"] = spec.first_fill != "repeat"
        yield from (f"observation.{name}" for name, is_set in changed.items() if is_set)
        for term in spec.terms:
            if term.kind in ("clock", "constant"):
                yield f"observation.terms[{term.name}].kind"
            elif term.elements is not None:
                yield f"observation.terms[{term.name}].elements"
        for action in self.action.terms:
            if action.output_limit != 1.0:
                yield f"action.terms[{action.target_name}].output_limit"
        yield from (path for path, given in self._parts_of_plans() if given)
        for field in self.command.fields:
            given = {"slew": field.slew, "gate": field.gate}
            yield from (f"command.fields[{field.name}].{name}" for name, value in given.items() if value is not None)
        if self.safety.start is not None:
            yield "safety.start"
        if self.safety.status_max_age_s is not None:
            yield "safety.status_max_age_s"

    def _parts_of_plans(self) -> Iterator[tuple[str, bool]]:
        """Yield the path of each field for sight and plans, and whether it was set."""
        spec = self.observation
        yield "robot.cameras", bool(self.robot.cameras)
        yield "observation.images", bool(spec.images)
        yield "observation.instructions", spec.instructions is not None
        yield "observation.noise", spec.noise > 0
        yield "action.plan", self.action.plan is not None
        yield "timing.plan", self.timing.plan is not None
