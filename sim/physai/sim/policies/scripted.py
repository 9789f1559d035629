"""Scripted policies, as baselines and for inspecting a task."""

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import unknown_name
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm
from physai.sim.engines.protocol import Array

AgentName = Literal["zero", "random", "hold"]
AGENTS: tuple[AgentName, ...] = get_args(AgentName)
Floats = npt.NDArray[np.float32]


class ScriptedPolicy:
    """A `physai.sim.policies.evaluate.Policy` without a network.

    `zero` applies network outputs of zero: the action terms' offsets, or the initial positions for incremental terms.
    `random` draws network outputs uniformly from [-1, 1] in every control period. `hold` commands the positions at the
    start of the episode, and zero effort.
    """

    def __init__(self, contract: PolicyContract, name: str, *, seed: int = 0) -> None:
        """Initialises the agent; call `reset` before the first command.

        Args:
            contract: contract of the task to play.
            name: one of AGENTS.
            seed: seed of the `random` agent.

        Raises:
            UnknownNameError: there is no agent `name`.
        """
        if name not in AGENTS:
            raise unknown_name("agent", name, AGENTS)
        self._contract = contract
        self.name = name
        self._random = np.random.default_rng(seed)
        self._last: dict[str, Floats] = {}
        self._fresh: npt.NDArray[np.bool_] = np.ones(0, bool)

    @property
    def contract(self) -> PolicyContract:
        """The contract of the task to play."""
        return self._contract

    def reset(self, num_worlds: int) -> None:
        """Clears the state and sets the number of worlds."""
        self._fresh = np.ones(num_worlds, bool)
        self._last = {
            term.target_name: np.zeros((num_worlds, len(term.joints)), np.float32)
            for term in self._contract.action.terms
        }

    def reset_worlds(self, mask: npt.NDArray[np.bool_]) -> None:
        """Clears the state of the masked worlds, shape (num_worlds,)."""
        self._fresh |= mask

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> dict[str, Floats]:
        """Joint commands of one control period by output name, shape (num_worlds, joints of the term)."""
        targets = {term.target_name: self._command(term, sensors) for term in self._contract.action.terms}
        self._fresh[:] = False
        self._last = targets
        return targets

    def _command(self, term: ActionTerm, sensors: Mapping[str, Array]) -> Floats:
        last = np.where(self._fresh[:, None], self._start(term, sensors), self._last[term.target_name])
        if self.name == "hold":
            return last.astype(np.float32)
        output = self._random.uniform(-1.0, 1.0, last.shape) if self.name == "random" else np.zeros(last.shape)
        # An incremental term adds to the last command, an absolute one to its offset.
        base = last if term.kind.endswith("_incremental") else np.asarray(term.offset)
        return np.clip(base + np.asarray(term.scale) * output, term.lower, term.upper).astype(np.float32)

    def _start(self, term: ActionTerm, sensors: Mapping[str, Array]) -> Array:
        """Measured positions, or zero effort; shape (num_worlds, joints of the term)."""
        joints = self._contract.robot.joint_index(term.joints)
        if not term.kind.startswith("joint_pos"):
            return np.zeros((len(self._fresh), len(joints)))
        if "joint_pos" in sensors:
            return sensors["joint_pos"][:, list(joints)]
        # A graph with absolute position targets may not read joint_pos; use the default positions instead.
        start = [self._contract.robot.joints[joint].default_pos for joint in joints]
        return np.tile(start, (len(self._fresh), 1))
