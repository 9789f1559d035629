"""The device environment computes the readings that the CPU environment computes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Delay, SensorModel

torch = pytest.importorskip("torch")
from tests.support.torch_mujoco import TorchMujoco  # noqa: E402

from physai.sim.envs.device.device_environment import DeviceEnvironment  # noqa: E402

WORLDS, STEPS = 6, 60
MODELS = {
    "difference": {
        "joint_pos": SensorModel(noise_std=1e-3, bias=0.01, bias_mean=(0.02, -0.03)),
        "joint_vel": SensorModel(difference_span=2),
    },
    "filtered difference": {
        "joint_pos": SensorModel(noise_std=1e-3, resolution=2.0**-10),
        "joint_vel": SensorModel(difference_span=1, time_constant_s=0.01, noise_std=0.01),
    },
    "filter": {"joint_pos": SensorModel(time_constant_s=0.004), "joint_vel": SensorModel(time_constant_s=0.02)},
}


@pytest.mark.parametrize("models", MODELS)
@pytest.mark.parametrize("repeat", [1, 3])
def test_both_read_the_same(models: str, repeat: int) -> None:
    """Up to rounding: a position in float32 up to 8 rad is off by 5e-7, its difference over 2 ms by 5e-4 rad/s. Where
    rounding decides between two steps, the position differs by a whole one, in no more than one reading of 50."""
    base = load_task("pendubot-swingup")
    age = Delay(lower_s=0.0, upper_s=0.008, upper_periods=2.0)  # up to 12 ms
    lag = Delay(lower_s=0.002, upper_s=0.002, lower_periods=1.0, upper_periods=1.0)
    task = replace(base, sensors=MODELS[models], sensor_delay=age, action_delay=lag, episode_length_s=0.09)
    options: dict[str, Any] = {"seed": 3, "randomise": True, "action_repeat": repeat}
    host = Environment(task, WORLDS, num_threads=1, **options)
    device = DeviceEnvironment(task, TorchMujoco(task, WORLDS), **options)
    random, (term,) = np.random.default_rng(0), task.contract.action.terms
    step, found = host.reset(), device.reset()
    apart: list[Any] = []
    ends = 0
    for _ in range(STEPS):
        for name, tolerance in (("joint_pos", 1e-5), ("joint_vel", 2e-3)):
            apart.append(np.abs(found.sensors[name].numpy() - step.sensors[name]) > tolerance)
        targets = [{term.target_name: random.uniform(-3.0, 3.0, (WORLDS, len(term.joints)))} for _ in range(repeat)]
        step = host.step(*targets)
        found = device.step(*({key: torch.as_tensor(value) for key, value in part.items()} for part in targets))
        ends += int(step.done.sum())
    assert np.mean(apart) <= (0.02 if models == "filtered difference" else 0.0)
    assert ends > 0


def test_a_restored_device_environment_continues_bit_for_bit() -> None:
    task = replace(load_task("pendubot-swingup"), sensors=MODELS["filtered difference"])
    (term,) = task.contract.action.terms
    targets = [{term.target_name: torch.full((WORLDS, len(term.joints)), float(i % 3))} for i in range(30)]
    first, second = (DeviceEnvironment(task, TorchMujoco(task, WORLDS), seed=5) for _ in range(2))
    first.reset()
    second.reset()
    for part in targets[:15]:
        first.step(part)
    second.restore(first.snapshot())
    for part in targets[15:]:
        left, right = first.step(part), second.step(part)
        assert all(torch.equal(value, right.sensors[name]) for name, value in left.sensors.items())
