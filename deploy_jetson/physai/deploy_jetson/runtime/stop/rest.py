"""Standstill of a robot that is not driven: a stop is reset only once every joint was measured at rest after it."""

import math

import numpy as np

from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import STILL_S
from physai.sdk.safety.plant import RestWatch
from physai.sdk.transport.protocol import Transport

# `CommandQueue.read_back` while no standstill is confirmed; others are below it, and those of a loop are not negative.
_NONE = -1


class StandstillWatch:
    """Confirms stops of an inactive runtime."""

    def __init__(self, contract: PolicyContract, tick: Tick, transport: Transport, commands: CommandQueue) -> None:
        """Initialize without samples.

        Args:
            contract: of the policy.
            tick: reads the samples.
            transport: of the robot, open.
            commands: `read_back` is published there.
        """
        self._tick, self._commands, self._sample = tick, commands, transport.sample()
        self._rest = RestWatch(contract, tick.guard.limits, 1)
        self._still_s = max(STILL_S, contract.timing.control_dt)
        self._sequence = self._first_ns = 0
        self._stop = -1
        self._since_s = math.nan

    def look(self) -> None:
        """Look at the newest sample; call it regularly while inactive."""
        commands, sample = self._commands, self._sample
        if self._stop != commands.stop:
            # Rest before the stop does not confirm it.
            self._stop = commands.stop
            self._begin_again()
        if sample.sequence == self._sequence:
            if self.confirmed and self._tick.unsound():
                # The samples broke off, so it is unknown whether the robot still rests.
                self._begin_again()
            return
        self._sequence = sample.sequence
        self._first_ns = self._first_ns or sample.stamp_ns
        stamp_s = (sample.stamp_ns - self._first_ns) * 1e-9
        senses = self._tick.senses
        valid = np.array([not self._tick.unsound() and bool(np.isfinite(senses.joint_pos).all())])
        with np.errstate(all="ignore"):
            rests = bool(self._rest.read(np.array([stamp_s]), senses.joint_pos, senses.joint_vel, valid)[0])
        if not rests:
            self._since_s = math.nan
        elif math.isnan(self._since_s):
            self._since_s = stamp_s
        confirmed = stamp_s - self._since_s >= self._still_s
        commands.read_back = _NONE - 1 - self._stop if confirmed else _NONE

    def _begin_again(self) -> None:
        self._since_s = math.nan
        self._rest.reset(np.ones(1, bool))
        self._commands.read_back = _NONE

    @property
    def confirmed(self) -> bool:
        """Whether the joints have rested since the newest stop."""
        return self._commands.read_back == _NONE - 1 - self._commands.stop

    def confirms(self, read_back: int) -> bool:
        """Whether a request with this number was made after the standstill was confirmed, which still lasts."""
        return self.confirmed and read_back == self._commands.read_back

    def missing(self) -> str:
        """Describe what the confirmation waits for; empty once it is confirmed."""
        if self.confirmed:
            return ""
        if not self._sample.sequence:
            return "a sample of the joints"
        return self._tick.unsound() or f"every joint at rest for {self._still_s:g} s"
