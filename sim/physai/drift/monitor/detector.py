"""E-detectors: alarms for changes in a stream of blocks, with a bound on false ones.

Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection" (The New England
Journal of Statistics in Data Science 2, 2023). A block's bet e is at most 1 in expectation while nothing changes,
whatever came before. R ← (R + 1)·e then has R - n as a supermartingale, and so has the mean of many such R: over n
blocks it exceeds c with a probability of at most n/c. Blocks need not be independent.

R itself is no e-value, as its expectation may reach n. R/N at the end of N blocks is one, if N was fixed beforehand: R
is the sum, over each block at which a bet may have begun, of the wealth Π e of that bet since then. Begun with 1/N,
each has an expectation of at most 1/N while nothing changes, and there are at most N of them: a mixture over the time
of the change, with the weight 1/N each. So has the mean over several detectors (Vovk and Wang, "E-values: calibration,
combination and applications", Annals of Statistics 49, 2021). Its maximum over the blocks is no e-value.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

BET = 0.5
"""Share of its capital that a block risks: one block changes it by a factor of 0.5 to 1.5, so none decides alone."""


class Detectors:
    """One detector per change and sign; all of them share one threshold."""

    def __init__(self, changes: int, threshold: float) -> None:
        """Start.

        Args:
            changes: number of changes D.
            threshold: mean of all 2·D detectors that is an alarm.
        """
        self.threshold = threshold
        self._log = np.full((2, changes), -np.inf)
        self._sum = np.zeros((2, changes))
        self._least = np.zeros((2, changes))
        """Lowest sum of logarithmic bets before any block since the last time that it paid to start anew."""
        self.since = np.zeros((2, changes), np.int64)
        """Block at which the most likely stretch of each detector starts, shape (2, D)."""
        self.blocks = 0

    def bet(self, amount: Array, margin: Array, step: Array, known: npt.NDArray[np.bool_]) -> bool:
        """Bet on one block; return whether it raises an alarm.

        Args:
            amount: estimate of each change, shape (D,).
            margin: amount that is none.
            step: amount beyond the margin at which a bet is full.
            known: changes of which the block says anything; the others' detectors rest.
        """
        signed = np.stack([amount, -amount])
        gain = np.log1p(BET * np.clip((signed - margin) / step, -1.0, 1.0))
        gain = np.where(known, gain, 0.0)
        self._log = np.where(known, np.logaddexp(self._log, 0.0) + gain, self._log)
        anew = known & (self._sum <= self._least)
        self.since[anew] = self.blocks
        self._least[anew] = self._sum[anew]
        self._sum += gain
        self.blocks += 1
        return self.level >= np.log(self.threshold)

    @property
    def level(self) -> float:
        """Logarithm of the mean of all detectors."""
        return float(np.logaddexp.reduce(self._log, axis=None) - np.log(self._log.size))

    def log_e(self, blocks: int) -> float:
        """Return the logarithm of the e-value of "nothing has changed"; -inf if no block said anything.

        Args:
            blocks: number of all blocks, usable or not, which must not depend on what they show.
        """
        return self.level - float(np.log(blocks)) if blocks else -np.inf

    @property
    def logs(self) -> Array:
        """Logarithm of each detector, the positive sign first, shape (2, D)."""
        return self._log


def least_blocks(changes: int, threshold: float) -> int:
    """Return the number of blocks with full bets that it takes for an alarm."""
    detectors = Detectors(changes, threshold)
    full, known = np.zeros(changes), np.zeros(changes, bool)
    full[0], known[0] = 2.0, True
    while not detectors.bet(full, np.zeros(changes), np.ones(changes), known):
        pass
    return detectors.blocks
