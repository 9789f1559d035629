"""The regressor of inverse dynamics, against MuJoCo's own inverse dynamics."""

from typing import Any

import mujoco
import numpy as np
import pytest

from physai.drift.equations.motion import Kernel
from physai.drift.equations.regressor import InverseDynamics, MotionSamples
from physai.sim.robots import load_robot


def random_motion(model: Any, moments: int = 5) -> MotionSamples:
    rng = np.random.default_rng(0)
    qpos = np.tile(np.array(model.qpos0), (moments, 1))
    for row in qpos:
        mujoco.mj_integratePos(model, row, rng.standard_normal(model.nv), 1.0)
    return MotionSamples(qpos, rng.standard_normal((moments, model.nv)), rng.standard_normal((moments, model.nv)))


@pytest.mark.parametrize("name", ["double_pendulum", "ur10e", "go2"])
def test_efforts_are_those_of_mujoco(name: str) -> None:
    model: Any = load_robot(name).model
    inverse, motion = InverseDynamics(model, np.zeros(0, np.int64)), random_motion(model)
    efforts = np.einsum("tdbn,bn->td", inverse.of(motion).efforts, inverse.numbers(model))
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data: Any = mujoco.MjData(model)
    for moment, ours in enumerate(efforts):
        data.qpos[:], data.qvel[:], data.qacc[:] = motion.qpos[moment], motion.qvel[moment], motion.qacc[moment]
        mujoco.mj_inverse(model, data)
        # MuJoCo's include armature and damping, and leave carried weights to the actuators.
        damping = np.asarray(model.dof_damping).reshape(model.nv, -1)[:, 0] * data.qvel
        theirs = data.qfrc_inverse - model.dof_armature * data.qacc - damping
        carried = data.qfrc_gravcomp if name == "ur10e" else 0.0
        assert ours == pytest.approx(theirs - carried, abs=1e-9)


def test_a_payload_pulls_with_its_weight_although_the_controller_carries_the_arm() -> None:
    model: Any = load_robot("ur10e").model
    inverse = InverseDynamics(model, np.zeros(0, np.int64))
    still = MotionSamples(np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), np.zeros((1, 6)), np.zeros((1, 6)))
    found, row = inverse.of(still), inverse.row("forearm_link")
    kilogram = inverse.numbers(model)[row] / inverse.numbers(model)[row, 0]
    assert found.efforts[0, :, row] @ kilogram == pytest.approx(np.zeros(6), abs=1e-12)
    # Stretched out along the horizontal: the lever of the shoulder is the upper arm, and the forearm's centre of mass.
    lever = 0.613 + float(np.linalg.norm(model.body("forearm_link").ipos))
    assert abs(found.added[0, 1, row] @ kilogram) == pytest.approx(9.81 * lever, rel=0.03)


def test_the_kernel_weighs_accelerations_as_a_parabola_does() -> None:
    kernel = Kernel.of(0.1)
    assert kernel.weight.sum() == pytest.approx(1.0)
    # Of x = t⁴ the parabola over ±h has the second derivative 12·(h²/7): the mean of 12·t² with weight (1 - (t/h)²)².
    assert kernel.mean((12.0 * kernel.offset_s**2)[None])[0] == pytest.approx(12.0 * 0.1**2 / 7.0, rel=0.02)
