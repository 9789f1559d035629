"""The promise: MuJoCo Warp's own solver computes the same motion with sparse matrices as with dense ones."""

from typing import Any

import mujoco
import numpy as np
import pytest
from tests.support.branching_model import branching_model

pytest.importorskip("mujoco_warp")
from physai.sim.engines.warp import modules
from physai.sim.engines.warp_device import WarpDeviceEngine

# Compiles kernels for this machine, once.
pytestmark = pytest.mark.slow
modules()


def test_sparse_matrices_change_no_motion() -> None:
    found: list[Any] = []
    for jacobian in (mujoco.mjtJacobian.mjJAC_SPARSE, mujoco.mjtJacobian.mjJAC_DENSE):
        model = branching_model(0)
        model.opt.jacobian = jacobian
        rng = np.random.default_rng(0)
        qpos, qvel = rng.uniform(-0.6, 0.6, model.nq), 0.3 * rng.normal(size=model.nv)
        engine = WarpDeviceEngine(model, 1, as_numpy=True, max_constraints=100)
        engine.state("qpos")[0], engine.state("qvel")[0] = qpos, qvel
        engine.step(2)
        found.append(np.array(engine.state("qvel")[0]))
    assert np.allclose(*found, rtol=1e-4, atol=1e-4)
