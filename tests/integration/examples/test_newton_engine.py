# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Newton plays what MuJoCo plays, and refuses what it cannot represent."""

from typing import Any

import mujoco
import numpy as np
import pytest
from newton_engine.model_import import PIP_LINE, require_same

from physai.sdk.base.errors import ModelError
from physai.sim.engines.protocol import Stage
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.robots import load_robot, robot_names
from physai.sim.tasks.registry import load_task

torch = pytest.importorskip("torch")
pytest.importorskip("newton", reason=PIP_LINE)
from newton_engine import make_engine  # noqa: E402
from newton_engine.engine import NewtonEngine  # noqa: E402

# Compiles kernels for this machine, once.
pytestmark = pytest.mark.slow

SLIDER = """<mujoco><option timestep="0.01" gravity="0 0 -10"/><worldbody>
  <geom type="plane" size="9 9 .1"/>
  <body pos="0 0 1"><joint name="s" type="slide" axis="0 0 1"/><geom size=".1" mass="2"/></body>
</worldbody>{more}</mujoco>"""


def model_of(more: str = "") -> Any:
    return mujoco.MjSpec.from_string(SLIDER.format(more=more)).compile()


def falling(**options: Any) -> NewtonEngine:
    return NewtonEngine(model_of(), 2, stage=Stage.POSITION, parameters=("body_mass",), derived=("xpos",), **options)


@pytest.mark.parametrize("name", robot_names())
def test_robots_move_as_in_mujoco_for_a_second(name: str) -> None:
    model = load_robot(name).model
    if model.nexclude:
        with pytest.raises(ModelError, match="cannot represent excluded contacts"):
            NewtonEngine(model, 2)
        return
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    random = np.random.default_rng(0)
    joints = slice(6 if model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE else 0, None)
    data.qvel[joints] = random.uniform(-0.3, 0.3, data.qvel[joints].shape)
    engine = NewtonEngine(model, 2)
    start = data.qpos.copy()
    engine.reset_where(*(torch.as_tensor(np.stack([row, row])) for row in (True, data.qpos, data.qvel)))
    steps = round(1.0 / model.opt.timestep)
    data.ctrl[:] += random.uniform(-0.1, 0.1, model.nu)
    engine.drive(torch.as_tensor(np.tile(data.ctrl, (2, steps, 1))))
    mujoco.mj_step(model, data, nstep=steps)
    # Dry friction stops the double pendulum within 8 mrad.
    assert np.abs(data.qpos - start).max() > 0.005
    assert np.allclose(engine.state("qpos").numpy(), data.qpos, rtol=0.0, atol=2e-3)
    engine.require_capacity()


@pytest.mark.parametrize("name", ["cartpole-swingup", "pendubot-swingup", "ur10e-reach", "go2-velocity"])
def test_newton_varies_what_the_tasks_randomise(name: str) -> None:
    task = load_task(name)
    fields = ParameterDraws.fields(task)
    engine = NewtonEngine(task.model, 2, stage=task.stage, parameters=fields, derived=task.derived)
    assert all(engine.parameter(field).shape[0] == 2 for field in fields)


def test_only_masked_worlds_are_reset() -> None:
    engine = falling()
    engine.drive(torch.zeros(2, 10, 0))
    # Semi-implicit Euler under 10 m/s²: -0.1 m/s per step, and -0.001 m times 1 + 2 + … + 10.
    assert engine.state("qvel")[:, 0].tolist() == pytest.approx([-1.0, -1.0], rel=1e-5)
    assert engine.derived("xpos")[1, 1, 2].item() == pytest.approx(1.0 - 0.055, rel=1e-5)
    engine.reset_where(torch.tensor([True, False]), torch.full((2, 1), 0.5), torch.full((2, 1), 7.0))
    assert engine.state("qvel")[:, 0].tolist() == pytest.approx([7.0, -1.0], rel=1e-5)
    assert engine.state("time").tolist() == pytest.approx([0.0, 0.1])
    engine.drive(torch.zeros(2, 1, 0))
    assert engine.state("qvel")[:, 0].tolist() == pytest.approx([6.9, -1.1], rel=1e-5)


def test_worlds_have_their_own_parameters_and_controls() -> None:
    model = model_of('<actuator><motor joint="s"/></actuator>')
    engine = NewtonEngine(model, 3, parameters=("body_mass",))
    engine.parameter("body_mass")[1, 1] = 4.0
    engine.parameters_changed(torch.tensor([False, True, False]))
    engine.drive(torch.tensor([8.0, 8.0, 0.0]).reshape(3, 1, 1))
    # In 10 ms: 8 N on 2 kg and on 4 kg, less 10 m/s² of gravity.
    assert engine.state("qvel")[:, 0].tolist() == pytest.approx([-0.06, -0.08, -0.1], rel=1e-4)


def test_a_diverged_world_leaves_the_others_alone() -> None:
    engine = falling()
    engine.state("qvel")[1] = float("nan")
    engine.drive(torch.zeros(2, 10, 0))
    assert engine.diverged().tolist() == [False, True]
    assert engine.state("qvel")[0].item() == pytest.approx(-1.0, rel=1e-5)


def test_lack_of_memory_is_noticed() -> None:
    engine = falling(max_constraints=1)
    engine.require_capacity()
    engine.reset_where(torch.tensor([True, True]), torch.full((2, 1), -0.95), torch.zeros(2, 1))
    engine.drive(torch.zeros(2, 1, 0))
    with pytest.raises(ModelError, match=r"memory for .* 1 constraints of each; give max_contacts=\d+ and max_con"):
        engine.require_capacity()


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ('<equality><joint joint1="s" polycoef="0 0 0 0 0"/></equality>', "equality constraints"),
        ('<tendon><fixed name="t"><joint joint="s" coef="1"/></fixed></tendon>', "tendons"),
        ('<actuator><general joint="s" dyntype="filter"/></actuator>', "actuators with activation"),
        ('<actuator><muscle joint="s" lengthrange="0 1"/></actuator>', "actuators whose force is not affine"),
    ],
)
def test_what_newton_lacks_is_named_before_the_first_step(more: str, missing: str) -> None:
    with pytest.raises(ModelError, match=f"cannot represent .*{missing}.*use the engine warp"):
        NewtonEngine(model_of(more), 1)


JOINTS = """<mujoco><option timestep="0.005" {option}/><worldbody><geom type="plane" size="9 9 .1" pos="0 0 -3"/>
  <body><joint name="a" axis="0 1 0" {joint}/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".03" {geom}/>
    <body pos=".4 0 0"><joint name="b" type="slide" axis="1 0 0" range="-.2 .2"/><geom size=".05" {geom}/></body>
  </body></worldbody><actuator><position joint="b" kp="30" {actuator}/></actuator></mujoco>"""
PLAIN = {"option": "", "joint": "", "geom": "", "actuator": ""}


@pytest.mark.parametrize(
    "feature",
    [
        {"joint": 'damping="0.2 0.3 0.4"'},
        {"joint": 'stiffness="2 1 1" springref="20"'},
        {"joint": 'ref="15" stiffness="3"'},
        {"joint": 'frictionloss="0.1" armature="0.02"'},
        {"joint": 'limited="true" range="-5 5" margin="0.02"'},
        {"option": 'density="1000" viscosity="0.1"'},
        {"option": 'density="1000"', "geom": 'fluidshape="ellipsoid"'},
        {"option": 'wind="1 2 3" density="1.2" integrator="implicitfast"'},
        {"option": 'gravity="1 0 -3" solver="CG" cone="elliptic"'},
        {"geom": 'mass="1.5"'},
        {"actuator": 'forcerange="-2 2" kv="1"'},
        {"actuator": 'damping="3" armature="0.1"'},
    ],
    ids=str,
)
def test_what_newton_accepts_moves_as_in_mujoco(feature: dict[str, str]) -> None:
    model = mujoco.MjSpec.from_string(JOINTS.format(**{**PLAIN, **feature})).compile()
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = [0.1, 0.02], [1.0, -0.5]
    try:
        engine = NewtonEngine(model, 1)
    except ModelError:
        return
    engine.reset_where(torch.tensor([True]), torch.as_tensor(data.qpos[None]), torch.as_tensor(data.qvel[None]))
    engine.drive(torch.full((1, 60, 1), 0.1))
    data.ctrl[:] = 0.1
    mujoco.mj_step(model, data, nstep=60)
    assert engine.state("qpos")[0].tolist() == pytest.approx(data.qpos.tolist(), abs=2e-4)
    assert engine.state("qvel")[0].tolist() == pytest.approx(data.qvel.tolist(), abs=5e-3)


def test_rollouts_have_each_worlds_parameters() -> None:
    model = model_of('<actuator><motor joint="s"/></actuator>')
    engine = make_engine(model, 2, fields={"body_mass": np.array([[0.0, 2.0], [0.0, 4.0]])})
    engine.reset(np.ones(2, bool), np.zeros((2, 1)), np.zeros((2, 1)))
    engine.drive(np.full((2, 1, 1), 8.0))
    assert engine.state("qvel")[:, 0] == pytest.approx([-0.06, -0.08], rel=1e-4)
    with pytest.raises(ModelError, match=r"cannot vary opt\.timestep"):
        make_engine(model, 2, fields={"opt.timestep": np.array([[0.01], [0.02]])})


def test_a_field_that_does_not_arrive_is_named() -> None:
    model, arrived = model_of(), model_of()
    require_same(model, arrived)
    arrived.body_mass[1] = 1.0
    with pytest.raises(ModelError, match="body mass 1 is 2 here and 1 in Newton"):
        require_same(model, arrived)
