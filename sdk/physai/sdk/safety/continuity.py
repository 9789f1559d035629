"""Continuity of a robot's samples: commands go to the robot that was measured all along, not to one that came back.

A robot whose samples were missing for longer than the contract's age, or that contradict each other for that long, may
have been restarted, moved by hand or replaced. A stopped robot of this kind gets no command any more, not even the last
one, which it would drive to. The next start begins from the position that is measured then.
"""

import math

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import Array, GuardLimits

Bools = npt.NDArray[np.bool_]

BROKEN = -1
"""`StreamWatch.silence` of a stream that broke off."""


class StreamWatch:
    """Detects breaks in the stream of valid samples of robots that are not in RUN, one row per world."""

    def __init__(self, contract: PolicyContract, limits: GuardLimits, num_worlds: int) -> None:
        """Create the detector, without samples."""
        timing = contract.timing
        self._gap_s = timing.max_observation_age_s + timing.control_dt
        self._periods = math.ceil(timing.max_observation_age_s / timing.control_dt)
        # Efforts have to be damped as long as they act, so they are sent on, with the positions of the same robot.
        self._holds = bool(limits.holds_position.all())
        self._valid_s: Array = np.full(num_worlds, math.nan)
        self._blind = np.zeros(num_worlds, np.int64)
        self.broken = np.zeros(num_worlds, bool)
        """Worlds whose samples broke off since the last start, shape (num_worlds,)."""

    def reset(self, rows: Bools) -> None:
        """Begin with a new stream in these worlds."""
        self._valid_s[rows] = math.nan
        self._blind[rows] = 0
        self.broken[rows] = False

    @property
    def silence(self) -> int:
        """Periods of the first world since its last valid sample, or `BROKEN`; for a detector that continues."""
        return BROKEN if self.broken[0] else int(self._blind[0])

    def resume(self, silence: int) -> None:
        """Continue another detector's watch, in all worlds.

        The stamps in between are unknown: a process that was late is no gap in the robot's samples.

        Args:
            silence: of that detector.
        """
        self._valid_s[...] = math.nan
        self._blind[...] = max(silence, 0)
        self.broken[...] = silence == BROKEN and self._holds

    def accept(self, stamp_s: Array) -> None:
        """Record valid samples of all worlds; cheap, for a period without faults."""
        self._valid_s[...] = stamp_s
        if self._blind.any():
            self._blind[...] = 0

    def read(self, stamp_s: Array, blind: Bools, idle: Bools, constant: Bools) -> Bools:
        """Process one period; return the worlds whose stream is found broken in it.

        Args:
            stamp_s: time of the sample [s], shape (num_worlds,), as the other arguments.
            blind: the sample is not valid.
            idle: the policy does not drive.
            constant: the commanded positions are constant, so that nothing is left to brake.
        """
        valid = ~blind
        # NaN, before the first valid sample, is no gap. A stamp that jumps back is one, like one that jumps ahead.
        returned = valid & (np.abs(stamp_s - self._valid_s) > self._gap_s)
        self._valid_s[valid] = stamp_s[valid]
        self._blind = np.where(blind, np.minimum(self._blind + 1, self._periods + 1), 0)
        silent = (self._blind > self._periods) & constant
        found = idle & (returned | silent) & self._holds
        breaks = found & ~self.broken
        self.broken |= found
        return breaks
