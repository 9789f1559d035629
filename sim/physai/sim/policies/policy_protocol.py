"""Protocol of everything that commands a robot in the twin."""

from collections.abc import Mapping
from typing import Protocol

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.protocol import Array
from physai.sim.envs.step_result import Bools


class Policy(Protocol):
    """Maps sensor fields and commands to joint commands, and keeps its own recurrent state."""

    @property
    def contract(self) -> PolicyContract:
        """The contract it was trained for."""
        ...

    def reset(self, num_worlds: int) -> None:
        """Clears the state and sets the number of worlds."""
        ...

    def reset_worlds(self, mask: Bools) -> None:
        """Clears the state of the masked worlds, shape (num_worlds,)."""
        ...

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> Mapping[str, Array]:
        """Joint commands of one control period by output name, shape (num_worlds, joints of the term)."""
        ...
