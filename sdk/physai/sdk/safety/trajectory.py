"""Commanded positions within speed and acceleration limits, from which a joint can always stop before its bounds.

All lengths are per control period: a speed v [rad/s] is a step of v·dt, an acceleration a [rad/s²] changes the step by
a·dt² from one period to the next. A joint that makes a step d, and then brakes by one such change `a` in each period,
travels

    S(d) = d + (d - a) + (d - 2a) + … = n·d - a·n·(n - 1)/2   with n = ceil(d / a)

in all. A command is allowed if S of its step fits into the room that is left before the bound. By induction the braking
step is then always allowed, so position, speed and acceleration limits never contradict each other.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def largest_step(room: Array, change: Array) -> Array:
    """Return the largest step d with S(d) <= room: the inverse of the stopping distance, exact in discrete time.

    Args:
        room: distance to the bound, negative outside it.
        change: maximum change of the step per period, positive; a huge number for no limit.
    """
    periods = np.ceil(0.5 * (np.sqrt(1.0 + 8.0 * np.maximum(room, 0.0) / change) - 1.0))
    periods = np.maximum(periods, 1.0)
    return np.where(room > 0.0, room / periods + change * (0.5 * (periods - 1.0)), room)


def braking_distance(step: Array, change: Array) -> Array:
    """Return the signed distance travelled after `step` until the joint rests: S(step) - step."""
    speed = np.abs(step)
    periods = np.maximum(np.ceil(speed / change), 1.0) - 1.0
    return np.copysign(periods * speed - change * (0.5 * periods * (periods + 1.0)), step)


def brake(step: Array, change: Array) -> Array:
    """Return the next step of a joint that brakes at its acceleration limit."""
    return np.copysign(np.maximum(np.abs(step) - change, 0.0), step)


def limited_step(
    step: Array, before: Array, position: Array, *, lower: Array, upper: Array, speed: Array, change: Array
) -> Array:
    """Return the allowed step nearest to the requested one.

    Args:
        step: requested change of the commanded position in this period.
        before: change in the previous period.
        position: position commanded last.
        lower: minimum position.
        upper: maximum position.
        speed: maximum step.
        change: maximum change of the step.
    """
    step = between(step, -largest_step(position - lower, change), largest_step(upper - position, change))
    step = between(step, before - change, before + change)
    return between(step, -speed, speed)


def between(values: Array, lower: Array, upper: Array) -> Array:
    """Clip values elementwise."""
    # `np.clip` has an overhead of several times the work for a few joints.
    return np.minimum(np.maximum(values, lower), upper)
