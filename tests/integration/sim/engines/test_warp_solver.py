"""The promise: MuJoCo Warp's own solver computes the same motion with sparse matrices as with dense ones."""

import mujoco
import numpy as np
import numpy.typing as npt
import pytest
from tests.support.branching_model import branching_model, random_state

pytest.importorskip("mujoco_warp")
from physai.sim.engines.warp import modules
from physai.sim.engines.warp_host import HostWarpEngine

# Compiles kernels for this machine, once.
pytestmark = pytest.mark.slow
modules()


def test_sparse_matrices_change_no_motion() -> None:
    found: list[npt.NDArray[np.float64]] = []
    for jacobian in (mujoco.mjtJacobian.mjJAC_SPARSE, mujoco.mjtJacobian.mjJAC_DENSE):
        model = branching_model(0)
        model.opt.jacobian = jacobian
        qpos, qvel = random_state(model, 0)
        engine = HostWarpEngine(model, 1, fields={}, room=(8, 100))
        engine.state("qpos")[0], engine.state("qvel")[0] = qpos, qvel
        engine.step(2)
        found.append(np.array(engine.state("qvel")[0], np.float64))
    assert np.allclose(*found, rtol=1e-4, atol=1e-4)
