"""Start envelope of an imported policy: as its files state it, otherwise around the pose in which it begins."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from physai.foreign.conversion.tracking.motion import ReferenceMotion
from physai.foreign.description import SPREAD_RAD, PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.reading import PolicyReading
from physai.sdk.contract.io import contract_error
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.safety_envelope import StartEnvelope, StartRange
from physai.sdk.safety.start import tilt

SPEED_RAD_S = 0.5
TILT_RAD = 0.05
"""Some 3°: an uneven floor, and how an IMU is mounted. Tilted by twice as much, with joints as far from their pose and
as fast as these defaults allow, 3 of 64 Berkeley Humanoid Lite fall."""


def with_start(
    contract: PolicyContract, described: PolicyDescription, motion: ReferenceMotion | None, reading: PolicyReading
) -> tuple[PolicyContract, PolicyDescription]:
    """Return the contract with a start envelope, and the description with all of its values.

    Args:
        contract: of the policy, without a start envelope.
        described: the policy.
        motion: the motion that it follows; None for one that follows a command.
        reading: gets the values that no file states, with `default` as their source.

    Raises:
        ForeignPolicyError: no state of the robot lies inside the envelope.
    """
    pose, named, leans = _pose(described, motion)
    ranges = [joint for name in described.joints for joint in contract.robot.joints if joint.name == name]
    around = f"default: {named} ± {SPREAD_RAD:g} rad within the joint's range"
    lower = [_most(q - SPREAD_RAD, joint.position_lower) for q, joint in zip(pose, ranges, strict=True)]
    upper = [-_most(-q - SPREAD_RAD, _minus(joint.position_upper)) for q, joint in zip(pose, ranges, strict=True)]
    values: dict[str, tuple[Any, str]] = {
        "start_lower": (tuple(round(value, 6) for value in lower), around),
        "start_upper": (tuple(round(value, 6) for value in upper), around),
        "start_speed": (SPEED_RAD_S, "default: as fast as the twin's episodes begin"),
        "start_tilt": (round(leans + TILT_RAD, 6), f"default: {named} ± {TILT_RAD:g} rad"),
        "start_ramp_s": (0.0, "default: the policy commands at once"),
    }
    given: dict[str, Any] = {}
    for name, (value, source) in values.items():
        given[name] = getattr(described, name)
        if given[name] is None:
            reading.state(name, value, source)
            given[name] = value
    whole = described.model_copy(update=given)
    try:
        start = StartEnvelope(
            joints=tuple(
                StartRange(joint=name, lower=low, upper=high, speed=given["start_speed"])
                for name, low, high in zip(described.joints, given["start_lower"], given["start_upper"], strict=True)
            ),
            tilt=given["start_tilt"],
            ramp_s=given["start_ramp_s"],
        )
        safety = contract.safety.model_copy(update={"start": start})
        document = contract.model_copy(update={"safety": safety}).model_dump()
        return PolicyContract.model_validate(document), whole
    except ValidationError as error:
        raise ForeignPolicyError(str(contract_error(error, source="the policy's start"))) from None


def _pose(described: PolicyDescription, motion: ReferenceMotion | None) -> tuple[Sequence[float], str, float]:
    """Positions in which the policy begins, in the order of its joints, their name, and the tilt of the base [rad]."""
    if motion is None:
        return described.default_pos, "default_pos", 0.0
    first = dict(zip(motion.joints, motion.joint_pos[0].tolist(), strict=True))
    return [first[name] for name in described.joints], "first frame of the motion", tilt(motion.base_quat[0])


def _most(value: float, bound: float | None) -> float:
    return value if bound is None else max(value, bound)


def _minus(value: float | None) -> float | None:
    return None if value is None else -value
