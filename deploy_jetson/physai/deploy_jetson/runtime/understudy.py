"""Plays the tick that is about to be due, so that the processor's caches hold its code and numbers when it is.

A loop that sleeps between two ticks finds them gone: after 2 ms of sleep the first run of a small policy took 61 µs and
the second one 20 µs, a whole tick 148 and 63 µs (two cores of an AMD EPYC, shared with other programs). What is played
is thrown away. It reads the robot's last sample again, computes the policy without moving its memory on, and asks a
guard of its own; nothing is received and nothing is sent.
"""

from physai.deploy_jetson.runtime.bound_policy import BoundPolicy
from physai.deploy_jetson.runtime.robot_guard import RobotGuard
from physai.deploy_jetson.runtime.senses import Senses
from physai.sdk.contract import PolicyContract
from physai.sdk.policy_file import Ranges
from physai.sdk.wire import Sample


class Understudy:
    """Shares sample and policy with the tick, and nothing else; called in the loop's thread."""

    def __init__(self, contract: PolicyContract, sample: Sample, policy: BoundPolicy, ranges: Ranges) -> None:
        """See `physai.deploy_jetson.runtime.tick.Tick`."""
        self._guard = RobotGuard(contract)
        self._senses = Senses(contract, sample, policy, ranges)
        self._policy = policy

    def bind(self, policy: BoundPolicy, ranges: Ranges) -> None:
        """Plays another policy from now on."""
        self._senses.bind(policy, ranges)
        self._policy = policy

    def play(self) -> None:
        """Does what a tick does between receiving and sending."""
        senses, guard = self._senses, self._guard
        try:
            if not senses.read():
                targets = self._policy.rehearse()
                guard.decide(0.0, senses.joint_pos, senses.joint_vel, targets, missed=False, stop=False)
                guard.sent()
        except Exception:  # the tick meets the same, and says so
            return
        if guard.state:
            guard.reset()
