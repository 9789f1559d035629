# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""MuJoCo Warp plays what MuJoCo plays, and a step of the environment never waits for the device."""

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sdk.base.errors import ModelError, TaskError
from physai.sim.engines.protocol import Stage
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task

torch = pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")
from benchmarks.gpu.counting import OperationCounter  # noqa: E402
from tests.support.devices import DEVICES  # noqa: E402

from physai.sim.engines.warp_device import WarpDeviceEngine  # noqa: E402
from physai.sim.envs.device.device_environment import DeviceEnvironment, seeds_of  # noqa: E402

# Compiles kernels for this machine, once.
pytestmark = pytest.mark.slow

WORLDS = 3
SLIDER = """<mujoco><option timestep="0.01" gravity="0 0 -10"/><worldbody>
  <geom type="plane" size="9 9 .1"/>
  <body pos="0 0 1"><joint type="slide" axis="0 0 1"/><geom size=".1" mass="2"/></body>
</worldbody></mujoco>"""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def engine_of(task: Task, device: str, **options: Any) -> WarpDeviceEngine:
    parameters = ParameterDraws.fields(task)
    return WarpDeviceEngine(
        task.model,
        WORLDS,
        device=device,
        stage=task.stage,
        parameters=parameters,
        derived=task.derived,
        **options,
    )


def targets_of(task: Task) -> Callable[[], dict[str, Any]]:
    random = np.random.default_rng(0)

    def draw() -> dict[str, Any]:
        terms = task.contract.action.terms
        return {t.target_name: np.array(t.offset) + 0.3 * random.uniform(-1, 1, (WORLDS, len(t.joints))) for t in terms}

    return draw


def on_device(targets: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: torch.as_tensor(value, device=device) for name, value in targets.items()}


@pytest.mark.parametrize("name", ["cartpole-swingup", "pendubot-swingup", "ur10e-reach"])
def test_both_engines_play_the_same_for_a_second(name: str, device: str) -> None:
    task = load_task(name)
    host = Environment(task, WORLDS, seed=1, num_threads=1)
    played = DeviceEnvironment(task, engine_of(task, device), seed=1)
    step, found, draw = host.reset(), played.reset(), targets_of(task)
    for _ in range(round(1.0 / host.step_dt)):
        for sensor, value in step.sensors.items():
            assert np.allclose(found.sensors[sensor].cpu().numpy(), value, atol=2e-3), sensor
        assert np.allclose(found.reward.cpu().numpy(), step.reward, atol=1e-4)
        assert np.array_equal(found.terminated.cpu().numpy(), step.terminated)
        targets = draw()
        step, found = host.step(targets), played.step(on_device(targets, device))
    assert np.array_equal(seeds_of(played), host.episode_seeds)
    for field in ParameterDraws.fields(task):
        drawn = played.engine.parameter(field).cpu().numpy()
        assert np.allclose(drawn, host.engine.parameter(field), rtol=1e-6, atol=1e-6), field


@pytest.mark.parametrize("name", ["cartpole-swingup", "pendubot-swingup", "ur10e-reach", "go2-velocity"])
def test_a_step_never_waits_for_the_device(name: str, device: str) -> None:
    task = load_task(name)
    played = DeviceEnvironment(task, engine_of(task, device, record=False), seed=1, training=True)
    played.reset()
    targets = on_device(targets_of(task)(), device)
    played.step(targets)
    with OperationCounter() as counter:
        played.step(targets)
    assert counter.waits == []
    assert counter.torch_kernels > 100 < counter.warp_kernels
    # The counter itself sees what it looks for.
    with OperationCounter() as counter:
        _ = float(played.view.qpos[0, 0]), played.view.qpos[played.view.qpos[:, 0] > 0.0]
    assert counter.waits == ["_local_scalar_dense", "index"]


def falling(device: str, **options: Any) -> WarpDeviceEngine:
    model = mujoco.MjSpec.from_string(SLIDER).compile()
    return WarpDeviceEngine(
        model, 2, device=device, stage=Stage.POSITION, parameters=("body_mass",), derived=("xpos",), **options
    )


def test_only_masked_worlds_are_reset(device: str) -> None:
    engine = falling(device)
    mask = torch.tensor([True, False], device=device)
    engine.drive(torch.zeros(2, 10, 0, device=device))
    # Semi-implicit Euler under 10 m/s²: -0.1 m/s per step, and -0.001 m times 1 + 2 + … + 10.
    assert engine.state("qvel")[:, 0].tolist() == pytest.approx([-1.0, -1.0], rel=1e-5)
    assert engine.derived("xpos")[1, 1, 2].item() == pytest.approx(1.0 - 0.055, rel=1e-5)
    pointer = engine.state("qpos").data_ptr()
    engine.reset_where(mask, torch.full((2, 1), 0.5, device=device), torch.full((2, 1), 7.0, device=device))
    assert engine.state("qvel")[:, 0].tolist() == pytest.approx([7.0, -1.0], rel=1e-5)
    assert engine.state("time").tolist() == pytest.approx([0.0, 0.1])
    assert engine.derived("xpos")[:, 1, 2].tolist() == pytest.approx([1.5, 1.0 - 0.055], rel=1e-5)
    assert engine.state("qpos").data_ptr() == pointer


def test_a_snapshot_continues_bit_for_bit(device: str) -> None:
    engine = falling(device)
    engine.reset_where(
        torch.ones(2, dtype=torch.bool, device=device),
        torch.tensor([[-0.85], [0.0]], device=device),
        torch.zeros(2, 1, device=device),
    )
    engine.drive(torch.zeros(2, 5, 0, device=device))
    snapshot = engine.snapshot()
    engine.drive(torch.zeros(2, 20, 0, device=device))
    first = engine.state("qpos").clone()
    engine.parameter("body_mass")[:] = 9.0
    engine.restore(snapshot)
    engine.drive(torch.zeros(2, 20, 0, device=device))
    assert torch.equal(engine.state("qpos"), first)
    assert engine.parameter("body_mass")[0, 1].item() == 2.0
    with pytest.raises(TaskError, match="has no"):
        engine.restore({})


def test_constants_follow_the_masses_of_each_world(device: str) -> None:
    engine = falling(device)
    engine.parameter("body_mass")[1, 1] = 4.0
    engine.parameters_changed(torch.tensor([False, True], device=device))
    assert engine.parameter("body_subtreemass")[:, 0].tolist() == [2.0, 4.0]
    # Of a free body along its axis: 1 / mass.
    assert engine.parameter("dof_invweight0")[:, 0].tolist() == pytest.approx([0.5, 0.25])


def test_divergence_and_lack_of_memory_are_noticed(device: str) -> None:
    engine = falling(device, max_constraints=1)
    engine.require_capacity()
    engine.state("qvel")[1] = float("nan")
    assert engine.diverged().tolist() == [False, True]
    everywhere = torch.ones(2, dtype=torch.bool, device=device)
    engine.reset_where(everywhere, torch.full((2, 1), -0.95, device=device), torch.zeros(2, 1, device=device))
    engine.drive(torch.zeros(2, 1, 0, device=device))
    with pytest.raises(ModelError, match=r"give max_contacts=.* and max_constraints="):
        engine.require_capacity()
    with pytest.raises(ModelError, match="cannot vary nonsense between worlds"):
        WarpDeviceEngine(engine.model, 1, parameters=("nonsense",))


@pytest.mark.parametrize("name", ["cartpole-swingup", "ur10e-reach", "go2-velocity"])
def test_recorded_kernels_compute_the_same_bit_for_bit(name: str) -> None:
    task = load_task(name)
    plain, recorded = (
        DeviceEnvironment(task, engine_of(task, "cpu", record=record), seed=4) for record in (False, True)
    )
    plain.reset()
    recorded.reset()
    draw = targets_of(task)
    for _ in range(30):
        targets = on_device(draw(), "cpu")
        left, right = plain.step(targets), recorded.step(targets)
        assert torch.equal(left.critic, right.critic)
        assert torch.equal(plain.view.qpos, recorded.view.qpos)
