"""Recomputes the ticks of the policy that drives, with another policy in its place.

The other policy runs in the runtime's own `Tick`, on the same samples, and through a guard of its own. Its transport
has nothing to send to. After each tick its memory and its guard continue from what the robot was sent, so that every
answer is the command of a policy that takes over in this period.
"""

import time

import numpy as np

from physai.deploy_jetson.runtime.io.dry_run import NullTransport
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.loop.clocks import Clocks
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.telemetry.flight.flight_ring import RowLayout
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowTick
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array, empty_sample

DROP_PERIODS = 3
"""Control periods that a shadow may be behind; what it answers later is dropped."""

PERIOD_TOLERANCE = 1e-6
"""Relative tolerance between the control periods of both policies."""


class ShadowError(PhysaiError):
    """A policy cannot run as a shadow of the one that drives."""


class ShadowTicks:
    """Runs a policy tick by tick on the rows of the one that drives; not thread-safe."""

    def __init__(self, active: PolicyContract, policy: BoundPolicy) -> None:
        """Connect the policy to the rows.

        Args:
            active: contract of the policy that drives; it defines the rows.
            policy: the shadow, warmed up.

        Raises:
            ShadowError: the policy is for other joints, reads what the rows lack, or has another control period.
        """
        contract = policy.header.contract
        require_same_robot(active, contract)
        self.contract = contract
        self._policy = policy
        self._layout = RowLayout.of(active)
        self._sample = empty_sample(contract)
        self._pairs = [
            (values, self._layout.fields[name])
            for name, values in self._sample.fields.items()
            if name in self._layout.fields
        ]
        self._fed = _Fed(active, contract)
        self._now_ns = self._wall_ns = 0
        clocks = Clocks(now_ns=lambda: self._now_ns, wall_ns=lambda: self._wall_ns)
        self._tick = Tick(contract, NullTransport(self._sample), policy, TickRing(1), clocks=clocks)
        self._begun = False

    def run(self, tick: np.void, row: Array) -> ShadowTick | None:
        """Compute one control period.

        Args:
            tick: record of the policy that drives, of `TICK_DTYPE`.
            row: its sample, commands and what was sent, as in `RowLayout`.

        Returns:
            The shadow's answer; None if the policy that drives was not asked in this period.
        """
        if int(tick["inference_ns"]) == 0:
            # A stopped robot: the next start begins anew.
            self._begun = False
            self._fed.follow(self._layout, row)
            return None
        own = self._tick
        self._read(tick, row)
        if not self._begun:
            own.resume(self._fed.last, self._fed.step)
            self._begun = True
        # Stays where the policy is not asked, as for a sample that is not valid.
        self._policy.targets.block[:] = np.nan
        started = time.perf_counter_ns()
        own.run(int(tick["tick"]), self._now_ns)
        compute_ns = time.perf_counter_ns() - started
        answer = ShadowTick(
            targets={name: rows[0].astype(np.float64) for name, rows in self._policy.targets.named.items()},
            reasons=own.reasons,
            intervened=own.intervened,
            state=own.state,
            compute_ns=compute_ns,
        )
        self._fed.follow(self._layout, row)
        self._continue(own)
        return answer

    def _read(self, tick: np.void, row: Array) -> None:
        for values, part in self._pairs:
            values[:] = row[part]
        sample = self._sample
        sample.stamp_ns = int(tick["sample_stamp_ns"])
        # The age by both clocks is the one that the policy that drives saw.
        self._now_ns = int(tick["woke_ns"])
        self._wall_ns = sample.stamp_ns + int(tick["sensor_age_ns"])
        sample.received_ns = self._now_ns
        sample.sequence += 1

    def _continue(self, own: Tick) -> None:
        """Go on from what the robot received, as after a change of policies."""
        if own.state != GuardState.RUN:
            own.guard.reset()
        own.guard.resume_from(self._fed.last, self._fed.step)
        self._policy.sent(own.guard.sent, own.guard.steps)


class _Fed:
    """The commands that the robot was sent, in the order of the shadow's joints."""

    def __init__(self, active: PolicyContract, contract: PolicyContract) -> None:
        places = {
            (term.target_name, joint): (term.target_name, number)
            for term in active.action.terms
            for number, joint in enumerate(term.joints)
        }
        wanted = [(term.target_name, joint) for term in contract.action.terms for joint in term.joints]
        self._sources = [places.get(one) for one in wanted]
        # A joint that the policy that drives does not command is held where it is, or gets no effort.
        names = contract.robot.joint_names
        self._measured = [
            names.index(joint) if source is None and target == "joint_pos_target" else None
            for (target, joint), source in zip(wanted, self._sources, strict=True)
        ]
        self.last: Array = np.zeros(len(wanted))
        """Commands sent last, shape (A,)."""
        self.step: Array = np.zeros(len(wanted))
        """Their changes from the ones before, 0 where nothing was sent."""
        self._known = False

    def follow(self, layout: RowLayout, row: Array) -> None:
        """Take over what was sent in a period."""
        before, given = self.last.copy(), self.last.copy()
        joint_pos = row[layout.fields["joint_pos"]]
        for place, (source, joint) in enumerate(zip(self._sources, self._measured, strict=True)):
            if source is not None:
                given[place] = row[layout.targets[source[0]]][source[1]]
            elif joint is not None:
                given[place] = joint_pos[joint]
        sent = np.isfinite(given)
        self.last = np.where(sent, given, before)
        self.step = np.where(sent, self.last - before, 0.0) if self._known else np.zeros_like(before)
        self._known = self._known or bool(sent.any())


def require_same_robot(active: PolicyContract, contract: PolicyContract) -> None:
    """Check that a policy can run on the samples of the one that drives.

    Raises:
        ShadowError: it is for another robot, or another rate, or reads what is not measured; names both.
    """
    if contract.robot.joint_names != active.robot.joint_names:
        ours, theirs = ", ".join(active.robot.joint_names), ", ".join(contract.robot.joint_names)
        raise ShadowError(f"the shadow is for the joints {theirs}, the policy that drives for {ours}")
    ratio = contract.timing.control_dt / active.timing.control_dt
    if not abs(ratio - 1.0) <= PERIOD_TOLERANCE:
        raise ShadowError(
            f"the shadow acts every {contract.timing.control_dt:g} s, the policy that drives every "
            f"{active.timing.control_dt:g} s; train and export it for that period"
        )
    sizes = {name: part.stop - part.start for name, part in RowLayout.of(active).fields.items()}
    needed = {field.name: field.size for field in (*contract.robot.sensors, *contract.command.fields)}
    for name, size in needed.items():
        if sizes.get(name) != size:
            has = f"has {sizes[name]} numbers" if name in sizes else "is missing"
            raise ShadowError(f"the shadow reads {name} ({size} numbers), which {has} in what this runtime records")
