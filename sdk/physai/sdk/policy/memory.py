"""Correction of a policy graph's command memory after the guard has intervened.

A graph feeds its last commands back to itself. After a control period in which the guard replaced or limited them, that
memory holds a command that was never sent. The twin and the robot's runtime both overwrite it here, with the graph's
arithmetic: overwriting it with the graph's own commands leaves it unchanged bit for bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.interface import PREVIOUS_ACTION, last_memory, step_memory
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm
from physai.sdk.policy.header import PolicyError

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Memory = Mapping[str, Floats]
"""Memories of a graph by name, shape (n, size) each."""
Commands = Mapping[str, npt.NDArray[np.floating]]
"""Commands, or their changes, by output name, shape (n, joints of the term)."""


class CommandMemory:
    """Overwrites the command memories of a contract's graphs."""

    def __init__(self, contract: PolicyContract) -> None:
        self._terms = [_Term.of(term) for term in contract.action.terms]
        ends = np.cumsum([len(term.scale) for term in self._terms]).tolist()
        self._columns = [slice(end - len(term.scale), end) for term, end in zip(self._terms, ends, strict=True)]

    def overwrite(self, memory: Memory, sent: Commands, steps: Commands, mask: Bools | None = None) -> None:
        """Write the commands that were sent into the memory, in place; other memories are unchanged.

        The previous action becomes the one that leads to the command that was sent, within the limit of the output.

        Args:
            memory: memory of the graph after the control period.
            sent: commands sent to the joints [rad, m, N·m or N].
            steps: their changes from the previous control period; 0 in the first one, and after one in which nothing
                was sent.
            mask: worlds to overwrite, shape (n,): those in which something other than the graph's own commands was
                sent; None for all.

        Raises:
            PolicyError: an output is missing, or an array has another shape.
        """
        rows = slice(None) if mask is None else mask
        for term, columns in zip(self._terms, self._columns, strict=True):
            values = _of(term, sent, "sent")[rows]
            changes = _of(term, steps, "steps")[rows]
            _put(memory.get(last_memory(term.name)), values, rows)
            _put(memory.get(step_memory(term.name)), changes, rows)
            if PREVIOUS_ACTION in memory:
                _put(memory[PREVIOUS_ACTION][:, columns], term.action(values, changes), rows)


@dataclass(frozen=True, slots=True)
class _Term:
    """An action term as arrays."""

    name: str
    incremental: bool
    scale: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]
    limit: float

    @classmethod
    def of(cls, term: ActionTerm) -> "_Term":
        incremental = term.kind.endswith("_incremental")
        limit = np.inf if term.output_limit is None else term.output_limit
        return cls(term.target_name, incremental, np.array(term.scale), np.array(term.offset), limit)

    def action(self, sent: npt.NDArray[np.floating], steps: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the network output that leads to a command, shape (n, joints): the inverse of `ActionTerm`."""
        scaled = steps if self.incremental else sent - self.offset
        return np.minimum(np.maximum(scaled / self.scale, -self.limit), self.limit)


def _of(term: _Term, commands: Commands, label: str) -> npt.NDArray[np.floating]:
    if term.name not in commands:
        raise PolicyError(f"{label} lacks the output {term.name!r}, it has {', '.join(commands) or 'none'}")
    values = commands[term.name]
    if values.ndim != 2 or values.shape[1] != len(term.scale):
        raise PolicyError(f"{label}: {term.name!r} has shape {values.shape}, expected (n, {len(term.scale)})")
    return values


def _put(array: Floats | None, values: npt.NDArray[np.floating], rows: Bools | slice) -> None:
    if array is not None:
        array[rows] = values
