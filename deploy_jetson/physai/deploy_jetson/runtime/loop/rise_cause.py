"""Why the guard's state rose, in words: reasons, and the joint and values behind them."""

from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.ticks.reasons import HARMLESS, RuntimeFault, describe
from physai.sdk.safety import Reason

_UNUSUAL = RuntimeFault.FIELD_NOT_FINITE | Reason.SENSOR_IMPLAUSIBLE


def cause(tick: Tick, age: str) -> str:
    """Describe why the state rose in a tick.

    Args:
        tick: after that tick.
        age: describes the age of its sample.
    """
    reasons = tick.reasons
    # The supervisor has one cause without a flag.
    named = describe(reasons) if reasons & ~HARMLESS else f"a joint moves in STANDSTILL{tick.moving()}"
    details = [named, tick.error]
    if reasons & Reason.SENSOR_STALE:
        details.append(age)
    if reasons & _UNUSUAL:
        details.append(tick.senses.complaint())
    if reasons & Reason.JOINT_POSITION:
        details.append(tick.misplaced())
    if reasons & Reason.SENSOR_CONTRADICTS:
        details.append(tick.contradiction())
    return "; ".join(detail for detail in details if detail)
