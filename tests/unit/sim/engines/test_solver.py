"""The promise: a robot whose kinematic tree branches has the same motion with sparse matrices as with dense ones."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from tests.support.branching_model import PARENTS, branching_model, branching_spec, random_state

from physai.sim.engines.mujoco import MujocoEngine, quiet_model
from physai.sim.robots.loader import load_robot

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


def test_a_robot_is_loaded_with_the_right_solver(tmp_path: Path) -> None:
    """So that its import and `robots check`, which step it themselves, see what is trained on."""
    model = branching_model(0)
    spec = branching_spec(0)
    spec.option.jacobian = SPARSE
    spec.compile()
    path = tmp_path / "branching.xml"
    path.write_text(spec.to_xml())
    robot = load_robot(str(path))
    assert int(robot.model.opt.jacobian) == (DENSE if mujoco.mj_versionString() == "4.0.0" else SPARSE)
    qpos, qvel = random_state(model, 0)
    model.opt.jacobian = DENSE
    mine, right = mujoco.MjData(robot.model), mujoco.MjData(model)
    for one, of in ((mine, robot.model), (right, model)):
        one.qpos[:], one.qvel[:] = qpos, qvel
        mujoco.mj_step(of, one, nstep=2)
    # The file has fewer digits; what is wrong is so by half.
    assert np.allclose(mine.qvel, right.qvel, rtol=1e-4, atol=1e-4)


def test_only_what_is_computed_wrong_is_changed() -> None:
    """Sparse matrices are faster where there are many joints."""
    wrong = mujoco.mj_versionString() == "4.0.0"
    chain, small, large = (branching_model(0, tuple(range(-1, count - 1))) for count in (12, 12, 70))
    branching, tree = branching_model(0), branching_model(0, (*PARENTS, *range(11, 70)))
    chain.opt.jacobian = SPARSE
    assert [int(quiet_model(model).opt.jacobian) for model in (chain, small, large)] == [SPARSE, AUTO, AUTO]
    assert [int(quiet_model(model).opt.jacobian) for model in (branching, tree)] == [AUTO, DENSE if wrong else AUTO]
