"""A policy in the twin with the ramp of its start envelope, played as the robot's runtime plays it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.start import StartGate
from physai.sim.engines.protocol import Array
from physai.sim.envs.step_result import Bools
from physai.sim.policies.policy_protocol import Policy


def ramped(policy: Policy) -> Policy:
    """Return a policy with the ramp of its contract; the policy itself if it has none."""
    start = policy.contract.safety.start
    return RampedPolicy(policy) if start is not None and start.ramp_s > 0.0 else policy


class RampedPolicy:
    """A policy whose first commands of an episode grow out of those of the robot at rest."""

    def __init__(self, policy: Policy) -> None:
        """Wrap a policy; call `reset` before the first command."""
        self._policy = policy
        self._remember: Callable[..., Any] | None = getattr(policy, "remember", None)
        self._gate = StartGate(policy.contract)
        self._begins = np.ones(1, bool)
        self._last: dict[str, Array] = {}

    @property
    def contract(self) -> PolicyContract:
        return self._policy.contract

    @property
    def ramps(self) -> bool:
        """Whether the next commands of any world are still between those at its start and the policy's."""
        return bool(self._begins.any()) or self._gate.ramps

    def reset(self, num_worlds: int) -> None:
        """Clears the state, sets the number of worlds, and starts all of them."""
        self._policy.reset(num_worlds)
        self._gate = StartGate(self.contract, num_worlds)
        self._begins = np.ones(num_worlds, bool)
        self._last = {}

    def reset_worlds(self, mask: Bools) -> None:
        """Clears the state of the masked worlds, shape (num_worlds,), and starts them."""
        self._policy.reset_worlds(mask)
        self._begins |= mask

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> Mapping[str, Array]:
        """Joint commands of one control period, see `Policy`; a ramp needs the sensor `joint_pos`."""
        targets = self._policy(sensors, commands)
        gate = self._gate
        if self._begins.any():
            rest = gate.at_rest(sensors["joint_pos"])
            gate.begin(rest, self._begins)
            self._last = {
                name: np.where(self._begins[:, None], value, self._last.get(name, value))
                for name, value in rest.items()
            }
            self._begins[:] = False
        if not gate.ramps:
            return targets
        blended = gate.blend(targets)
        if self._remember is not None:
            # Where the robot gets other commands than the policy's, its memory holds those.
            steps = {name: value - self._last[name] for name, value in blended.items()}
            self._remember(blended, steps, gate.ramping)
        self._last = dict(blended)
        return blended
