"""A plan, the request that it answers, and the answers of the follower that is offered it.

All times are of the robot's own clock [s]. A planner on another computer never states a time: the robot knows when the
images were taken that it sent.
"""

from dataclasses import dataclass
from enum import Enum

from physai.sdk.safety.limits import Array
from physai.sdk.safety.plan.path import PlannedPath


class PlanState(Enum):
    """State of a `PlanFollower`."""

    EMPTY = "no plan yet"
    """The robot stands since it was started, reset, or given another instruction."""
    FOLLOW = "follows a plan"
    BRAKE = "brakes without a plan"
    WAIT = "waits for a plan"
    """The commands are constant because no plan came in time."""


class PlanAnswer(Enum):
    """Whether a plan is followed, and if not, the first reason."""

    ACCEPTED = "accepted"
    WRONG_POLICY = "the plan of another policy or contract"
    WRONG_EPOCH = "asked for before a stop, a reset, a swap, or another instruction"
    WRONG_NUMBER = "not asked for, answered before, or older than a plan that was followed"
    WRONG_SHAPE = "another number of steps or joints"
    NOT_FINITE = "a step that is not finite"
    OUT_OF_LIMITS = "a step beyond the limits of position, speed or acceleration"
    FROM_THE_FUTURE = "an image stamped in the future"
    TOO_OLD = "an image that is too old"
    BEFORE_STANDSTILL = "an image from before the robot stood"
    SEAM = "too far from what the robot does now"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request to a planner."""

    number: int
    """Rises with every request of a follower."""
    epoch: int
    """Number of restarts of the follower; the plan repeats it."""
    requested_s: float
    path: PlannedPath
    """Commands that are sent until the plan arrives: `path.at` gives the committed steps once the images are known."""


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """One answer of a policy that plans."""

    number: int
    """That of its request."""
    epoch: int
    """That of its request."""
    contract: str
    """Fingerprint of the contract."""
    policy: str
    """SHA-256 of the graph."""
    origin_s: float
    """Time for which the first step is meant, see `PlanSpec`."""
    targets: Array
    """Positions of the commanded joints [rad or m], shape (steps, joints)."""
