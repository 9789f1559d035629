"""A task that follows the contract of a policy from elsewhere: its success on means, its commands, what it refuses."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import CommandSpec
from physai.sim.envs.environment import Environment
from physai.sim.policies.foreign_contract import following
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task, WorldView
from physai.sim.tasks.walking.legged import middle
from physai.sim.tasks.walking.mean_velocity import WINDOW_S, mean_success

SUCCESS = mean_success(lambda view: view.qpos[:, 2] < 0.1, "velocity_command", tolerance_m_s=0.3, tolerance_rad_s=0.5)


def view(before: list[float], after: list[float], command: tuple[float, float, float]) -> WorldView:
    """One world; places are x, y [m] and heading [rad]."""

    def qpos(place: list[float]) -> Any:
        x, y, yaw = place
        return np.array([[x, y, 0.3, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]])

    fields = {"xp": np, "qpos": qpos(after), "window_qpos": qpos(before)}
    return cast("WorldView", SimpleNamespace(**fields, commands={"velocity_command": np.array([command])}))


def walked(start: list[float], velocity: tuple[float, float, float], steps: int = 20_000) -> list[float]:
    """Where a robot gets that moves with a velocity in its own frame, step by step."""
    x, y, yaw = start
    dt = WINDOW_S / steps
    for _ in range(steps):
        middle_yaw = yaw + 0.5 * velocity[2] * dt
        x += dt * (math.cos(middle_yaw) * velocity[0] - math.sin(middle_yaw) * velocity[1])
        y += dt * (math.sin(middle_yaw) * velocity[0] + math.cos(middle_yaw) * velocity[1])
        yaw += velocity[2] * dt
    return [x, y, yaw]


SPEEDS = st.floats(-1.0, 1.0)


@given(
    start=st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.floats(-10, 10)), command=st.tuples(SPEEDS, SPEEDS, SPEEDS)
)
def test_who_moves_as_commanded_succeeds_wherever_it_begins(
    start: tuple[float, float, float], command: tuple[float, float, float]
) -> None:
    end = walked(list(start), command, steps=400)
    assert SUCCESS.condition(view(list(start), end, command))[0]


@pytest.mark.parametrize(
    ("moved", "met"),
    [
        ((0.75, 0.0, 0.2), True),
        ((0.79, 0.0, 0.2), True),
        ((0.81, 0.0, 0.2), False),
        ((0.5, 0.29, 0.2), True),
        ((0.5, -0.31, 0.2), False),
        ((0.5, 0.0, 0.69), True),
        ((0.5, 0.0, 0.75), False),
        ((0.0, 0.0, 0.2), False),
        ((-0.5, 0.0, 0.2), False),
    ],
)
def test_the_tolerances_are_of_the_mean(moved: tuple[float, float, float], met: bool) -> None:
    """The command is 0.5 m/s forwards and 0.2 rad/s; a turn that is off bends the path, too, by little."""
    start = [3.0, -2.0, 2.5]
    assert bool(SUCCESS.condition(view(start, walked(start, moved), (0.5, 0.0, 0.2)))[0]) is met


def test_who_sways_but_arrives_succeeds_and_who_has_fallen_does_not() -> None:
    start, command = [0.0, 0.0, 0.0], (0.5, 0.0, 0.0)
    seen = view(start, [1.0, 0.2, 0.3], command)
    assert SUCCESS.condition(seen)[0]
    seen.qpos[0, 2] = 0.05
    assert not SUCCESS.condition(seen)[0]


@pytest.fixture(scope="module")
def task() -> Task:
    own = load_task("velocity")
    return following(own, own.contract)


def test_it_keeps_the_robot_and_follows_the_contract(task: Task) -> None:
    own = load_task("velocity")
    document = own.contract.model_dump()
    timing = {**document["timing"], "physics_dt": 0.002, "decimation": 10}
    contract = PolicyContract.model_validate({**document, "timing": timing})
    made = following(own, contract)
    assert made.contract is contract
    assert made.model.opt.timestep == 0.002
    assert own.model.opt.timestep == own.contract.timing.physics_dt == 0.004
    assert made.success is own.mean_success


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"task": "dance"}, "differ in the task: velocity and dance"),
        ({"robot": load_robot("ur10e").spec}, "differ in the robot: its joints, gains"),
        ({"command": CommandSpec()}, "in the commands"),
    ],
)
def test_another_task_robot_or_command_is_refused(task: Task, change: dict[str, Any], phrase: str) -> None:
    with pytest.raises(TaskError, match=phrase):
        following(task, task.contract.model_copy(update=change))


@pytest.mark.parametrize(
    ("lower", "upper"), [((0.0, -0.1, -0.2), (0.3, 0.1, 0.2)), ((-0.5, -2.0, -3.0), (2.4, 2.0, 3.0))]
)
def test_commands_are_drawn_from_the_whole_range_of_the_contract(
    task: Task, lower: tuple[float, ...], upper: tuple[float, ...]
) -> None:
    field = task.contract.command.fields[0].model_copy(update={"lower": lower, "upper": upper})
    command = task.contract.command.model_copy(update={"fields": (field,)})
    made = following(task, task.contract.model_copy(update={"command": command}))
    assert made.command is not None
    drawn = made.command(np.random.default_rng(0).random((500, made.command_draws)))["velocity_command"]
    assert (drawn >= field.lower).all()
    assert (drawn <= field.upper).all()
    assert np.ptp(drawn, axis=0) == pytest.approx(np.subtract(field.upper, field.lower), rel=0.05)
    # One in ten is to stand.
    assert 0.04 < (drawn == 0.0).all(axis=1).mean() < 0.2


def test_the_window_begins_two_seconds_before_a_command_ends(task: Task) -> None:
    """And a snapshot holds it, so that an episode goes on as if nothing had happened."""
    env = Environment(task, 2, seed=1, randomise=False)
    policy = ScriptedPolicy(task.contract, "hold")
    now = env.reset()
    policy.reset(2)
    seen: list[Any] = []
    kept = env.snapshot()
    for step in range(1, 201):
        now = env.step(policy(now.sensors, now.commands))
        seen.append(env.view.qpos.copy())
        if step == 150:
            kept = env.snapshot()
    assert now.judged.all()
    np.testing.assert_array_equal(env.view.window_qpos, seen[99])
    other = Environment(task, 2, seed=1, randomise=False)
    other.restore(kept)
    np.testing.assert_array_equal(other.view.window_qpos, seen[99])


def test_both_environments_judge_the_same_window(task: Task) -> None:
    torch = pytest.importorskip("torch")
    from tests.support.torch_mujoco import TorchMujoco

    from physai.sim.envs.device.device_environment import DeviceEnvironment

    host = Environment(task, 4, seed=1, randomise=False)
    device = DeviceEnvironment(task, TorchMujoco(task, 4), seed=1, randomise=False)
    policy = ScriptedPolicy(task.contract, "zero")
    now = host.reset()
    device.reset()
    policy.reset(4)
    found: Any = None
    for _ in range(200):
        targets = policy(now.sensors, now.commands)
        now, found = host.step(targets), device.step({name: torch.as_tensor(one) for name, one in targets.items()})
    assert now.judged.all()
    assert found.judged.numpy().all()
    np.testing.assert_array_equal(found.succeeded.numpy(), now.succeeded)
    np.testing.assert_allclose(device.view.window_qpos.numpy(), host.view.window_qpos, atol=1e-9)
    kept = device.snapshot()
    other = DeviceEnvironment(task, TorchMujoco(task, 4), seed=1, randomise=False)
    other.reset()
    other.restore(kept)
    assert torch.equal(other.view.window_qpos, device.view.window_qpos)


LOW = """<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="1 1 1"/><body name="base"><freejoint/>
<geom type="box" pos="0 0 0.6" size="0.1 0.1 0.2" mass="8"/>
<body name="leg" pos="0 0 0.4"><joint name="hip" axis="0 1 0" range="-1 1" limited="true"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.35" size="0.05" mass="1"/></body></body></worldbody>
<actuator><position name="hip" joint="hip" kp="50" kv="2" forcerange="-20 20"/></actuator></mujoco>"""


def test_a_base_frame_on_the_floor_is_measured_at_its_middle(tmp_path: Path) -> None:
    assert middle(load_robot("go2")) == 0.0
    path = tmp_path / "low.xml"
    path.write_text(LOW, encoding="utf-8")
    # 8 kg at 0.6 m and 1 kg at 0.4 - 0.175 m.
    assert middle(load_robot(path)) == pytest.approx((8 * 0.6 + 0.225) / 9, abs=1e-9)
