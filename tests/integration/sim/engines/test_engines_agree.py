# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""From the same states MuJoCo and MuJoCo Warp move every robot alike for a second: 2e-3 m or rad in each coordinate."""

from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sim.engines.protocol import Stage
from physai.sim.robots import home_qpos, load_robot, robot_names
from physai.sim.tasks.registry import load_task

torch = pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")
from tests.support.devices import DEVICES  # noqa: E402

from physai.sim.engines.warp_device import WarpDeviceEngine  # noqa: E402

# Compiles kernels for this machine, once.
pytestmark = pytest.mark.slow

WORLDS, TOLERANCE = 4, 2e-3
MESHES = """<mujoco><option timestep="0.002"/>
<asset><mesh name="link" vertex="0 0 0 .2 0 0 0 .2 0 0 0 .2 .1 .1 .1"/></asset>
<worldbody>
  <geom type="plane" size="5 5 .1"/>
  <body pos="0 0 .6"><joint name="shoulder" axis="0 1 0" damping=".1"/><geom type="mesh" mesh="link" mass="1"/>
    <body pos=".2 0 .1"><joint name="elbow" axis="0 1 0" damping=".1"/>
      <geom type="mesh" mesh="link" mass=".5" pos=".1 0 0"/></body></body>
  <body pos="1 0 .3"><freejoint/><geom type="mesh" mesh="link" mass=".3"/></body>
</worldbody>
<actuator><position joint="shoulder" kp="20" kv="1"/><position joint="elbow" kp="10" kv=".5"/></actuator></mujoco>"""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def moved(model: Any, qpos: Any, qvel: Any, controls: Any) -> Any:
    """Positions after each control held for 10 ms, in MuJoCo, shape (controls, worlds, nq)."""
    worlds = [mujoco.MjData(model) for _ in qpos]
    path: list[Any] = []
    for data, position, speed in zip(worlds, qpos, qvel, strict=True):
        data.qpos[:], data.qvel[:] = position, speed
    for control in controls:
        for data, values in zip(worlds, control, strict=True):
            data.ctrl[:] = values
            mujoco.mj_step(model, data, nstep=round(0.01 / model.opt.timestep))
        path.append([data.qpos.copy() for data in worlds])
    return np.array(path)


def require_agreement(device: str, model: Any, qpos: Any, qvel: Any, controls: Any) -> None:
    expected = moved(model, qpos, qvel, controls)
    engine = WarpDeviceEngine(model, WORLDS, device=device, stage=Stage.POSITION)
    everywhere = torch.ones(WORLDS, dtype=torch.bool, device=device)
    engine.reset_where(everywhere, torch.as_tensor(qpos, device=device), torch.as_tensor(qvel, device=device))
    steps = round(0.01 / model.opt.timestep)
    for control, positions in zip(controls, expected, strict=True):
        engine.drive(torch.as_tensor(np.repeat(control[:, None], steps, axis=1), device=device))
        assert np.abs(engine.state("qpos").cpu().numpy() - positions).max() < TOLERANCE
    engine.require_capacity()
    assert np.abs(expected[-1] - qpos).max() > 10 * TOLERANCE, "nothing moved"


@pytest.mark.parametrize("name", [name for name in robot_names() if name != "go2"])
def test_every_fixed_robot(name: str, device: str) -> None:
    model = load_robot(name).model
    random = np.random.default_rng(2)
    low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-1.0, 1.0]).T
    middle, reach = 0.5 * (low + high), 0.1 * (high - low)
    controls = middle + reach * random.uniform(-1, 1, (100, WORLDS, model.nu))
    qpos = np.tile(model.qpos0, (WORLDS, 1)) + random.uniform(-0.1, 0.1, (WORLDS, model.nq))
    require_agreement(device, model, qpos, random.uniform(-0.1, 0.1, (WORLDS, model.nv)), controls)


def test_a_walking_robot_that_touches_the_ground(device: str) -> None:
    task = load_task("go2-velocity")
    random = np.random.default_rng(2)
    (term,) = task.contract.action.terms
    qpos, qvel = task.reset(np.full((WORLDS, task.reset_draws), 0.5))
    controls = np.array(term.offset) + 0.1 * random.uniform(-1, 1, (100, WORLDS, task.model.nu))
    require_agreement(device, task.model, qpos, qvel, controls)


def test_bodies_with_meshes_that_touch_the_ground(device: str) -> None:
    model = mujoco.MjSpec.from_string(MESHES).compile()
    random = np.random.default_rng(2)
    qpos = np.tile(model.qpos0, (WORLDS, 1))
    qpos[:, :2] += random.uniform(-0.3, 0.3, (WORLDS, 2))
    controls = np.repeat(random.uniform(-0.5, 0.5, (10, WORLDS, 2)), 10, axis=0)
    require_agreement(device, model, qpos, np.zeros((WORLDS, model.nv)), controls)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=500)
    assert data.ncon > 0


@pytest.mark.parametrize("name", ["xl330_pendulum", "double_pendulum", "go2"])
def test_friction_of_joints(name: str) -> None:
    from physai.sim import friction
    from physai.sim.engines.mujoco import MujocoEngine
    from physai.sim.engines.warp_host import HostWarpEngine

    model, random = load_robot(name).model, np.random.default_rng(4)
    joints, count = friction.friction_joints(model), len(friction.TERMS)
    rows = np.repeat(np.array(model.jnt_user)[None], WORLDS, axis=0)
    # Every term of every joint, in every world another one; none in the last.
    rows[:, joints, -count - 1 : -1] = random.uniform(0.02, 0.3, (WORLDS, len(joints), count))
    rows[:, joints, -count + 1] = random.uniform(0.5, 2.0, (WORLDS, len(joints)))
    rows[-1] = model.jnt_user
    host = MujocoEngine(model, WORLDS, num_threads=1, parameters=(friction.FIELD,))
    host.parameter(friction.FIELD)[:] = rows
    warp = HostWarpEngine(model, WORLDS, fields={friction.FIELD: rows})
    start = np.tile(home_qpos(model), (WORLDS, 1))
    first, last = np.ones(WORLDS, bool), np.arange(WORLDS) == WORLDS - 1
    for engine in (host, warp):
        engine.reset(first, start, np.zeros((WORLDS, model.nv)))
    home = start[:, -model.nu :] if name == "go2" else np.zeros((WORLDS, model.nu))
    low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-1.0, 1.0]).T
    for step in range(50):
        control = home + 0.3 * (high - low) * random.uniform(-1.0, 1.0, (WORLDS, model.nu))
        for engine in (host, warp):
            if step == 30:
                engine.reset(last, start[last], np.zeros((1, model.nv)))
            engine.state("ctrl")[:] = control
            engine.step(round(0.01 / model.opt.timestep))
        assert np.abs(host.state("qpos") - warp.state("qpos")).max() < TOLERANCE, step
    assert np.abs(host.state("qpos") - start).max() > 10 * TOLERANCE, "nothing moved"
    saved = warp.snapshot()
    warp.step(5)
    after = warp.state("qpos").copy()
    warp.restore(saved)
    warp.step(5)
    assert np.array_equal(warp.state("qpos"), after)
    assert not np.allclose(after[0], after[-1], atol=TOLERANCE)
