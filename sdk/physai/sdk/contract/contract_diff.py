"""Differences between two contracts, with both values.

Joints, sensors, their ranges, chains, observation terms, commands and action outputs are matched by name, not by
position. A different order is reported as a difference, because it determines the layout of every joint vector.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from physai.sdk.base.errors import ContractMismatchError
from physai.sdk.contract.policy_contract import PolicyContract

MAX_VALUE_CHARS = 400
"""Maximum length of a value in the text; `physai contract diff --json` does not truncate."""

_ACTION_VECTORS = ("scale", "offset", "lower", "upper")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between two contracts."""

    path: str
    """Path with names in brackets: `robot.joints[hip].stiffness`."""
    kind: Literal["changed", "added", "removed", "order"]
    """`changed`: in both; `added`: only in the right one; `removed`: only in the left one; `order`: the common entries
    are in a different order."""
    left: Any
    """JSON value in the left contract; None if it is not there."""
    right: Any
    """JSON value in the right contract; None if it is not there."""


def diff(left: PolicyContract, right: PolicyContract) -> tuple[Difference, ...]:
    """Return all differences between two contracts, in the order of the contract's fields; empty if they are equal."""
    return tuple(_differences("", _tree(left), _tree(right)))


def format_diff(differences: tuple[Difference, ...], *, left: str, right: str) -> str:
    """Format differences as text, one per line.

    Args:
        differences: result of `diff`.
        left: label of the left contract.
        right: label of the right contract.
    """
    return "\n".join(_line(difference, left, right) for difference in differences)


def require_same(a: PolicyContract, b: PolicyContract, *, left: str, right: str) -> None:
    """Check that two contracts are the same.

    Args:
        a: the left contract.
        b: the right contract.
        left: where `a` comes from, for the message ("checkpoint run7").
        right: where `b` comes from.

    Raises:
        ContractMismatchError: they differ; the message lists every difference.
    """
    if a.fingerprint != b.fingerprint:
        raise ContractMismatchError(
            f"{left} and {right} hold different contracts ({a.fingerprint[:12]} and {b.fingerprint[:12]}); "
            f"export again from the contract that is right, or install the policy that belongs to it\n"
            + format_diff(diff(a, b), left=left, right=right)
        )


class _Keyed(dict[str, Any]):
    """A list as a dictionary; paths show its keys in brackets."""


class _Named(_Keyed):
    """Entries matched by name whose order is significant."""


def _tree(contract: PolicyContract) -> dict[str, Any]:
    """Return the contract as nested dictionaries, with named lists keyed by name."""
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
    """Key the vectors of an action term by joint, so that reordered joints differ in their order only."""
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
