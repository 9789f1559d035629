"""Values of files as readers take them: checked, because each comes from a stranger."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

from physai.foreign.description import SPREAD_RAD
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.reading import PolicyReading

NETWORKS = (".pt", ".jit", ".onnx")
"""Endings of files of networks."""
WHEELS = (
    "the policy commands speeds of wheels ({}), and contracts have commands of positions and efforts alone; import a "
    "policy that commands all its joints by position, or run this one by its own program"
)
"""Refusal of wheels, with their names."""


def scaled(kind: str, scales: Sequence[float]) -> list[dict[str, Any]]:
    """Terms for a vector with a scale for each element, one for neighbours with the same scale."""
    if len(set(scales)) == 1:
        return [{"of": kind, "scale": scales[0]}]
    groups = (list(group) for _, group in groupby(range(len(scales)), key=lambda element: scales[element]))
    return [{"of": kind, "elements": elements, "scale": scales[elements[0]]} for elements in groups]


def begins_between(reading: PolicyReading, pairs: Sequence[tuple[float, float]], source: str) -> None:
    """State between which positions of each joint episodes begin, at least `SPREAD_RAD` around the stated pose.

    Args:
        reading: with `default_pos`.
        pairs: two positions of each joint, in any order [rad].
        source: place of the statement.
    """
    pose = numbers(reading.values["default_pos"], "default_pos")
    lower = [round(min(*pair, at - SPREAD_RAD), 6) for pair, at in zip(pairs, pose, strict=True)]
    upper = [round(max(*pair, at + SPREAD_RAD), 6) for pair, at in zip(pairs, pose, strict=True)]
    for name, bounds in (("start_lower", lower), ("start_upper", upper)):
        reading.state(name, bounds, f"{source}; at least default_pos ± {SPREAD_RAD:g} rad")


def begins_at_once(reading: PolicyReading, how: str) -> None:
    """State that the program's way to the first pose has ended when the policy takes over, so that there is no ramp."""
    reading.state("start_ramp_s", 0.0, f"code: {how}, before the policy takes over at once")


def number(value: Any, where: str) -> float:
    """A value that is to be calculated with.

    Raises:
        ForeignPolicyError: it is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected a number")
    return float(value)


def numbers(value: Any, where: str) -> list[float]:
    """A list of numbers that are to be calculated with.

    Raises:
        ForeignPolicyError: it is no list, or has something else.
    """
    if not isinstance(value, list):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected a list of numbers")
    return [number(one, where) for one in listed(value, where)]


def listed(value: Any, where: str) -> list[Any]:
    """A list.

    Raises:
        ForeignPolicyError: it is none.
    """
    if not isinstance(value, list):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected a list")
    return cast("list[Any]", value)


def short(value: Any) -> str:
    """A value for messages."""
    text = json.dumps(value, default=str, skipkeys=True)
    return text if len(text) <= 60 else f"{text[:59]}…"
