"""A reader of one's own: recordings in NumPy's npz files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def read_npz(path: Path) -> Mapping[str, NDArray[np.float64]]:
    """Columns of a recording by name: `time` [s], and for each joint `NAME_pos`, `NAME_vel`, `NAME_effort`."""
    # Without pickle: a recording must not run code.
    with np.load(path, allow_pickle=False) as file:
        return {name: np.asarray(file[name], np.float64) for name in file.files}
