"""Where worlds stand: of all of a run, and of a generator's share of them."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from physai.train.cluster.generator import Arrays
from physai.train.runners.collector import Share

OF_WORLDS = ("environment", "memory", "sensors", "commands", "critic")
"""Entries of a collector's state whose arrays have the world as their first axis; the others are equal everywhere."""


def joined_arrays(parts: Sequence[Any]) -> Any:
    """Arrays of shares, or dictionaries of them, one after another."""
    if isinstance(parts[0], dict):
        names = cast("dict[str, Any]", parts[0])
        return {name: joined_arrays([one[name] for one in parts]) for name in names}
    return np.concatenate(parts)


def part(whole: Arrays, share: Share, count: int) -> Arrays:
    """A share's part of where all worlds stand."""
    return {**whole, **{name: _rows(whole[name], share.first, count) for name in OF_WORLDS if name in whole}}


def _rows(arrays: Any, first: int, count: int) -> Any:
    if isinstance(arrays, dict):
        entries = cast("dict[str, Any]", arrays)
        return {name: _rows(value, first, count) for name, value in entries.items()}
    return arrays[first : first + count]
