"""Constants of a task's functions, kept wherever the state is."""

from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from physai.sim.engines.protocol import Array


class Constant:
    """Numbers that a task's functions combine with the state; copied to each device once.

    A numpy array would be copied to the device in every step, which costs more than the term and cannot be recorded in
    a CUDA graph.
    """

    def __init__(self, values: npt.ArrayLike) -> None:
        """Real numbers, or whole ones for indices."""
        self._values: npt.NDArray[Any] = np.asarray(values)
        self._copies: dict[tuple[str, str], Array] = {}

    def like(self, array: Array) -> Array:
        """The numbers where `array` is; real ones in its precision."""
        if isinstance(array, np.ndarray):
            return self._values
        key = str(array.device), str(array.dtype)
        if key not in self._copies:
            xp: Any = array_namespace(array)
            dtype = array.dtype if self._values.dtype.kind == "f" else xp.int64
            self._copies[key] = xp.asarray(self._values, dtype=dtype, device=array.device)
        return self._copies[key]
