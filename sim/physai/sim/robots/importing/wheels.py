"""Wheels of a robot, which an import neither drives by speed nor lets roll a base that the file fixes."""

import re
from collections.abc import Sequence

from physai.sim.robots.importing.decisions import Decisions

_WHEEL = re.compile(r"wheel|caster|castor|track", re.IGNORECASE)


def note_wheels(turning: Sequence[str], decisions: Decisions, *, floating: bool) -> None:
    """Say how a robot with at least two wheels is taken.

    Args:
        turning: names of its joints without limits.
        decisions: takes the line.
        floating: whether the base is free.
    """
    wheels = [name for name in turning if _WHEEL.search(name)]
    if len(wheels) < 2:
        return
    listed = ", ".join(wheels[:4]) + (f" and {len(wheels) - 4} more" if len(wheels) > 4 else "")
    if floating:
        decisions.add("base", f"floats and has wheels, which servos hold at an angle, not at a speed: {listed}")
    else:
        decisions.add("base", f"is fixed to the world, although it has wheels: {listed}", "--floating")
