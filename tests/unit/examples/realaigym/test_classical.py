"""Designed controllers: equations of motion against MuJoCo, Riccati's laws, and what a tracker commands."""

import importlib
import math
import sys
from typing import Any

import casadi
import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from realaigym.dynamics import acceleration, runge_kutta
from realaigym.errors import DesignError
from realaigym.swing_up import SwingUp, optimised_swing_up
from realaigym.tracking import Tracker, Trajectory, linearised, lqr, track, tvlqr
from realaigym.trial import board_model

from physai.sim import load_task

TREE = """<mujoco><worldbody><body pos="0 0 1" quat="0.9 0.1 0.2 0.3">
<joint name="slide" type="slide" axis="1 0 1" damping="0.2"/><geom type="box" size=".1 .2 .3" mass="2"/>
<body pos=".1 .2 0"><joint name="hinge" axis="0 1 .5" pos="0 .1 0" armature=".1" stiffness="3"/>
<geom type="box" size=".1 .05 .2" pos="0 .1 .2" quat="1 .5 0 0" mass="1"/></body>
<body pos="-.1 0 .2"><joint name="other" axis="1 0 0" ref="0.4"/><geom type="capsule" size=".05 .2" mass=".7"/></body>
</body></worldbody></mujoco>"""


def tree() -> Any:
    return mujoco.MjSpec.from_string(TREE).compile()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3.0, 3.0), min_size=9, max_size=9))
def test_the_equations_of_motion_are_mujocos(values: list[float]) -> None:
    model = tree()
    data: Any = mujoco.MjData(model)
    model.opt.disableflags = int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = np.split(np.array(values), 3)
    mujoco.mj_forward(model, data)
    ours = np.array(acceleration(model)(data.qpos, data.qvel, data.qfrc_applied)).ravel()
    assert ours == pytest.approx(data.qacc, rel=1e-6, abs=1e-6)


def test_a_runge_kutta_step_is_mujocos() -> None:
    model = board_model()
    data: Any = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = (1.0, -0.5), (2.0, 3.0), (0.5, 0.0)
    state = np.r_[data.qpos, data.qvel]
    mujoco.mj_step(model, data)
    ours = np.array(runge_kutta(model)(state, data.ctrl, model.opt.timestep)).ravel()
    assert ours == pytest.approx(np.r_[data.qpos, data.qvel], abs=1e-12)


def test_lqr_of_a_scalar_system() -> None:
    # x' = x + u, Q = R = 1: p² = p + 1 is the golden ratio's equation, and K = p / (1 + p) = 1 / p.
    golden = (1.0 + math.sqrt(5.0)) / 2.0
    assert lqr([[1.0]], [[1.0]], [[1.0]], [[1.0]])[0, 0] == pytest.approx(1.0 / golden)


def test_tvlqr_far_from_its_end_is_lqr() -> None:
    a, b = np.array([[1.0, 0.1], [0.2, 1.1]]), np.array([[0.0], [0.1]])
    gains = tvlqr([a] * 400, [b] * 400, np.eye(2), [[1.0]], np.zeros((2, 2)))
    assert gains[0] == pytest.approx(lqr(a, b, np.eye(2), [[1.0]]), rel=1e-6)
    assert gains[-1] == pytest.approx(np.zeros((1, 2)))  # after the last step nothing costs


def test_linearised_predicts_the_next_state() -> None:
    task = load_task("cartpole-swingup")
    rest = np.zeros(4)
    a, b = linearised(task, rest)
    data: Any = mujoco.MjData(task.model)
    data.qpos[:], data.ctrl[:] = (0.0, 1e-4), 1e-3
    for _ in range(task.contract.timing.decimation):
        mujoco.mj_step(task.model, data)
    assert a @ [0.0, 1e-4, 0.0, 0.0] + b[:, 0] * 1e-3 == pytest.approx(np.r_[data.qpos, data.qvel], abs=1e-9)


def test_a_tracker_follows_and_then_holds() -> None:
    tracker = Tracker([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [[5.0], [6.0]], [[[1.0, 0.0]], [[2.0, 0.0]]], [[3.0, 0.0]])
    fields = {"joint_pos": torch.tensor([[0.5]]), "joint_vel": torch.tensor([[0.0]])}
    memory, commands = torch.zeros(1, 1), list[float]()
    for _ in range(4):
        command, memory = tracker(fields, memory)
        commands.append(float(command))
    # effort - gain (position - 0.5): 5 - 0.5, 6 + 2 · 0.5, then 0 + 3 · 1.5 for ever.
    assert commands == [4.5, 7.0, 4.5, 4.5]
    assert float(memory) == 2.0


def test_a_tracked_balance_brings_a_disturbed_pole_back() -> None:
    task = load_task("cartpole-swingup")
    upright = Trajectory(states=np.zeros((101, 4)), efforts=np.zeros((100, 1)), steps_to_up=0, cost=0.0)
    tracker, memory = track(task, upright), torch.zeros(1, 1)
    data: Any = mujoco.MjData(task.model)
    data.qpos[:] = 0.1, 0.1  # m and rad, beyond what falls back by itself
    for _ in range(600):
        fields = {"joint_pos": torch.tensor(data.qpos[None]), "joint_vel": torch.tensor(data.qvel[None])}
        command, memory = tracker(fields, memory)
        data.ctrl[:] = np.clip(float(command), -10.0, 10.0)
        mujoco.mj_step(task.model, data, task.contract.timing.decimation)
    assert float(memory) == 100.0
    assert np.abs(data.qpos).max() < 1e-3


@pytest.mark.slow
def test_a_pole_swings_up_within_its_limits() -> None:
    # One link without damping: 1 N·m cannot lift its 0.5 kg at 0.5 m (2.45 N·m), so it has to swing.
    text = """<mujoco><option timestep="0.02"/><worldbody><body><joint axis="0 1 0"/>
    <geom type="sphere" size="0.05" pos="0 0 -0.5" mass="0.5" contype="0"/></body></worldbody></mujoco>"""
    problem = SwingUp(
        model=mujoco.MjSpec.from_string(text).compile(),
        driven=0,
        top=(math.pi,),
        step_s=0.02,
        effort_limit=1.0,
        rate_limit=20.0,
        is_up=lambda q: -0.9 - casadi.cos(q[0]),
        cost=lambda totals: totals.effort + totals.time,
    )
    lines: list[str] = []
    found = optimised_swing_up(problem, guesses=4, progress=lines.append)
    assert len(lines) == 4
    assert np.abs(found.efforts).max() <= 1.0 + 1e-6
    assert np.abs(np.diff(found.efforts[:, 0])).max() <= 20.0 * 0.02 + 1e-6
    assert found.states[0] == pytest.approx([0.0, 0.0])
    assert found.states[-1] == pytest.approx([math.pi, 0.0])
    assert (np.cos(found.states[found.steps_to_up :, 0]) <= -0.9 + 1e-6).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: lqr([[math.nan]], [[1.0]], [[1.0]], [[1.0]]), "a has values that are not finite"),
        (lambda: lqr([[1.0]], [1.0], [[1.0]], [[1.0]]), "b has shape"),
        (lambda: lqr([[2.0]], [[0.0]], [[1.0]], [[1.0]]), "no gain exists"),
        (lambda: tvlqr([[1.0]], [[1.0]], [[1.0]], [[1.0]], [[1.0]]), "one matrix per step"),
        (lambda: Tracker([[0.0]], [[1.0]], [[[1.0]]], [[1.0]]), "expected .steps . 1, states."),
        (lambda: linearised(load_task("cartpole-swingup"), [0.0]), "expected .4,."),
        (
            lambda: track(load_task("go2-velocity"), Trajectory(np.zeros((2, 2)), np.zeros((1, 1)), 0, 0.0)),
            "commands 12",
        ),
        (lambda: linearised(load_task("go2-velocity"), [0.0]), "hinges and slides"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        wrong()


def test_a_trajectory_stays_on_its_rail() -> None:
    # 1 kg over 0.9 m and back to rest, on a rail that ends at 1 m: never beyond it, and at most 2 N.
    text = """<mujoco><worldbody><body><joint type="slide" axis="1 0 0" range="-0.1 1" limited="true"/>
    <geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
    problem = SwingUp(
        model=mujoco.MjSpec.from_string(text).compile(),
        driven=0,
        top=(0.9,),
        step_s=0.02,
        effort_limit=2.0,
        rate_limit=50.0,
        is_up=lambda q: q[0] - 0.85,
        cost=lambda totals: totals.time,
    )
    found = optimised_swing_up(problem, guesses=2)
    assert found.states[:, 0].min() >= -0.1 - 1e-6
    assert found.states[:, 0].max() <= 1.0 + 1e-6
    with pytest.raises(DesignError, match="guesses is 0"):
        optimised_swing_up(problem, guesses=0)


def test_a_floating_body_has_no_equations_here() -> None:
    with pytest.raises(DesignError, match="neither a hinge nor a slide"):
        acceleration(load_task("go2-velocity").model)


def test_without_casadi_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name in ("realaigym.dynamics", "realaigym.swing_up") or name == "casadi"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(DesignError, match=r"casadi.*pip install 'physai-sdk\[design\]'"):
        importlib.import_module("realaigym.swing_up")


def test_dry_friction_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    text = """<mujoco><worldbody><body><joint axis="0 1 0" frictionloss="{}"/><geom size=".1" mass="1"/></body>
      </worldbody></mujoco>"""
    acceleration(mujoco.MjSpec.from_string(text.format(0)).compile())
    assert not caplog.records
    acceleration(mujoco.MjSpec.from_string(text.format(0.1)).compile())
    assert "dry friction of the model is left out" in caplog.text
