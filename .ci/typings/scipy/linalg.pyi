from typing import Any

import numpy as np
from numpy.typing import NDArray

def solve_discrete_are(a: Any, b: Any, q: Any, r: Any) -> NDArray[np.float64]: ...
