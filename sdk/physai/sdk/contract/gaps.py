"""Protections that a contract lacks: limits that are not set, and the consequences for the robot."""

from collections.abc import Iterable, Iterator

from physai.sdk.contract.policy_contract import PolicyContract

MAX_NAMES = 6
"""Maximum number of joints or sensors listed in a sentence."""

_UNLIMITED = {
    "velocity_limit": "a commanded position may step as far as its bounds from one period to the next",
    "acceleration_limit": "a commanded position may change its speed at once, and a stop brakes it within one period",
    "following_error_limit": "a joint that does not follow its commands goes unnoticed",
}
"""Consequence for a position-commanded joint by missing limit."""


def contract_lacks(contract: PolicyContract) -> tuple[str, ...]:
    """Return the protections that the contract lacks because of its format or unset fields, one sentence each."""
    return tuple(_gaps(contract))


def lacks_text(contract: PolicyContract) -> str:
    """Return a one-line summary of `contract_lacks`; empty if nothing is lacking."""
    count = len(contract_lacks(contract))
    if not count:
        return ""
    noun = "protection" if count == 1 else "protections"
    return f"the contract (format {contract.format_version}) lacks {count} {noun}, see `physai contract show`"


def _gaps(contract: PolicyContract) -> Iterator[str]:
    safety = contract.safety
    driven = {
        joint for term in contract.action.terms if term.target_name == "joint_pos_target" for joint in term.joints
    }
    for label, consequence in _UNLIMITED.items():
        open_joints = [e.joint for e in safety.joints if e.joint in driven and getattr(e, label) is None]
        if open_joints:
            yield f"{_joints(open_joints, contract)}: no {label}, so {consequence}."
    others = [e.joint for e in safety.joints if e.joint not in driven and e.velocity_limit is None]
    if others:
        yield f"{_joints(others, contract)}: no velocity_limit, so no measured speed counts as too fast."
    unchecked = [e.joint for e in safety.joints if e.velocity_mismatch_limit is None]
    if unchecked:
        yield (
            f"{_joints(unchecked, contract)}: no velocity_mismatch_limit, so positions that jump, or that contradict "
            "the measured speed, are accepted."
        )
    if safety.frozen_samples is None:
        yield "No frozen_samples, so sensors that repeat one value under new stamps are accepted."
    ranges = {r.name for r in safety.sensor_ranges or () if any(bound is not None for bound in (*r.lower, *r.upper))}
    unbounded = [sensor.name for sensor in contract.robot.sensors if sensor.name not in ranges]
    if unbounded:
        noun = "Sensor" if len(unbounded) == 1 else "Sensors"
        yield f"{noun} {_listed(unbounded)}: no sensor_ranges, so every finite value is accepted."


def _joints(names: list[str], contract: PolicyContract) -> str:
    if len(names) == 1:
        return f"Joint {names[0]}"
    return "Every joint" if len(names) == len(contract.robot.joints) else f"Joints {_listed(names)}"


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return ", ".join(known[:MAX_NAMES]) + more
