"""The promise: a robot whose kinematic tree branches has the same motion with sparse matrices as with dense ones."""

from typing import Any

import mujoco
import numpy as np
import pytest
from tests.support.branching_model import PARENTS, branching_model, random_state

from physai.sim.engines.mujoco import MujocoEngine, quiet_model

SPARSE, DENSE = int(mujoco.mjtJacobian.mjJAC_SPARSE), int(mujoco.mjtJacobian.mjJAC_DENSE)
AUTO = int(mujoco.mjtJacobian.mjJAC_AUTO)


@pytest.mark.parametrize("seed", range(8))
def test_sparse_matrices_change_no_motion(seed: int) -> None:
    model = branching_model(seed)
    model.opt.jacobian = SPARSE
    qpos, qvel = random_state(model, seed)
    engine = MujocoEngine(model, 1)
    engine.state("qpos")[0], engine.state("qvel")[0] = qpos, qvel
    engine.step(2)
    model.opt.jacobian = DENSE
    data: Any = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_step(model, data, nstep=2)
    assert np.allclose(engine.state("qvel")[0], data.qvel, rtol=1e-6, atol=1e-6)


def test_only_what_is_computed_wrong_is_changed() -> None:
    """Sparse matrices are faster where there are many joints."""
    wrong = mujoco.mj_versionString() == "4.0.0"
    chain, small, large = (branching_model(0, tuple(range(-1, count - 1))) for count in (12, 12, 70))
    branching, tree = branching_model(0), branching_model(0, (*PARENTS, *range(11, 70)))
    chain.opt.jacobian = SPARSE
    assert [int(quiet_model(model).opt.jacobian) for model in (chain, small, large)] == [SPARSE, AUTO, AUTO]
    assert [int(quiet_model(model).opt.jacobian) for model in (branching, tree)] == [AUTO, DENSE if wrong else AUTO]
