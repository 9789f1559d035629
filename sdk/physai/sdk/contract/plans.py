"""Policies that are computed apart from the control period: images and instructions in, plans out; since format 3."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.contract.robot import MAX_JOINTS, Frozen, Name, NonNegative, Positive, require_unique

Pixels = Annotated[int, Field(ge=0, lt=8192)]
Seconds = Annotated[float, Field(allow_inf_nan=False, gt=0.0, le=60.0)]


class ImageCrop(Frozen):
    """A rectangle of a camera's image [pixels]; x counts columns to the right, y rows down, both from 0."""

    x: Pixels
    y: Pixels
    width: Annotated[int, Field(ge=1, le=8192)]
    height: Annotated[int, Field(ge=1, le=8192)]


class ImageTerm(Frozen):
    """Images of one camera, cropped, then averaged over squares of `pool` by `pool` pixels."""

    name: Name
    camera: Name
    """Name of a camera of the robot."""
    crop: ImageCrop | None = None
    """None for the whole image."""
    pool: Annotated[int, Field(ge=1, le=64)] = 1
    times_s: Annotated[tuple[NonNegative, ...], Field(min_length=1, max_length=8)] = (0.0,)
    """Ages of the images relative to the newest one [s], ascending."""
    max_age_s: Seconds
    """Greatest age of the newest image, from its exposure until the plan is requested [s]."""
    max_skew_s: Seconds
    """Greatest difference between the stamps of this image and of the joints that are read with it [s]."""

    @model_validator(mode="after")
    def _times_ascend(self) -> Self:
        if list(self.times_s) != sorted(set(self.times_s)):
            raise ValueError(f"image {self.name}: times_s {list(self.times_s)} do not ascend")
        return self


class InstructionSpec(Frozen):
    """The closed list of instructions; the graph reads the number of the one that holds, not its words."""

    allowed: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")], ...],
        Field(min_length=1, max_length=256),
    ]

    @model_validator(mode="after")
    def _instructions_are_unique(self) -> Self:
        require_unique("instruction", self.allowed)
        return self


class PlanSpec(Frozen):
    """A plan: joint positions at equal steps of time, absolute where the graph writes them.

    Step k is meant for the time t + k · step_s. Of the newest image of each term, t is the exposure of the oldest;
    without images, it is the stamp of the joints.
    """

    steps: Annotated[int, Field(ge=2, le=1000)]
    step_s: Annotated[float, Field(ge=1e-3, le=1.0)]
    """Time from one step to the next [s]."""
    interpolation: Literal["linear", "hold", "quadratic"] = "quadratic"
    """Commands between two steps: on the line between them, the earlier one, or the quadratic B-spline of the steps,
    which alone keeps every acceleration limit that the steps keep."""
    anchor: Literal["default", "measured"] = "default"
    """Position to which the scaled outputs of the network are added: the offset of the action term, or the position
    measured with the plan's images. Either way the graph writes absolute positions."""
    committed: Annotated[int, Field(ge=0, lt=1000)] = 0
    """First steps that the network is told because they will be sent before its answer arrives; 0 for none."""
    blend_s: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
    """Time over which commands turn from the plan before into this one [s]."""
    seam: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MAX_JOINTS)]
    """Greatest difference between this plan and the one before where both are valid, one per commanded joint [rad or
    m]."""

    @model_validator(mode="after")
    def _prefix_is_shorter(self) -> Self:
        if not self.committed < self.steps:
            raise ValueError(f"plan: {self.committed} committed steps of {self.steps} leave none to decide")
        return self

    @property
    def length_s(self) -> float:
        """Time from the first step to the last [s]."""
        return (self.steps - 1) * self.step_s


class PlanTiming(Frozen):
    """When plans are asked for, and how long one is good for."""

    period_s: Seconds
    """Time from one request to the next [s]."""
    deadline_s: Seconds
    """Time from a request within which its plan is to arrive [s]."""
    max_age_s: Seconds
    """Greatest age of a plan, from the time of its first step until a command is taken from it [s]."""
    resume_within_s: Annotated[float, Field(ge=0.0, le=600.0)] = 0.0
    """Longest wait without a plan after which the robot goes on by itself, from the first step of a new plan [s]; after
    it, and always if 0, the robot holds until an operator resets it."""
