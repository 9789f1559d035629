"""Inference engine interface: one call per tick, batch size 1, explicit state."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sdk.policy.header import PolicyHeader

Floats = npt.NDArray[np.float32]


class InferenceError(PhysaiError):
    """A policy cannot be loaded or run on this machine."""


class InferenceEngine(Protocol):
    """A loaded policy."""

    @property
    def header(self) -> PolicyHeader:
        """Contract, names and sizes of the graph."""
        ...

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the software and the GPU that run the policy, by name."""
        ...

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """Compute all outputs of the graph for one state.

        Args:
            inputs: every input of `header.inputs`, float32, shape (1, size).

        Returns:
            Every output of `header.outputs`, shape (1, size), valid until the next call.

        Raises:
            EngineError: the computation fails.
        """
        ...
