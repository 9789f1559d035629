"""Terms, and patterns of joints' names, as Isaac Lab's managers and programs modelled on them have them.

A value is clipped, scaled, and then enters the history of its term (`compute_group` in Isaac Lab's
`managers/observation_manager.py`). A pattern has to match a whole name, and a name may match one pattern of a table
(`resolve_matching_names_values` in its `utils/string.py`).
"""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.values import number, numbers, short
from physai.sdk.base.formats.yaml_file import read_yaml

MAX_BYTES = 1 << 20
UNBOUNDED = 1e6
"""Clips beyond are none."""
OUT_OF_REACH = 10.0
"""Targets that no joint with a range reaches [rad]."""
WIDTHS = {"ang_vel": 3, "base_lin_vel": 3, "gravity": 3, "command": 3}
JOINT_KINDS = ("joint_pos", "joint_vel")
MAX_PATTERNS, MAX_LENGTH, MAX_CHOICES = 64, 64, 3
"""Greatest numbers of patterns in a table, of signs in a pattern or name, and of repetitions or groups in a pattern;
the time that matching takes grows exponentially with the last."""


ODD = re.compile(r"\(\?|\)[*+?]|\{|\\|\[\[|--|&&|\|\||~~")
"""Parts of patterns that are not read: repeated groups, extensions, escapes, and signs reserved in sets."""


def document(file: Path) -> dict[str, Any] | None:
    """Keys of a file that `yaml.dump` may have written; None if it holds something else.

    Raises:
        ForeignPolicyError: the file cannot be read, or is no YAML.
    """
    found = read_yaml(file, what="a configuration", max_bytes=MAX_BYTES, error=ForeignPolicyError, tags=True)
    return mapping(found, str(file)) if isinstance(found, dict) else None


def mapping(value: Any, where: str) -> dict[str, Any]:
    """A value that is to have keys, which are text; None has none.

    Raises:
        ForeignPolicyError: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in cast("dict[Any, Any]", value)):
        raise ForeignPolicyError(f"{where} is {short(value)}, expected names with values")
    return cast("dict[str, Any]", value)


def terms(
    kind: str,
    where: str,
    *,
    scale: Any = None,
    clip: Any = None,
    history: int = 1,
    width: int | None = None,
    names: Sequence[str] | None = None,
    whole: bool = True,
    clock: dict[str, Any] | None = None,
    scale_first: bool = False,
    by_time: bool = False,
) -> list[dict[str, Any]]:
    """Return a manager's term as terms of a description: one for neighbours with an equal scale.

    Args:
        kind: `of` of the term.
        where: place of the term, for messages.
        scale: number, or one for each element; None for 1.
        clip: least and greatest value; None for none.
        history: number of samples.
        width: number of elements; None if that is not known.
        names: joints of the elements, if they are known.
        whole: whether these are the policy's joints, in their order.
        clock: fields of a clock with a phase for each element.
        scale_first: whether the scaled value is clipped.
        by_time: whether the history of the whole observation is in the order of time.

    Raises:
        ForeignPolicyError: a scale or clip is not of the expected form, or cannot be expressed.
    """
    count = WIDTHS.get(kind, width)
    scales = numbers(scale, f"{where}: scale") if isinstance(scale, list) else [_scale(scale, where)]
    if len(scales) > 1 and len(set(scales)) == 1:
        count, scales = _same(len(scales), count, where), scales[:1]
    if len(scales) > 1:
        _same(len(scales), count, where)
        if history > 1 and not by_time:
            raise ForeignPolicyError(
                f"{where}: a scale for each element, {short(scales)}, and a history of {history} samples that have all "
                "elements together; this cannot be expressed"
            )
    runs = [list(run) for _, run in groupby(range(len(scales)), key=lambda element: scales[element])]
    bound = _clip(clip, where)
    found: list[dict[str, Any]] = []
    for run in runs:
        term: dict[str, Any] = {"of": kind, "scale": scales[run[0]]}
        term |= _part(kind, run if len(runs) > 1 else None, names, whole, clock, where)
        if bound is not None and (factor := abs(scales[run[0]]) if scale_first else 1.0):
            term["clip"] = bound / factor
        found.append(term | ({"history": history} if history > 1 else {}))
    return found


def _scale(scale: Any, where: str) -> float:
    return 1.0 if scale is None else number(scale, f"{where}: scale")


def _same(count: int, expected: int | None, where: str) -> int:
    if expected not in (None, count):
        raise ForeignPolicyError(f"{where}: scale has {count} numbers, expected {expected}")
    return count


def _clip(clip: Any, where: str) -> float | None:
    if clip is None:
        return None
    bounds = numbers(clip, f"{where}: clip")
    if len(bounds) != 2 or bounds[0] != -bounds[1] or not bounds[1] > 0.0:
        raise ForeignPolicyError(f"{where}: clip is {short(clip)}, expected -x and x; other bounds cannot be expressed")
    return bounds[1] if bounds[1] < UNBOUNDED else None


def _part(
    kind: str,
    run: list[int] | None,
    names: Sequence[str] | None,
    whole: bool,
    clock: dict[str, Any] | None,
    where: str,
) -> dict[str, Any]:
    """Return the choice of some elements; `run` is None for all."""
    if clock is not None:
        phases = clock["phases"]
        return {"clock": {**clock, "phases": phases if run is None else [phases[element] for element in run]}}
    if kind in JOINT_KINDS and names is not None and (run is not None or not whole):
        return {"joints": list(names) if run is None else [names[element] for element in run]}
    if run is None:
        return {}
    if kind in WIDTHS and kind != "gravity":
        return {"elements": run}
    raise ForeignPolicyError(
        f"{where}: a scale for each element, which of {kind} cannot be expressed"
        + (" before the joints have names" if kind in JOINT_KINDS else "")
    )


def require_out_of_reach(clip: Any, where: str) -> None:
    """Accept a clip of targets that no joint reaches, as pairs in order or by name.

    Raises:
        ForeignPolicyError: it bounds targets within reach.
    """
    pairs = list(cast("dict[Any, Any]", clip).values()) if isinstance(clip, dict) else clip
    for pair in cast("list[Any]", pairs if isinstance(pairs, list) else [pairs]):
        bounds = numbers(pair, where)
        if len(bounds) != 2 or not (bounds[0] <= -OUT_OF_REACH and bounds[1] >= OUT_OF_REACH):
            raise ForeignPolicyError(
                f"{where} bounds targets to {short(pair)} rad, by patterns of joints' names, which is not read so far; "
                "describe the policy in a physai.yaml with target_lower and target_upper"
            )


def fits(pattern: str, name: str, where: str) -> bool:
    """Whether a pattern matches a whole name.

    Raises:
        ForeignPolicyError: it is no pattern, or one that could take long to match.
    """
    choices = max(sum(pattern.count(sign) for sign in "*+?"), pattern.count("("))
    if len(pattern) > MAX_LENGTH or choices > MAX_CHOICES or ODD.search(pattern):
        raise ForeignPolicyError(
            f"{where} has the pattern {short(pattern)}, which is longer or less plain than those that are read; "
            "describe the policy in a physai.yaml"
        )
    try:
        return len(name) <= MAX_LENGTH and re.fullmatch(pattern, name) is not None
    except re.error:
        raise ForeignPolicyError(f"{where} has {short(pattern)}, which is no pattern") from None


def by_name(value: Any, names: Sequence[str], where: str, default: float) -> list[float]:
    """Return the numbers of joints: one for all, or by patterns of their names.

    Args:
        value: the number, or the table; None for the default.
        names: the joints.
        where: its place, for messages.
        default: number of a joint that no pattern matches.

    Raises:
        ForeignPolicyError: a joint matches several patterns, or a value is no number.
    """
    if value is None or not isinstance(value, dict):
        return [default if value is None else number(value, where)] * len(names)
    table = mapping(value, where)
    patterns = [one_of(list(table), name, where) for name in names]
    return [default if pattern is None else number(table[pattern], where) for pattern in patterns]


def one_of(patterns: Sequence[str], name: str, where: str) -> str | None:
    """Return the pattern that a name matches; None for none.

    Raises:
        ForeignPolicyError: it matches several.
    """
    if len(patterns) > MAX_PATTERNS:
        raise ForeignPolicyError(f"{where} has {len(patterns)} patterns, so far {MAX_PATTERNS} are read")
    found = [pattern for pattern in patterns if fits(pattern, name, where)]
    if len(found) > 1:
        raise ForeignPolicyError(f"{where}: {name} matches {' and '.join(found[:2])}, expected one pattern")
    return found[0] if found else None


def single(value: float) -> float:
    """Return a number in single precision as its shortest decimal, such as 0.1 for 0.10000000149011612."""
    return float(str(np.float32(value))) if abs(value) < 1e30 else value
