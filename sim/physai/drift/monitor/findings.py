"""Answer of a drift monitor, from the blocks of all recordings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from physai.drift.equations.changes import Change
from physai.drift.monitor.blocks import Block
from physai.drift.monitor.detector import Detectors, least_blocks
from physai.drift.monitor.lengths import BLOCK_S, HORIZON_S

Array = npt.NDArray[np.float64]

TWIN_STDS = 2.5
"""Standard deviations of the twin's posterior that are no drift."""
RESAMPLES, RIVAL = 500, 0.05
"""Resamples of the blocks, and the share of them in which another change must explain them best to be named, too."""
Outcome = Literal["HOLDS", "DRIFTED", "NO EVIDENCE"]


@dataclass(frozen=True, kw_only=True)
class ChangeRecord:
    """One change over the blocks of a monitor's recordings."""

    change: Change
    blocks: tuple[int, ...]
    """Blocks that say something of it."""
    amount: tuple[float, ...]
    std: tuple[float, ...]
    """Standard deviation of each amount, by noise and the twin's posterior."""
    mean: float
    """Amount over the blocks since the change, or all blocks; NaN without any."""
    mean_std: float
    seen_from: float
    """Amount from which a change is told from what the twin allows; NaN without any block."""
    watched: bool
    """Whether there are enough blocks for an alarm."""


@dataclass(frozen=True, kw_only=True)
class DriftFinding:
    """Answer from all blocks, with the changes that explain it."""

    outcome: Outcome
    changes: tuple[ChangeRecord, ...]
    named: tuple[int, ...] = ()
    """Changes that explain the drift, best first."""
    since: int | None = None
    """Block since which the drift is likeliest."""
    alarm: int | None = None
    """Block that raised the alarm."""
    threshold: float = 0.0
    needed: int = 0
    """Blocks with full bets that an alarm takes."""
    levels: tuple[float, ...] = field(default=())
    """Logarithm of the mean of all detectors after each usable block."""
    log_e: float = -math.inf
    """Logarithm of the e-value of "nothing has changed", see `Detectors.log_e`."""


def threshold_of(alarm_share: float) -> float:
    """Return the threshold at which at most a share of unchanged runs of `HORIZON_S` alarm."""
    return HORIZON_S / BLOCK_S / alarm_share


@dataclass(frozen=True)
class Usual:
    """Amounts of D changes in recordings of the calibration: errors of the twin's model, and no drift."""

    centre: Array
    """Mean amount, shape (D,)."""
    spread: Array
    """Standard deviation between recordings, shape (D,)."""


def usual_of(changes: int, blocks: Sequence[Block]) -> Usual:
    """Sum up blocks of recordings of the calibration; 0 for changes that they do not show."""
    centre, spread = np.zeros(changes), np.zeros(changes)
    for number in range(changes):
        by_log: dict[int, list[float]] = {}
        for block in blocks:
            if block.estimate is not None and block.known is not None and block.known[number]:
                by_log.setdefault(block.log, []).append(float(block.estimate.amount[number]))
        if by_log:
            means = np.array([np.mean(amounts) for amounts in by_log.values()])
            centre[number] = means.mean()
            # One recording shows no spread, and may be as far off as its mean.
            spread[number] = means.std(ddof=1) if len(means) > 1 else abs(means[0])
    return Usual(centre, spread)


def find(
    changes: Sequence[Change], blocks: Sequence[Block], alarm_share: float, usual: Usual | None = None
) -> DriftFinding:
    """Judge blocks in their order.

    Args:
        changes: D changes.
        blocks: the blocks.
        alarm_share: see `threshold_of`.
        usual: amounts that are no drift; 0 by default.
    """
    if usual is None:
        usual = Usual(np.zeros(len(changes)), np.zeros(len(changes)))
    blocks = [_without(block, usual.centre) for block in blocks]
    threshold = threshold_of(alarm_share)
    detectors = Detectors(len(changes), threshold)
    tolerance, step = np.array([c.tolerance for c in changes]), np.array([c.step for c in changes])
    usable = [number for number, block in enumerate(blocks) if block.usable]
    alarm, since, levels = None, None, list[float]()
    for order, number in enumerate(usable):
        found, known = blocks[number].estimate, blocks[number].known
        assert found is not None
        assert known is not None
        margin = tolerance + TWIN_STDS * np.hypot(found.twin, usual.spread)
        loud = detectors.bet(found.amount, margin, np.maximum(step, found.noise), known)
        levels.append(detectors.level)
        if loud and alarm is None:
            alarm = order
            best = np.unravel_index(int(np.argmax(detectors.logs)), detectors.logs.shape)
            since = int(detectors.since[best])
    needed = least_blocks(len(changes), threshold) if changes else 0
    after = usable if since is None else usable[since:]
    records = tuple(
        _record(c, k, blocks, usable, set(after), needed, float(usual.spread[k])) for k, c in enumerate(changes)
    )
    if alarm is None:
        watched = any(record.watched for record in records)
        return DriftFinding(
            outcome="HOLDS" if watched else "NO EVIDENCE",
            changes=records,
            threshold=threshold,
            needed=needed,
            levels=tuple(levels),
            log_e=detectors.log_e(len(blocks)),
        )
    return DriftFinding(
        outcome="DRIFTED",
        changes=records,
        named=explaining(blocks, after, [abs(one.mean) > one.change.tolerance for one in records]),
        since=after[0],
        alarm=usable[alarm],
        threshold=threshold,
        needed=needed,
        levels=tuple(levels),
        log_e=detectors.log_e(len(blocks)),
    )


def _without(block: Block, centre: Array) -> Block:
    """Return a block with amounts relative to usual ones."""
    if block.estimate is None:
        return block
    pull = block.estimate.pull - centre * block.estimate.weight
    return replace(block, estimate=replace(block.estimate, pull=pull))


def _record(
    change: Change,
    number: int,
    blocks: Sequence[Block],
    usable: Sequence[int],
    after: set[int],
    needed: int,
    spread: float,
) -> ChangeRecord:
    known = [(b, blocks[b].known) for b in usable]
    own = [b for b, some in known if some is not None and some[number]]
    found = [blocks[b].estimate for b in own]
    amount = np.array([e.amount[number] for e in found if e is not None])
    std = np.array([e.std[number] for e in found if e is not None])
    twin = np.array([e.twin[number] for e in found if e is not None])
    late = np.array([b in after for b in own], bool)
    mean = mean_std = seen_from = float("nan")
    if len(twin):
        seen_from = float(np.median(change.tolerance + TWIN_STDS * np.hypot(twin, spread)))
    if late.any():
        weight = 1.0 / std[late] ** 2
        mean = float((weight * amount[late]).sum() / weight.sum())
        count = int(late.sum())
        scatter = float(np.sqrt((weight * (amount[late] - mean) ** 2).sum() / weight.sum() / max(1, count - 1)))
        mean_std = float(
            np.hypot(
                max(scatter, float(weight.sum()) ** -0.5 if count < 3 else 0.0),
                np.hypot((weight * twin[late]).sum() / weight.sum(), spread),
            )
        )
    return ChangeRecord(
        change=change,
        blocks=tuple(own),
        amount=tuple(amount.tolist()),
        std=tuple(std.tolist()),
        mean=mean,
        mean_std=mean_std,
        seen_from=seen_from,
        watched=len(own) >= needed,
    )


def explaining(blocks: Sequence[Block], chosen: Sequence[int], large: Sequence[bool]) -> tuple[int, ...]:
    """Return the changes that explain blocks best, each alone; several if resampled blocks disagree on the best.

    Args:
        blocks: all blocks.
        chosen: numbers of those to explain.
        large: which changes exceed their tolerance in them; others are no drift, however certain.
    """
    found = [blocks[number].estimate for number in chosen]
    pull = np.array([e.pull for e in found if e is not None])
    weight = np.array([e.weight for e in found if e is not None])

    def gains(rows: Array) -> Array:
        """Reduction of the cost by each change with one amount for all blocks, rows (S, N) to (S, D)."""
        gain = (rows @ pull) ** 2 / np.maximum(rows @ weight, 1e-300)
        return np.where(np.any(large), np.where(large, gain, 0.0), gain)

    rng = np.random.default_rng(0)
    count = len(pull)
    rows = rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES).astype(np.float64)
    best = np.bincount(gains(rows).argmax(axis=1), minlength=pull.shape[1]) / RESAMPLES
    first = int(gains(np.ones((1, count))).argmax())
    order = [int(k) for k in np.argsort(-best) if best[k] >= RIVAL and int(k) != first]
    return (first, *order)
