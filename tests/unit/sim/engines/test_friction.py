"""Friction of joints: torques by hand, what sticks and what slips, and no energy from friction."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sdk.base.errors import ModelError
from physai.sim import friction
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Snapshot, Stage
from physai.sim.robots import load_robot
from physai.twin.parameters.parameters import model_fields

Array = NDArray[np.float64]

STEP_S = 0.001
LIFT = """<mujoco><compiler autolimits="true"/>
<option timestep="0.001" integrator="implicitfast" gravity="0 0 -10"/>
<worldbody><body><joint name="lift" type="slide" axis="0 0 1" frictionloss="{coulomb}" damping="{damping}"/>
<geom size="0.1" mass="2"/></body></worldbody>
<actuator>{actuator}</actuator></mujoco>"""
"""2 kg that hang at a vertical slide: a load of -20 N."""
MOTOR = '<motor joint="lift" ctrlrange="-100 100"/>'


def lift(terms: Mapping[str, float], *, coulomb: float = 0.0, damping: float = 0.0, actuator: str = MOTOR) -> Any:
    spec = mujoco.MjSpec.from_string(LIFT.format(coulomb=coulomb, damping=damping, actuator=actuator))
    friction.reserve(spec)
    model = spec.compile()
    for term, value in terms.items():
        model.jnt_user[0, friction.column(term)] = value
    return model


def accelerations(model: Any, effort: float, steps: int, speed: float = 0.0) -> Array:
    """Accelerations of the single steps under a constant effort [m/s²]."""
    engine = MujocoEngine(model, 1, num_threads=1)
    engine.reset(np.ones(1, bool), np.zeros((1, 1)), np.full((1, 1), speed))
    speeds = [speed]
    for _ in range(steps):
        engine.drive(np.full((1, 1, 1), effort))
        speeds.append(float(engine.state("qvel")[0, 0]))
    return np.diff(np.array(speeds)) / STEP_S


def row(**terms: float) -> Array:
    values = np.zeros(len(friction.TERMS))
    for name, value in terms.items():
        for single in friction.BOTH.get(name, (name,)):
            values[friction.TERMS.index(single)] = value
    return values


def limit(motor: float, external: float, speed: float, coulomb: float = 0.0, **terms: float) -> float:
    return float(friction.limit(row(**terms), *(np.array(x) for x in (coulomb, motor, external, speed))))


STRIBECK = {"stribeck_speed": 0.5, "stribeck_exponent": 2.0}


def test_friction_torques_by_hand() -> None:
    assert limit(3.0, -2.0, 1.0, coulomb=0.4) == pytest.approx(0.4)
    # M2: 0.4 + 0.3·exp(-(1/0.5)²), and all of the 0.3 at rest.
    assert limit(3.0, -2.0, 1.0, 0.4, stribeck_friction=0.3, **STRIBECK) == pytest.approx(0.4 + 0.3 * math.exp(-4.0))
    assert limit(3.0, -2.0, 0.0, 0.4, stribeck_friction=0.3, **STRIBECK) == pytest.approx(0.7)
    # M3: the gearbox carries 3 + 2 N·m if motor and load oppose each other, and 3 - 2 N·m if not.
    assert limit(3.0, -2.0, 1.0, 0.4, load_friction=0.1) == pytest.approx(0.9)
    assert limit(3.0, 2.0, 1.0, 0.4, load_friction=0.1) == pytest.approx(0.5)
    # M4: half as much again at rest.
    assert limit(3.0, -2.0, 0.0, 0.4, load_friction=0.1, load_stribeck=0.05, **STRIBECK) == pytest.approx(1.15)
    # M5: 0.1·3 + 0.2·2 where the motor drives; the same coefficients for 2 and 3 where the load drives.
    both = {"load_friction_motor": 0.1, "load_friction_external": 0.2}
    assert limit(3.0, -2.0, 1.0, **both) == pytest.approx(0.7)
    assert limit(2.0, -3.0, 1.0, **both) == pytest.approx(0.8)
    # M6: the weaker of two opposed torques, squared: 0.1·2² of the load, or 0.3·2² of the motor.
    squared = {"quadratic_external": 0.1, "quadratic_motor": 0.3, **STRIBECK}
    assert limit(3.0, -2.0, 0.0, **squared) == pytest.approx(0.4)
    assert limit(2.0, -3.0, 0.0, **squared) == pytest.approx(1.2)
    assert limit(3.0, 2.0, 0.0, **squared) == 0.0


def test_what_a_motor_lifts_and_lets_down_with_load_friction() -> None:
    model = lift({"load_friction_motor": 0.2, "load_friction_external": 0.3}, coulomb=1.0)
    up = accelerations(model, 50.0, 5)
    # No load is known in the first step: 50 - 20 - 1 N on 2 kg. Then friction is 1 + 0.2·50 + 0.3·20 = 17 N.
    assert up[0] == pytest.approx(14.5, rel=1e-3)
    assert up[1:] == pytest.approx([6.5] * 4, rel=1e-3)
    down = accelerations(model, 5.0, 5)
    # 20 - 5 N downwards against 1 + 0.2·5 + 0.3·20 = 8 N.
    assert down[1:] == pytest.approx([-3.5] * 4, rel=1e-3)


def test_friction_falls_with_speed() -> None:
    model = lift({"stribeck_friction": 8.0, "stribeck_speed": 0.5, "stribeck_exponent": 1.0}, coulomb=2.0)
    # At 1 m/s: 40 - 20 - 2 - 8·exp(-1/0.5) N on 2 kg; at 0.1 m/s 8·exp(-0.1/0.5).
    assert accelerations(model, 40.0, 1, speed=1.0)[0] == pytest.approx(9.0 - 4.0 * math.exp(-2.0), rel=1e-3)
    assert accelerations(model, 40.0, 1, speed=0.1)[0] == pytest.approx(9.0 - 4.0 * math.exp(-0.2), rel=1e-3)


def test_the_damping_of_a_servo_reduces_its_motors_torque() -> None:
    # At 1 m/s upwards, 4 N of damping: the load's friction counts 46 N of the servo, and 50 N of the motor.
    terms, servo = {"load_friction_motor": 0.5}, '<position joint="lift" kp="100"/>'
    engine = MujocoEngine(lift(terms, damping=4.0, actuator=servo), 1, num_threads=1)
    for _ in range(2):
        engine.reset(np.ones(1, bool), np.zeros((1, 1)), np.ones((1, 1)))
        engine.drive(np.full((1, 1, 1), 0.5))
    kick = float(engine.state("qvel")[0, 0])
    engine.drive(np.full((1, 1, 1), 0.5))
    # (50 - 20 - 4 - 23) N on 2 kg, the damping a little more at the speed after the step.
    assert (float(engine.state("qvel")[0, 0]) - kick) / STEP_S == pytest.approx(1.5, abs=0.1)
    motor = accelerations(lift(terms, damping=4.0), 50.0, 2, speed=1.0)
    assert motor[1] == pytest.approx(0.5, abs=0.1)


@settings(max_examples=15, deadline=None)
@given(share=st.floats(0.2, 0.9), at_rest=st.floats(0.0, 10.0), load=st.floats(0.0, 0.3))
def test_a_joint_sticks_below_the_limit_and_slips_above(share: float, at_rest: float, load: float) -> None:
    terms = {"stribeck_friction": at_rest, "stribeck_speed": 0.5, "stribeck_exponent": 1.0, "load_friction": load}
    model = lift(terms, coulomb=4.0)
    # Sticking, the load is |u| + 20 N: u - 20 = 4 + Fs + cl·(u + 20) at the limit upwards.
    breakaway = (24.0 + at_rest + 20.0 * load) / (1.0 - load)
    held = 20.0 + share * (breakaway - 20.0)
    moved = [float(accelerations(model, effort, 200).sum() * STEP_S) for effort in (held, 1.1 * breakaway)]
    # MuJoCo's friction is soft: what sticks creeps.
    assert abs(moved[0]) < 0.02
    assert moved[1] > 0.05


@settings(max_examples=25, deadline=None)
@given(
    terms=st.fixed_dictionaries({term: st.floats(0.0, 0.5) for term in friction.TERMS}),
    coulomb=st.floats(0.0, 5.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_friction_never_adds_energy(terms: dict[str, float], coulomb: float, seed: int) -> None:
    engine = MujocoEngine(lift(terms, coulomb=coulomb), 1, num_threads=1)
    random = np.random.default_rng(seed)
    engine.reset(np.ones(1, bool), np.zeros((1, 1)), random.uniform(-2.0, 2.0, (1, 1)))
    gained = given_work = turned = 0.0
    for effort in [20.0] * 50 + np.repeat(random.uniform(-80.0, 80.0, 10), 20).tolist():
        before = float(engine.state("qvel")[0, 0])
        engine.drive(np.full((1, 1, 1), effort))
        after = float(engine.state("qvel")[0, 0])
        # 20 N hold the weight: only friction acts.
        assert effort != 20.0 or abs(after) <= abs(before) + 1e-12
        work = (effort - 20.0) * 0.5 * (before + after) * STEP_S
        gained, given_work, turned = gained + after**2 - before**2, given_work + work, turned + abs(work)
    # MuJoCo's friction is soft: for about 20 ms around a reversal it resists the acceleration instead of the motion.
    assert gained <= given_work + 0.01 * turned


@settings(max_examples=50, deadline=None)
@given(
    terms=st.fixed_dictionaries({term: st.floats(0.0, 10.0) for term in friction.TERMS}),
    torques=st.tuples(*[st.floats(-1e3, 1e3)] * 3),
    coulomb=st.floats(0.0, 10.0),
)
def test_the_limit_is_finite_and_never_below_coulomb_friction(
    terms: dict[str, float], torques: tuple[float, float, float], coulomb: float
) -> None:
    found = limit(*torques, coulomb=coulomb, **terms)
    assert math.isfinite(found)
    assert found >= coulomb
    assert limit(*torques, coulomb=coulomb) == coulomb
    # Friction does not know left from right.
    assert limit(*(-x for x in torques), coulomb=coulomb, **terms) == pytest.approx(found)


def test_a_diverged_world_gets_coulomb_friction() -> None:
    assert limit(math.nan, 1.0, 1.0, coulomb=0.3, load_friction=0.1) == 0.3


def test_a_model_without_friction_terms_steps_as_before() -> None:
    plain, engine = lift({}, coulomb=3.0), MujocoEngine(lift({}, coulomb=3.0), 1, num_threads=1)
    assert not friction.has_friction(plain)
    data = mujoco.MjData(plain)
    data.ctrl[:] = 30.0
    mujoco.mj_step(plain, data, nstep=50)
    engine.state("ctrl")[:] = 30.0
    engine.step(50)
    assert engine.state("qvel")[0, 0] == data.qvel[0]
    # The same through the code of friction, with terms that are 0.
    varied = MujocoEngine(plain, 1, num_threads=1, parameters=(friction.FIELD,))
    varied.state("ctrl")[:] = 30.0
    varied.step(50)
    assert varied.state("qvel")[0, 0] == data.qvel[0]


def servo_model() -> Any:
    model = copy.copy(load_robot("xl330_pendulum").model)
    names = ["servo.load_friction", "servo.stribeck_friction", "servo.stribeck_speed", "servo.stribeck_exponent"]
    for name, rows in model_fields(model, names, np.array([[0.25, 0.02, 0.3, 0.8]])).items():
        getattr(model, name)[...] = rows[0]
    return model


def same(one: Snapshot, other: Snapshot) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_the_friction_of_every_world_is_its_own_and_survives_snapshots_and_resets(tmp_path: Any) -> None:
    file = tmp_path / "model.mjb"
    mujoco.mj_saveModel(servo_model(), str(file), None)
    kind: Any = mujoco.MjModel
    model = kind.from_binary_path(str(file))
    assert friction.has_friction(model)
    options: dict[str, Any] = {"num_threads": 1, "stage": Stage.VELOCITY}
    engines = [MujocoEngine(model, 3, parameters=(friction.FIELD, "dof_frictionloss"), **options) for _ in range(2)]
    engine, other = engines
    engine.parameter(friction.FIELD)[1, :, :-1] = 0.0
    engine.parameter("dof_frictionloss")[2] = 0.2
    engine.state("ctrl")[:] = 0.4
    engine.step(60)
    position = engine.state("qpos")[:, 0].tolist()
    assert position[1] > position[0] > position[2] > 0.0
    # The parameter is the Coulomb friction, not what a step applied.
    assert engine.parameter("dof_frictionloss")[:, 0].tolist() == pytest.approx([0.0128327204, 0.0128327204, 0.2])
    saved = engine.snapshot()
    engine.step(7)
    other.restore(saved)
    assert same(other.snapshot(), saved)
    other.step(7)
    assert same(other.snapshot(), engine.snapshot())
    start = (np.ones(3, bool), np.zeros((3, 1)), np.zeros((3, 1)))
    for each in engines:
        each.reset(*start)
        each.step(50)
    engine.reset(*start)
    engine.step(50)
    assert same(other.snapshot(), engine.snapshot())


def test_user_data_of_other_models_is_no_friction() -> None:
    text = LIFT.format(coulomb=0.0, damping=0.0, actuator=MOTOR).replace('name="lift"', 'name="lift" user="{}"', 1)
    foreign = mujoco.MjSpec.from_string(text.format(" ".join(["0.5"] * 12))).compile()
    assert not friction.has_friction(foreign)
    with pytest.raises(ModelError, match="no jnt_user with room for friction"):
        MujocoEngine(foreign, 1, parameters=(friction.FIELD,))
    spec = mujoco.MjSpec.from_string(text.format("7 8"))
    friction.reserve(spec)
    friction.reserve(spec)
    model = spec.compile()
    assert model.jnt_user[0, :2].tolist() == [7.0, 8.0]
    assert len(model.jnt_user[0]) == 12
    assert not friction.has_friction(model)
