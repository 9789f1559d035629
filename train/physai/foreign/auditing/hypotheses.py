"""Explanations of a block of numbers that is not what it should be, tried one after the other.

Each takes the expected block and the logged one, shape (rows, width), and names the difference, or returns "".
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from physai.foreign.auditing.deployment_log import Floats
from physai.foreign.auditing.findings import AuditFinding

Readings = dict[str, Callable[[], Floats | None]]
"""Further readings of the data of a block by their description; None where a log lacks what they are made of."""
NOTHING = "nothing that is tried explains it"
"""Text of a difference without an explanation."""
LEFT = 3e-3
"""Greatest error of an explanation, in the spread of the logged block."""
SHARE = 0.25
"""Greatest error of an explanation, in the error without it."""
AGREES = 1e-3
"""Greatest difference of a block that agrees, in its greatest magnitude: the digits of float16."""
EXCITED = 1e-3
"""Least spread of a column that can tell something."""
MAX_DELAY = 5
DEGREES = 180.0 / math.pi
_KNOWN = {DEGREES: "in degrees", 1.0 / DEGREES: "converted to radians once too often", -1.0: "with the opposite sign"}


def spread(block: Floats) -> float:
    """Greatest standard deviation of a column."""
    return float(block.std(axis=0).max(initial=0.0))


def agrees(expected: Floats, logged: Floats) -> bool:
    """Whether two blocks are the same within the digits of a log."""
    size = max(float(np.abs(block).max(initial=0.0)) for block in (expected, logged))
    return bool(np.abs(expected - logged).max(initial=0.0) <= AGREES * size + 1e-6)


def fits(expected: Floats, logged: Floats) -> bool:
    """Whether an explanation leaves almost nothing of the spread."""
    size = spread(logged)
    return size > 0.0 and bool(np.abs(expected - logged).max(initial=0.0) <= LEFT * size + 1e-6)


def explain(
    expected: Floats, logged: Floats, *, names: Sequence[str], others: Readings, pose: Floats | float = 0.0
) -> str:
    """Name the difference of a block; empty if nothing explains it.

    Args:
        expected: what the contract's term gives.
        logged: what the program fed to its network.
        names: of the columns, for orders.
        others: further readings of the same data by their description, such as another frame.
        pose: of each column, which was subtracted from both blocks: orders are also tried with it added again.
    """
    candidates: dict[str, Floats] = {"": expected}
    for text, make in others.items():
        if (made := make()) is not None and made.shape == expected.shape:
            candidates[text] = made
    for text, block in candidates.items():
        if text and fits(block, logged):
            return text
    for text, block in candidates.items():
        for found in _simple(block, logged, names, pose):
            return f"{text}, {found}" if text else found
    return ""


def compare_block(
    part: str, expected: Floats, logged: Floats, names: Sequence[str], others: Readings, pose: Floats | float = 0.0
) -> AuditFinding:
    """Return the finding of a block; the text of one that differs is empty if nothing explains it.

    Args:
        part: name in the finding.
        expected: see `explain`, as the rest.
        logged: as logged.
        names: of the columns.
        others: further readings.
        pose: see `explain`.
    """
    greatest = float(np.abs(expected - logged).max())
    if agrees(expected, logged):
        still = [name for name, column in zip(names, logged.T, strict=True) if column.std() < EXCITED]
        if len(still) == len(names):
            text = (
                f"does not move in this log, so that its order, scale and sign are not tested: {', '.join(still[:4])}"
            )
            return AuditFinding(part=part, outcome="undetermined", text=text, greatest=greatest)
        return AuditFinding(part=part, outcome="agrees", text="", greatest=greatest)
    text = explain(expected, logged, names=names, others=others, pose=pose)
    if not text and spread(logged) < EXCITED:
        text = f"constant at {', '.join(f'{value:.3g}' for value in logged[0][:4])}, expected something that moves"
        if spread(expected) < EXCITED:
            text = f"is {logged[0][:3].round(4).tolist()} throughout, expected {expected[0][:3].round(4).tolist()}"
    return AuditFinding(part=part, outcome="differs", text=text, greatest=greatest)


def _simple(expected: Floats, logged: Floats, names: Sequence[str], pose: Floats | float) -> Iterator[str]:
    if (scale := common_scale(expected, logged)) is not None:
        yield _scale_text(scale)
    if (signs := _signs(expected, logged)) is not None:
        yield f"the sign of {_listed([name for name, sign in zip(names, signs, strict=True) if sign < 0])} is opposite"
    if (delay := _delay(expected, logged)) is not None:
        late = "late" if delay > 0 else "early"
        yield f"{abs(delay)} period{'' if abs(delay) == 1 else 's'} {late}"
    # Joints that are permuted before the pose is subtracted, or after it.
    if order := _order(expected, logged) or _order(expected + pose, logged + pose):
        yield f"in another order: {_listed([names[index] for index in order])}"
    if (offset := _offset(expected, logged)) is not None:
        yield _each("offset by", names, offset, 0.0)
    if (scales := _scales(expected, logged)) is not None:
        yield _each("scaled by", names, scales, 1.0)
    if (bound := _bound(expected, logged)) is not None:
        yield f"clipped to ±{bound:.4g}"


def common_scale(expected: Floats, logged: Floats) -> float | None:
    """Return the factor between two blocks; None if there is none other than 1."""
    power = float((expected * expected).sum())
    if not power > 0.0:
        return None
    scale = float((expected * logged).sum()) / power
    return scale if abs(scale - 1.0) > 1e-3 and fits(scale * expected, logged) else None


def _scale_text(scale: float) -> str:
    for known, text in _KNOWN.items():
        if abs(scale / known - 1.0) < 0.01:
            return text
    return f"scaled by {scale:.4g}"


def _signs(expected: Floats, logged: Floats) -> Floats | None:
    signs = np.where((expected * logged).sum(axis=0) < 0.0, -1.0, 1.0)
    return signs if (signs < 0).any() and fits(signs * expected, logged) else None


def _delay(expected: Floats, logged: Floats) -> int | None:
    for delay in (step for size in range(1, MAX_DELAY + 1) for step in (size, -size)):
        first, second = (expected[:-delay], logged[delay:]) if delay > 0 else (expected[-delay:], logged[:delay])
        if fits(first, second) and not fits(expected, logged):
            return delay
    return None


def _order(expected: Floats, logged: Floats) -> list[int] | None:
    """Return which expected column each logged one is."""
    order: list[int] = []
    for column in logged.T:
        gaps = np.abs(expected - column[:, None]).max(axis=0)
        order.append(int(gaps.argmin()))
    if order == list(range(len(order))) or len(set(order)) < len(order):
        return None
    return order if fits(expected[:, order], logged) else None


def _offset(expected: Floats, logged: Floats) -> Floats | None:
    offset = (logged - expected).mean(axis=0)
    left, before = (np.abs(block - logged).max() for block in (expected + offset, expected))
    return offset if left <= SHARE * before and fits(expected + offset, logged) else None


def _scales(expected: Floats, logged: Floats) -> Floats | None:
    power = (expected * expected).sum(axis=0)
    if not (power > 0.0).all():
        return None
    scales = (expected * logged).sum(axis=0) / power
    return scales if fits(scales * expected, logged) else None


def _bound(expected: Floats, logged: Floats) -> float | None:
    bound = float(np.abs(logged).max())
    reached = float(np.abs(expected).max()) > bound * 1.01
    return bound if reached and fits(np.clip(expected, -bound, bound), logged) else None


def _each(what: str, names: Sequence[str], values: Floats, neutral: float) -> str:
    """Name the columns whose value is not the neutral one."""
    changed = [
        f"{name} {what} {value:.4g}" for name, value in zip(names, values, strict=True) if abs(value - neutral) > 1e-3
    ]
    return _listed(changed)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
