"""Values of files as readers take them: checked, because each comes from a stranger."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

from physai.foreign.errors import ForeignPolicyError

NETWORKS = (".pt", ".jit", ".onnx")
"""Endings of files of networks."""


def scaled(kind: str, scales: Sequence[float]) -> list[dict[str, Any]]:
    """Terms for a vector with a scale for each element, one for neighbours with the same scale."""
    if len(set(scales)) == 1:
        return [{"of": kind, "scale": scales[0]}]
    groups = (list(group) for _, group in groupby(range(len(scales)), key=lambda element: scales[element]))
    return [{"of": kind, "elements": elements, "scale": scales[elements[0]]} for elements in groups]


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
