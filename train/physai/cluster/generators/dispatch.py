"""State of the worlds, of all of a run and of a generator's share of them, and which process steps whose."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from physai.cluster.generators.generator import Arrays
from physai.train.collectors.collector import Share

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


def deal(waiting: Iterable[int], idle: Iterable[int], holders: Mapping[int, int]) -> list[tuple[int, int]]:
    """Gives generators that wait to processes that are idle, one to each.

    A generator stays with the process that has its worlds, even if that is busy with another one's, unless a process
    with at least two fewer is idle: so worlds move when processes come and go, and not otherwise.

    Args:
        waiting: generators, the one that waits longest first.
        idle: processes.
        holders: the process that has a generator's worlds; none has those of generators that are not in it.

    Returns:
        Generator and process.
    """
    free, rest = list(idle), list[int]()
    held = Counter(holders.values())
    pairs: list[tuple[int, int]] = []
    for which in waiting:
        if holders.get(which) in free:
            pairs.append((which, holders[which]))
            free.remove(holders[which])
        else:
            rest.append(which)
    for which in rest:
        if not free:
            break
        to, before = fewest_held(free, held, which), holders.get(which)
        if before is None or held[before] - held[to] >= 2:
            pairs.append((which, to))
            free.remove(to)
            held[to] += 1
            if before is not None:
                held[before] -= 1
    return pairs


def fewest_held(processes: Iterable[int], held: Mapping[int, int], which: int) -> int:
    """The process with the fewest generators' worlds; among those, the one with a generator's own number."""
    return min(processes, key=lambda one: (held.get(one, 0), one != which, one))
