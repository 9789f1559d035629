"""Test oracle of a policy graph's state: at every call, its memory of commands must equal the commands sent."""

from collections.abc import Callable, Mapping

import numpy as np

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.io.policy_io import HIDDEN_STATE
from physai.sdk.contract.interface import PREVIOUS_ACTION
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

Memory = dict[str, Floats]
Slices = Mapping[str, slice]

_ACTION_ROUNDING = 1e-5


class MemoryOracle:
    """Tracks a graph's state from its inputs, its outputs and the commands sent."""

    def __init__(self, contract: PolicyContract, slices: Slices, accuse: Callable[[str], None]) -> None:
        """Tracks commands in the order of `slices`; `accuse` is called with each violation."""
        self._terms, self._slices, self._accuse = contract.action.terms, slices, accuse
        self._memory: Memory | None = None
        """Expected state at the next call; None if not known."""
        self._begins = False
        self._if_corrected: Memory = {}
        """Also permitted, if the guard's command happened to equal the policy's own."""
        self._answer: tuple[Memory, Memory] | None = None
        """State and targets that the graph returned in this tick."""
        self.own = 0
        """Commands that were the policy's own."""
        self.corrected = 0
        """Periods in which the policy's own command was not sent."""

    def starts(self) -> None:
        """A start was obeyed: the policy starts from its initial state."""
        self._begins, self._memory, self._if_corrected = True, None, {}

    def changed(self) -> None:
        """Another policy has taken over: its recurrent state starts at 0."""
        if self._memory is not None and HIDDEN_STATE in self._memory:
            self._memory = {**self._memory, HIDDEN_STATE: np.zeros_like(self._memory[HIDDEN_STATE])}

    def asked(self, inputs: Mapping[str, Floats], last: Array | None, step: Array) -> None:
        """The graph is about to be evaluated."""
        given = {name.removeprefix(STATE_PREFIX): v for name, v in inputs.items() if name.startswith(STATE_PREFIX)}
        if self._begins:
            self._judge_first(given, last, step)
        if self._memory is None:
            return
        for name, values in given.items():
            wanted = self._memory[name]
            rounding = _ACTION_ROUNDING if name == PREVIOUS_ACTION else 0.0
            allowed = (wanted, self._if_corrected.get(name, wanted))
            if not any((np.abs(values - one) <= rounding).all() for one in allowed):
                self._accuse(f"the policy's state {name} is {values[0]}, expected {wanted[0]}")

    def _judge_first(self, given: Memory, last: Array | None, step: Array) -> None:
        """Handles the first call, whose command is not sent but which fills the histories."""
        if not given or not given["started"].any():
            self._memory = {name: np.zeros_like(values) for name, values in given.items()}
        elif last is not None and self._answer is not None:
            self._begins = False
            commands = self._commands(last, step, given)
            commands.pop(PREVIOUS_ACTION, None)
            histories = {name: v for name, v in self._answer[0].items() if name.startswith(("started", "history_"))}
            self._memory = {**{name: np.zeros_like(values) for name, values in given.items()}, **histories, **commands}

    def computed(self, outputs: Mapping[str, Floats]) -> None:
        """The graph was evaluated."""
        if all(np.isfinite(values).all() for values in outputs.values()):
            memory = {n.removeprefix(NEXT_PREFIX): v.copy() for n, v in outputs.items() if n.startswith(NEXT_PREFIX)}
            self._answer = memory, {n: v.copy() for n, v in outputs.items() if not n.startswith(NEXT_PREFIX)}

    def ends(self, before: int, state: int, sent: Array | None, last: Array | None, step: Array) -> None:
        """A tick has ended; `last` and `step` are those after it."""
        answer, self._answer = self._answer, None
        if not before == state == GuardState.RUN or last is None or self._begins:
            return
        if answer is not None:
            self._memory = answer[0]
            own = np.concatenate([answer[1][name][0] for name in self._slices])
            if sent is not None and np.array_equal(own, sent):
                self.own += 1
                self._if_corrected = self._commands(last, step, answer[0])
                return
        self.corrected += 1
        self._if_corrected = {}
        self.idles(last, step)

    def idles(self, last: Array | None, step: Array) -> None:
        """The policy's command was replaced, or nothing was sent."""
        if self._memory is not None and last is not None:
            self._memory = {**self._memory, **self._commands(last, step, self._memory)}

    def _commands(self, last: Array, step: Array, memory: Mapping[str, Floats]) -> Memory:
        """Expected values of the states that hold commands."""
        expected: Memory = {}
        actions: list[Array] = []
        for term in self._terms:
            part, name = self._slices[term.target_name], term.target_name
            values = {f"last_{name}": last[part], f"step_{name}": step[part]}
            expected |= {key: value.astype(np.float32)[None] for key, value in values.items() if key in memory}
            wanted = step[part] if term.kind.endswith("_incremental") else last[part] - np.array(term.offset)
            actions.append(np.clip(wanted / np.array(term.scale), -1.0, 1.0))
        if PREVIOUS_ACTION in memory:
            expected[PREVIOUS_ACTION] = np.concatenate(actions).astype(np.float32)[None]
        return expected
