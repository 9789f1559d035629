"""The board's trial: its twin against the textbook equations, its loop against trivial policies."""

import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from realaigym.errors import DesignError
from realaigym.trial import EPISODE_S, STEP_S, TORQUE_LIMIT, board_model, board_name, play_trial

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.pendulums.double_pendulum import acrobot_swingup, pendubot_swingup

Vector = NDArray[np.float64]

# Design C.1, model 1.0: masses [kg], distances to the centres of mass [m], inertias about them [kg·m²], first link [m].
M1, M2, R1, R2, L1 = 0.5234602302310271, 0.6255677234174437, 0.2, 0.25569305436052964, 0.2
I1, I2, GRAVITY = 0.010948790, 0.009970895, 9.81


class Constant:
    """Answers the same torque always and notes what it was shown."""

    def __init__(self, contract: PolicyContract, torque: float) -> None:
        self.contract, self.torque = contract, torque
        self.resets: list[int] = []
        self.seen: list[dict[str, Any]] = []

    def reset(self, num_worlds: int) -> None:
        self.resets.append(num_worlds)

    def reset_worlds(self, mask: NDArray[np.bool_]) -> None:
        raise AssertionError("one trial is one episode")

    def __call__(self, sensors: Mapping[str, Any], commands: Mapping[str, Any]) -> dict[str, Any]:
        self.seen.append(dict(sensors))
        return {"joint_effort_target": np.array([[self.torque]], np.float32)}


def acceleration(pos: Vector, vel: Vector, effort: Vector) -> Vector:
    """M(q) q'' + C(q, q') q' + G(q) = τ of two links (Spong, Hutchinson, Vidyasagar: Robot Modeling and Control)."""
    coupling = M2 * L1 * R2
    m12 = I2 + M2 * R2**2 + coupling * math.cos(pos[1])
    m22 = I2 + M2 * R2**2
    m11 = I1 + M1 * R1**2 + M2 * L1**2 + m12 + coupling * math.cos(pos[1])
    bend = coupling * math.sin(pos[1])
    coriolis = np.array([-bend * (2.0 * vel[0] * vel[1] + vel[1] ** 2), bend * vel[0] ** 2])
    tip = M2 * R2 * math.sin(pos[0] + pos[1])
    weight = GRAVITY * np.array([(M1 * R1 + M2 * L1) * math.sin(pos[0]) + tip, tip])
    return np.linalg.solve(np.array([[m11, m12], [m12, m22]]), effort - coriolis - weight).astype(np.float64)


def runge_kutta_4(pos: Vector, vel: Vector, effort: Vector, dt: float) -> tuple[Vector, Vector]:
    def rate(state: Vector) -> Vector:
        return np.concatenate([state[2:], acceleration(state[:2], state[2:], effort)])

    state = np.concatenate([pos, vel])
    k1 = rate(state)
    k2 = rate(state + 0.5 * dt * k1)
    k3 = rate(state + 0.5 * dt * k2)
    k4 = rate(state + dt * k3)
    state = state + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return state[:2], state[2:]


def test_the_board_has_no_friction_damping_or_rotor_inertia() -> None:
    model = board_model()
    for field in (model.dof_damping, model.dof_frictionloss, model.dof_armature):
        assert field.tolist() == [0.0, 0.0]
    assert model.opt.timestep == STEP_S
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4


@pytest.mark.parametrize("torque", [(2.5, 0.0), (0.0, -1.5), (0.0, 0.0)])
def test_a_held_torque_moves_it_as_the_textbook_says(torque: tuple[float, float]) -> None:
    model = board_model()
    data = mujoco.MjData(model)
    pos, vel, effort = np.array([0.3, -0.8]), np.array([1.0, 2.0]), np.array(torque)
    data.qpos[:], data.qvel[:], data.ctrl[:] = pos, vel, effort
    for _ in range(round(0.2 / STEP_S)):
        mujoco.mj_step(model, data)
        pos, vel = runge_kutta_4(pos, vel, effort, STEP_S)
    np.testing.assert_allclose(data.qpos, pos, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(data.qvel, vel, rtol=0.0, atol=1e-9)
    assert np.abs(data.qpos - (0.3, -0.8)).max() > 0.1


def test_doing_nothing_hangs_there_and_scores_0() -> None:
    contract = pendubot_swingup().contract
    policy = Constant(contract, 0.0)
    verdict = play_trial(policy, contract)
    assert (verdict.success, verdict.value) == (False, 0.0)
    assert (verdict.criteria.energy, verdict.criteria.torque_cost) == (0.0, 0.0)
    assert verdict.criteria.velocity_cost == pytest.approx(0.0, abs=1e-20)
    assert policy.resets == [1]
    assert len(policy.seen) == round(EPISODE_S / contract.timing.control_dt)


@pytest.mark.parametrize("make", [pendubot_swingup, acrobot_swingup])
def test_the_torque_is_clipped_to_the_motor_and_held(make: Any) -> None:
    contract = make().contract
    policy = Constant(contract, 100.0)
    verdict = play_trial(policy, contract)
    # One joint at its limit in 4999 intervals of 2 ms, a first effort that never changes.
    assert verdict.criteria.torque_cost == pytest.approx(TORQUE_LIMIT**2 * 4999 * STEP_S)
    assert verdict.criteria.torque_smoothness == 0.0
    assert policy.seen[0]["joint_pos"].tolist() == [[0.0, 0.0]]
    assert policy.seen[0]["joint_pos"].dtype == np.float32
    period = round(contract.timing.control_dt / STEP_S)
    effort = np.array([TORQUE_LIMIT, 0.0] if make is pendubot_swingup else [0.0, TORQUE_LIMIT])
    pos, vel = np.zeros(2), np.zeros(2)
    for _ in range(period):
        pos, vel = runge_kutta_4(pos, vel, effort, STEP_S)
    np.testing.assert_allclose(policy.seen[1]["joint_pos"][0], pos, rtol=1e-6)


def test_the_board_is_named_by_the_driven_joint() -> None:
    assert board_name(pendubot_swingup().contract) == "pendubot"
    assert board_name(acrobot_swingup().contract) == "acrobot"


def test_another_robot_is_refused() -> None:
    contract = cartpole_swingup().contract
    with pytest.raises(DesignError, match="for the double pendulum with one motor, got cartpole driving"):
        play_trial(Constant(contract, 0.0), contract)


def test_a_control_period_between_two_steps_is_refused() -> None:
    contract = pendubot_swingup().contract
    timing = contract.timing.model_copy(update={"control_dt": 0.005})
    odd = contract.model_copy(update={"timing": timing})
    with pytest.raises(DesignError, match=r"control_dt 0\.005 s is not a multiple of the board's step 0\.002 s"):
        play_trial(Constant(odd, 0.0), odd)
