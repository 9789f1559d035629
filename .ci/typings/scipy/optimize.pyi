from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

class OptimizeResult:
    x: NDArray[np.float64]
    cost: float

def least_squares(
    fun: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    x0: NDArray[np.float64],
    *,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],
    max_nfev: int | None = ...,
) -> OptimizeResult: ...
