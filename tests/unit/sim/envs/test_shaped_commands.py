"""The policy sees shaped commands in the twin; the task judges by those that were asked for."""

import numpy as np
import pytest
from tests.support.fixtures_sliders import TaskMaker
from tests.support.start_contracts import with_start

from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.task import Task

# 0.1 m/s in periods of 0.04 s.
SLEW = (0.1,)
CHANGE = 0.004


@pytest.fixture
def task(slider_task: TaskMaker) -> Task:
    return with_start(slider_task(command_interval_s=0.2), slew=SLEW)


def act(env: Environment) -> StepResult:
    return env.step({"joint_effort_target": np.zeros((env.num_worlds, 2), np.float32)})


def goals(env: Environment, steps: int) -> Array:
    """Seen goals of the first world, from the reset on."""
    return np.array([env.reset().commands["goal"][0, 0], *(act(env).commands["goal"][0, 0] for _ in range(steps))])


def test_a_command_begins_at_zero_in_each_episode_and_grows_no_faster_than_its_slew(task: Task) -> None:
    # Episodes have 10 periods, and the goals that are drawn are above 0.05 m.
    env = Environment(task, 1, seed=1, num_threads=1)
    first = CHANGE * np.arange(1, 11)
    assert goals(env, 19) == pytest.approx(np.concatenate([first, first]), abs=1e-6)


def test_the_task_judges_by_what_was_asked_for(task: Task) -> None:
    env = Environment(task, 4, seed=1, num_threads=1)
    seen = env.reset().commands["goal"]
    assert (seen < 0.005).all()
    assert (env.view.commands["goal"] > 0.05).all()


def test_a_command_below_the_gate_is_seen_as_zero(slider_task: TaskMaker) -> None:
    env = Environment(with_start(slider_task(), gate=0.5), 64, num_threads=1)
    seen = env.reset().commands["goal"]
    asked = env.view.commands["goal"]
    assert np.array_equal(seen, np.where(asked < 0.5, np.float32(0.0), asked))
    assert 0 < (seen == 0.0).sum() < 64


def test_what_ended_episodes_would_have_seen_next_is_shaped_too(task: Task) -> None:
    env = Environment(task, 1, seed=1, num_threads=1, keep_final=True)
    env.reset()
    result = [act(env) for _ in range(10)][-1]
    assert result.done.all()
    assert result.final_commands is not None
    assert result.final_commands["goal"][0, 0] == pytest.approx(11 * CHANGE, abs=1e-6)
    assert result.commands["goal"][0, 0] == pytest.approx(CHANGE, abs=1e-6)


def test_a_restored_environment_continues_with_the_same_commands(task: Task) -> None:
    env = Environment(task, 3, seed=2, num_threads=1)
    goals(env, 6)
    saved = env.snapshot()
    reference = [act(env).commands["goal"] for _ in range(8)]
    other = Environment(task, 3, seed=2, num_threads=1)
    other.restore(saved)
    for wanted in reference:
        assert np.array_equal(act(other).commands["goal"], wanted)


@pytest.mark.slow
def test_a_device_shows_the_same_commands(slider_task: TaskMaker) -> None:
    torch = pytest.importorskip("torch")
    from tests.support.torch_mujoco import TorchMujoco

    from physai.sim.envs.device.device_environment import DeviceEnvironment
    from physai.sim.tasks.registry import load_task

    go2 = with_start(load_task("go2-velocity"), {"tilt": 0.1}, slew=(1.0, 0.5, 2.0), gate=0.3)
    host, device = Environment(go2, 3, seed=3, num_threads=1), DeviceEnvironment(go2, TorchMujoco(go2, 3), seed=3)
    now, found = host.reset(), device.reset()
    targets = {term.target_name: np.tile(term.offset, (3, 1)) for term in go2.contract.action.terms}
    for _ in range(30):
        np.testing.assert_allclose(
            found.commands["velocity_command"].numpy(), now.commands["velocity_command"], atol=1e-6
        )
        np.testing.assert_allclose(device.view.qpos.numpy(), host.view.qpos, atol=1e-6)
        now = host.step(targets)
        found = device.step({name: torch.as_tensor(value) for name, value in targets.items()})
    assert any(name.startswith("seen/") for name in device.snapshot())
