"""Randomised model parameters: ranges, rules by hand, and that the physics feels them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import ModelError, TaskError
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Stream, episode_seeds, uniform
from physai.sim.tasks.registry import load_task, task_names
from physai.sim.tasks.task import Push, Randomise, Task

TaskMaker = Callable[..., Task]
HEAVY_KG = 4.0


def drawn(task: Task, count: int, field: str, seed: int = 0) -> tuple[Array, Array]:
    """Values of a field in the first episodes of `count` worlds, and their seeds."""
    env = Environment(task, count, seed=seed, num_threads=1)
    env.reset()
    return env.engine.parameter(field).copy(), env.episode_seeds


def push(env: Environment, left_n: float, right_n: float) -> None:
    env.step({"joint_effort_target": np.array([[left_n, right_n]] * env.num_worlds, np.float32)})


def test_a_scale_is_one_number_per_row(slider_task: TaskMaker) -> None:
    rule = Randomise(field="body_mass", operation="scale", lower=0.5, upper=1.5, together=("body_inertia",))
    task = slider_task(randomisation=(rule,))
    mass, seeds = drawn(task, 7, "body_mass")
    factor = 0.5 + uniform(seeds, Stream.PARAMETERS, 3)
    assert mass == pytest.approx(factor * np.array([0.0, 2.0, 4.0]))
    inertia, _ = drawn(task, 7, "body_inertia")
    assert inertia == pytest.approx(factor[:, :, None] * np.array(task.model.body_inertia))


def test_named_rows_and_columns_draw_a_number_each(slider_task: TaskMaker) -> None:
    rule = Randomise(field="site_pos", rows=(0,), columns=(0, 2), operation="add", lower=-0.1, upper=0.1)
    position, seeds = drawn(slider_task(randomisation=(rule,)), 5, "site_pos")
    change = 0.2 * uniform(seeds, Stream.PARAMETERS, 2) - 0.1
    assert position[:, 0, 0] == pytest.approx(change[:, 0])
    assert (position[:, 0, 1] == 0.0).all()
    assert position[:, 0, 2] == pytest.approx(0.5 + change[:, 1])


def test_a_shared_draw_sets_all_rows_alike(slider_task: TaskMaker) -> None:
    rule = Randomise(field="geom_friction", columns=(0,), operation="set", lower=0.4, upper=1.2, shared=True)
    friction, seeds = drawn(slider_task(randomisation=(rule,)), 6, "geom_friction")
    value = 0.4 + 0.8 * uniform(seeds, Stream.PARAMETERS, 1)
    assert friction[:, :, 0] == pytest.approx(np.repeat(value, 2, axis=1))
    assert np.array_equal(friction[:, :, 1:], np.repeat(np.array([[[0.005, 0.0001]] * 2]), 6, axis=0))


def test_rules_on_one_field_follow_each_other(slider_task: TaskMaker) -> None:
    scale = Randomise(field="body_mass", operation="scale", lower=0.9, upper=1.1)
    payload = Randomise(field="body_mass", rows=(2,), operation="add", lower=0.0, upper=3.0)
    mass, seeds = drawn(slider_task(randomisation=(scale, payload)), 5, "body_mass")
    numbers = uniform(seeds, Stream.PARAMETERS, 4)
    assert mass[:, 1] == pytest.approx(2.0 * (0.9 + 0.2 * numbers[:, 1]))
    assert mass[:, 2] == pytest.approx(4.0 * (0.9 + 0.2 * numbers[:, 2]) + 3.0 * numbers[:, 3])


@pytest.mark.parametrize("operation", ["scale", "add", "set"])
def test_the_whole_range_is_used_and_no_more(slider_task: TaskMaker, operation: Any) -> None:
    rule = Randomise(field="dof_damping", rows=(0,), operation=operation, lower=0.25, upper=0.75)
    task = slider_task(randomisation=(rule,))
    task.model.dof_damping[:] = 2.0
    try:
        damping, _ = drawn(task, 4000, "dof_damping")
    finally:
        task.model.dof_damping[:] = 0.0
    values = {"scale": damping[:, 0] / 2.0, "add": damping[:, 0] - 2.0, "set": damping[:, 0]}[operation]
    assert values.min() >= 0.25
    assert values.max() <= 0.75
    assert values.min() < 0.251
    assert values.max() > 0.749
    assert abs(values.mean() - 0.5) < 0.01
    assert (damping[:, 1] == 2.0).all()


def test_every_episode_starts_from_the_nominal_model(slider_task: TaskMaker) -> None:
    rule = Randomise(field="body_mass", operation="scale", lower=0.5, upper=2.0)
    env = Environment(slider_task(randomisation=(rule,)), 3, num_threads=1)
    for _ in range(60):
        env.reset()
        factor = env.engine.parameter("body_mass") / np.array([1.0, 2.0, 4.0])
        assert (factor[:, 1:] >= 0.5).all()
        assert (factor[:, 1:] <= 2.0).all()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.booleans(), min_size=5, max_size=5), st.integers(0, 99))
def test_a_draw_touches_the_masked_worlds_only(slider_task: TaskMaker, mask: list[bool], seed: int) -> None:
    rule = Randomise(field="body_mass", operation="scale", lower=0.5, upper=2.0)
    task = slider_task(randomisation=(rule,))
    engine = MujocoEngine(task.model, 5, num_threads=1, parameters=ParameterDraws.fields(task))
    draws, chosen = ParameterDraws(task, engine), np.array(mask)
    draws.draw(np.ones(5, bool), episode_seeds(seed, np.arange(5), np.zeros(5, int)))
    before = engine.snapshot()
    seeds = episode_seeds(seed + 1, np.arange(5), np.zeros(5, int))
    draws.draw(chosen, seeds[chosen])
    after = engine.snapshot()
    for name in before:
        assert np.array_equal(after[name][~chosen], before[name][~chosen])
    factor = 0.5 + 1.5 * uniform(seeds, Stream.PARAMETERS, 3)
    assert after["parameter.body_mass"][chosen] == pytest.approx((factor * np.array([0.0, 2.0, 4.0]))[chosen])


def test_the_physics_feels_the_mass(slider_task: TaskMaker) -> None:
    rule = Randomise(field="body_mass", operation="scale", lower=0.5, upper=2.0)
    env = Environment(slider_task(randomisation=(rule,)), 10, num_threads=1)
    env.reset()
    push(env, 0.0, 6.0)
    # 6 N for 40 ms.
    assert env.view.qvel[:, 1] == pytest.approx(6.0 * 0.04 / env.engine.parameter("body_mass")[:, 2])
    assert len(set(env.view.qvel[:, 1].tolist())) == 10


def test_constants_follow_what_they_derive_from(slider_task: TaskMaker) -> None:
    rule = Randomise(field="body_mass", operation="scale", lower=0.5, upper=2.0)
    env = Environment(slider_task(randomisation=(rule,)), 4, num_threads=1)
    env.reset()
    state = env.engine.snapshot()
    mass = state["parameter.body_mass"]
    assert state["parameter.body_subtreemass"][:, 0] == pytest.approx(mass[:, 1] + mass[:, 2])
    assert state["parameter.dof_invweight0"] == pytest.approx(1.0 / mass[:, 1:])


@pytest.mark.parametrize("name", task_names())
def test_without_randomisation_the_twin_is_nominal(name: str) -> None:
    task = load_task(name)
    env = Environment(task, 2, randomise=False, num_threads=1)
    now = env.reset()
    assert set(env.engine.snapshot()) == {"state"}
    for field in ParameterDraws.fields(task):
        assert np.array_equal(getattr(env.engine.model, field), getattr(task.model, field))
    assert np.array_equal(now.sensors["joint_pos"], env.view.joint_pos.astype(np.float32))


@pytest.mark.parametrize("name", task_names())
def test_built_in_ranges_hold_the_nominal_model_or_lie_beside_it(name: str) -> None:
    task = load_task(name)
    env = Environment(task, 300, num_threads=1)
    env.reset()
    masses, heavy = env.engine.parameter("body_mass"), np.array(task.model.body_mass) > 0.0
    assert heavy.any()
    assert (masses[:, heavy] > 0.0).all()
    assert (masses[:, heavy].std(axis=0) > 0.0).all()
    for rule in task.randomisation:
        assert rule.operation != "scale" or rule.lower <= 1.0 <= rule.upper
        assert rule.operation != "add" or rule.lower <= 0.0 <= rule.upper
        nominal = np.array(getattr(task.model, rule.field))
        changed = env.engine.parameter(rule.field) != nominal
        assert changed.any(), f"{rule.field} is the same in every world"


def test_go2_gains_stay_those_of_a_position_servo() -> None:
    env = Environment(load_task("go2-velocity"), 20, num_threads=1)
    env.reset()
    gain, bias = env.engine.parameter("actuator_gainprm"), env.engine.parameter("actuator_biasprm")
    assert np.array_equal(bias[:, :, 1], -gain[:, :, 0])
    assert (bias[:, :, 0] == 0.0).all()
    # kp 20, 20, 40 and kd 1, 1, 2: one twentieth.
    assert bias[:, :, 2] == pytest.approx(-gain[:, :, 0] / 20.0)
    limits = env.engine.parameter("actuator_forcerange")
    assert np.array_equal(limits[:, :, 0], -limits[:, :, 1])


def test_the_servos_feel_a_smaller_effort_limit() -> None:
    rule = Randomise(field="actuator_forcerange", operation="scale", lower=0.05, upper=0.05)
    base = load_task("go2-velocity")
    plain, weak = (
        Environment(replace(base, randomisation=rules, push=None), 1, num_threads=1) for rules in ((), (rule,))
    )
    for env in (plain, weak):
        env.reset()
        for _ in range(25):
            env.step({"joint_pos_target": np.array([[j.default_pos for j in base.robot.spec.joints]], np.float32)})
    # A twentieth of 45 N·m at the knees does not carry 15 kg.
    assert plain.view.qpos[0, 2] > 0.25
    assert weak.view.qpos[0, 2] < plain.view.qpos[0, 2] - 0.05


def test_impossible_rules_are_refused(slider_task: TaskMaker) -> None:
    def build(**rule: Any) -> None:
        Environment(slider_task(randomisation=(Randomise(**rule),)), 1, num_threads=1)

    with pytest.raises(TaskError, match=r"sliders: range of body_mass is \[2.0, 1.0\]"):
        build(field="body_mass", operation="scale", lower=2.0, upper=1.0)
    with pytest.raises(TaskError, match="nan"):
        build(field="body_mass", operation="scale", lower=float("nan"), upper=1.0)
    with pytest.raises(TaskError, match="sliders: randomisation of dof_damping: no row 2, it has 2"):
        build(field="dof_damping", rows=(0, 2), operation="scale", lower=1.0, upper=1.0)
    with pytest.raises(TaskError, match="no column 0, it has 0"):
        build(field="dof_damping", columns=(0,), operation="scale", lower=1.0, upper=1.0)
    with pytest.raises(ModelError, match="did you mean 'dof_damping'"):
        build(field="dof_dampin", operation="scale", lower=0.0, upper=1.0)


def test_a_centre_of_mass_mujoco_would_not_move_is_refused() -> None:
    task = load_task("cartpole-swingup")
    spec = task.robot.model_spec.copy()
    spec.worldbody.add_body(name="ball").add_freejoint()
    spec.body("ball").add_geom(type=2, size=[0.1, 0.0, 0.0], mass=1.0)
    model = spec.compile()
    ball = int(model.body("ball").id)
    rule = Randomise(field="body_ipos", rows=(ball,), columns=(0,), operation="add", lower=-0.01, upper=0.01)
    engine = MujocoEngine(model, 1, num_threads=1, parameters=("body_ipos",))
    with pytest.raises(TaskError, match=r"centre of mass of body 'ball' lies in .* write <body simple=\"false\">"):
        ParameterDraws(replace(task, model=model, randomisation=(rule,)), engine)
    spec.body("ball").simple = mujoco.mjtLimited.mjLIMITED_FALSE
    general = MujocoEngine(spec.compile(), 1, num_threads=1, parameters=("body_ipos",))
    ParameterDraws(replace(task, randomisation=(rule,)), general).draw(np.ones(1, bool), np.ones(1, np.uint64))


def test_a_moved_centre_of_mass_tilts_a_standing_robot() -> None:
    base = load_task("go2-velocity")
    trunk = (int(base.model.body("base").id),)
    pitches: list[float] = []
    for shift in (-0.05, 0.05):
        rule = Randomise(field="body_ipos", rows=trunk, columns=(0,), operation="add", lower=shift, upper=shift)
        env = Environment(replace(base, randomisation=(rule,), push=None), 1, seed=4, num_threads=1)
        env.reset()
        for _ in range(50):
            env.step({"joint_pos_target": np.array([[j.default_pos for j in base.robot.spec.joints]], np.float32)})
        w, x, y, z = env.view.qpos[0, 3:7]
        pitches.append(float(2.0 * (w * y - x * z)))
    # A nose-heavy robot pitches down, which is positive about y.
    assert pitches[1] > pitches[0] + 0.01


def test_pushes_come_when_due_and_as_drawn(slider_task: TaskMaker) -> None:
    task = slider_task(push=Push(interval_s=0.12, velocity=(1.0, 0.5)), episode_length_s=0.4)
    env = Environment(task, 3, num_threads=1)
    env.reset()
    before = env.view.qvel.copy()
    for step in range(1, 10):
        push(env, 0.0, 0.0)
        change = env.view.qvel - before
        before = env.view.qvel.copy()
        if step % 3:
            assert (change == 0.0).all()
        else:
            draw = 2.0 * uniform(env.episode_seeds, Stream.PUSH, 2, steps=step) - 1.0
            assert change == pytest.approx(draw * np.array([1.0, 0.5]))


def test_a_push_must_fit_the_model(slider_task: TaskMaker) -> None:
    with pytest.raises(TaskError, match=r"push.velocity has 1 values, the model 2 velocities"):
        Environment(slider_task(push=Push(interval_s=1.0, velocity=(1.0,))), 1, num_threads=1)
