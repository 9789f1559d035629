"""Choice of the constraint solver's matrices in a MuJoCo model."""

from typing import Any

import mujoco
import numpy as np

_WRONG_SPARSE = ("4.0.0",)
"""Versions of MuJoCo whose Newton solver computes wrong forces from sparse matrices where a kinematic tree branches."""
_AUTO_SPARSE = 60
"""Degrees of freedom from which MuJoCo chooses sparse matrices by itself."""


def use_right_solver(model: Any) -> Any:
    """Have a model solved with dense matrices where this version of MuJoCo errs with sparse ones; return the model.

    The package `mujoco` 4.0.0 requires its own core, so physai cannot depend on the core 4.0.1, which is right. MuJoCo
    Warp has its own solver, which is right with both.
    """
    auto = model.opt.jacobian == mujoco.mjtJacobian.mjJAC_AUTO and model.nv >= _AUTO_SPARSE
    sparse = auto or model.opt.jacobian == mujoco.mjtJacobian.mjJAC_SPARSE
    parents = np.asarray(model.dof_parentid)
    parents = parents[parents >= 0]
    if sparse and len(np.unique(parents)) < len(parents) and mujoco.mj_versionString() in _WRONG_SPARSE:
        model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    return model
