"""Names every term in which two contracts differ, with both values.

Joints, sensors, their ranges, chains, observation terms, commands and action outputs are matched by name, never by
position; an order that differs is a difference of its own, because every joint vector follows it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from physai.sdk.base.errors import ContractMismatchError
from physai.sdk.contract.policy_contract import PolicyContract

MAX_VALUE_CHARS = 400
"""Longest value in a line of text; `physai contract diff --json` has it whole."""

_ACTION_VECTORS = ("scale", "offset", "lower", "upper")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One term in which two contracts differ."""

    path: str
    """Where, with names in brackets: `robot.joints[hip].stiffness`."""
    kind: Literal["changed", "added", "removed", "order"]
    """`changed`: both have it; `added`: only the right one; `removed`: only the left one; `order`: what
    both have stands in another order."""
    left: Any
    """The left one's value as JSON has it; None where the left one lacks the term."""
    right: Any
    """The right one's value."""


def diff(left: PolicyContract, right: PolicyContract) -> tuple[Difference, ...]:
    """Every difference between two contracts, in the order of the contract's fields; empty if they are equal."""
    return tuple(_differences("", _tree(left), _tree(right)))


def format_diff(differences: tuple[Difference, ...], *, left: str, right: str) -> str:
    """The differences as text, one a line.

    Args:
        differences: what `diff` returned.
        left: what to call the left contract.
        right: what to call the right contract.
    """
    return "\n".join(_line(difference, left, right) for difference in differences)


def require_same(a: PolicyContract, b: PolicyContract, *, left: str, right: str) -> None:
    """Refuses two contracts that are not one.

    Args:
        a: one side's contract.
        b: the other side's.
        left: what holds `a`, for the message ("checkpoint run7").
        right: what holds `b`.

    Raises:
        ContractMismatchError: they differ; the message names every term.
    """
    if a.fingerprint != b.fingerprint:
        raise ContractMismatchError(
            f"{left} and {right} hold different contracts ({a.fingerprint[:12]} and {b.fingerprint[:12]}); "
            f"export again from the contract that is right, or install the policy that belongs to it\n"
            + format_diff(diff(a, b), left=left, right=right)
        )


class _Keyed(dict[str, Any]):
    """A list as a dictionary, its keys in brackets in a path."""


class _Named(_Keyed):
    """Entries matched by name, whose order is a term of its own."""


def _tree(contract: PolicyContract) -> dict[str, Any]:
    """The contract as nested dictionaries, its named lists keyed by name."""
    tree = contract.model_dump(mode="json")
    robot, safety = tree["robot"], tree["safety"]
    for chain in robot["chains"]:
        chain["segments"] = _Keyed((str(index), segment) for index, segment in enumerate(chain["segments"]))
    for label in ("joints", "sensors", "chains"):
        robot[label] = _named(robot[label])
    tree["observation"]["terms"] = _named(tree["observation"]["terms"])
    tree["command"]["fields"] = _named(tree["command"]["fields"])
    safety["joints"] = _named(safety["joints"], key="joint")
    if "sensor_ranges" in safety:
        safety["sensor_ranges"] = _named(safety["sensor_ranges"])
    tree["action"]["terms"] = _Named(
        (term.target_name, _by_joint(entry))
        for term, entry in zip(contract.action.terms, tree["action"]["terms"], strict=True)
    )
    return tree


def _named(entries: list[dict[str, Any]], *, key: str = "name") -> _Named:
    return _Named((entry[key], entry) for entry in entries)


def _by_joint(term: dict[str, Any]) -> dict[str, Any]:
    """An action term with each vector keyed by joint, so that reordered joints differ in their order only."""
    keyed = {label: _Keyed(zip(term["joints"], term[label], strict=True)) for label in _ACTION_VECTORS}
    return {**term, "joints": _Named((name, name) for name in term["joints"]), **keyed}


def _differences(path: str, left: Any, right: Any) -> Iterator[Difference]:
    if isinstance(left, dict) and isinstance(right, dict):
        yield from _entries(path, cast("dict[str, Any]", left), cast("dict[str, Any]", right))
    elif left != right:
        yield Difference(path=path, kind="changed", left=left, right=right)


def _entries(path: str, left: dict[str, Any], right: dict[str, Any]) -> Iterator[Difference]:
    shared_left, shared_right = [k for k in left if k in right], [k for k in right if k in left]
    if isinstance(left, _Named) and shared_left != shared_right:
        yield Difference(path=path, kind="order", left=list(left), right=list(right))
    for key in dict.fromkeys((*left, *right)):
        inner = f"{path}[{key}]" if isinstance(left, _Keyed) else f"{path}.{key}".lstrip(".")
        if key not in right:
            yield Difference(path=inner, kind="removed", left=left[key], right=None)
        elif key not in left:
            yield Difference(path=inner, kind="added", left=None, right=right[key])
        else:
            yield from _differences(inner, left[key], right[key])


def _line(difference: Difference, left: str, right: str) -> str:
    if difference.kind == "removed":
        return f"  {difference.path}: only in {left}: {_short(difference.left)}"
    if difference.kind == "added":
        return f"  {difference.path}: only in {right}: {_short(difference.right)}"
    what = "order " if difference.kind == "order" else ""
    return f"  {difference.path}: {what}{_short(difference.left)} in {left}, {_short(difference.right)} in {right}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"
