"""Lag of commands and age of sensor samples, measured physically; noise and bias."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.terms import ObservationTerm
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array, Stage
from physai.sim.envs.delay import ActionDelay, actuator_columns, draw_lags
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import episode_seeds
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.task import Delay, SensorModel, Task
from physai.sim.tasks.walking.velocity import go2_velocity

TaskMaker = Callable[..., Task]
PHYSICS_DT, DECIMATION, LIGHT_KG = 0.01, 4, 2.0


def push(env: Environment, *left_n: float) -> StepResult:
    """One step with that effort on the left mass [N], one value per control period."""
    return env.step(*({"joint_effort_target": np.array([[f, 0.0]] * env.num_worlds, np.float32)} for f in left_n))


class ListeningEngine(MujocoEngine):
    """An engine that remembers the controls of its last period."""

    driven: Array = np.zeros(0)

    def drive(self, controls: Array) -> None:
        self.driven = controls.copy()
        super().drive(controls)


def pushed_steps(env: Environment) -> Array:
    """For how many physics steps 2 N have acted on the left mass: each adds 2 N / 2 kg · 10 ms."""
    return np.array(env.view.qvel[:, 0] / (2.0 / LIGHT_KG * PHYSICS_DT)).round(6)


@pytest.mark.parametrize("lag", range(13))
def test_a_command_arrives_exactly_after_its_lag(slider_task: TaskMaker, lag: int) -> None:
    delay = Delay(lower_s=lag * PHYSICS_DT, upper_s=lag * PHYSICS_DT)
    env = Environment(slider_task(action_delay=delay), 3, num_threads=1)
    env.reset()
    for period in range(1, 6):
        push(env, 2.0)
        assert (pushed_steps(env) == max(0, DECIMATION * period - lag)).all()
    # The old command goes on for `lag` steps after the new one is given.
    before = pushed_steps(env)
    for _ in range(4):
        push(env, 0.0)
    assert (pushed_steps(env) - before == lag).all()


def test_each_world_keeps_the_lag_it_drew(slider_task: TaskMaker) -> None:
    delay = Delay(lower_s=0.02, upper_s=0.07)
    env = Environment(slider_task(action_delay=delay), 200, seed=1, num_threads=1)
    env.reset()
    drawn = draw_lags(delay, PHYSICS_DT, env.episode_seeds, column=1)
    for _ in range(4):
        push(env, 2.0)
    assert np.array_equal(4 * DECIMATION - pushed_steps(env), drawn)
    assert set(drawn.tolist()) == {2, 3, 4, 5, 6, 7}


def test_lags_are_uniform_over_their_range() -> None:
    seeds = episode_seeds(0, np.arange(6000), np.zeros(6000, int))
    counts = np.bincount(draw_lags(Delay(lower_s=0.01, upper_s=0.03), 0.01, seeds, column=0), minlength=5)
    assert counts[[0, 4]].tolist() == [0, 0]
    assert (np.abs(counts[1:4] - 2000) < 200).all()


def test_without_randomisation_there_is_no_lag(slider_task: TaskMaker) -> None:
    task = slider_task(action_delay=Delay(lower_s=0.05, upper_s=0.05), sensor_delay=Delay(lower_s=0.04, upper_s=0.04))
    env = Environment(task, 1, randomise=False, num_threads=1)
    env.reset()
    now = push(env, 2.0)
    assert pushed_steps(env) == DECIMATION
    assert now.sensors["joint_vel"][0, 0] == np.float32(env.view.qvel[0, 0])


@pytest.mark.parametrize("lag", [0, 3, 4, 9])
def test_several_periods_in_one_step_are_the_same_physics(slider_task: TaskMaker, lag: int) -> None:
    task = slider_task(action_delay=Delay(lower_s=lag * PHYSICS_DT, upper_s=lag * PHYSICS_DT))
    single, triple = (Environment(task, 2, num_threads=1, action_repeat=n) for n in (1, 3))
    single.reset()
    triple.reset()
    for efforts in ((1.0, -3.0, 2.0), (0.5, 4.0, -1.0)):
        for effort in efforts:
            push(single, effort)
        push(triple, *efforts)
        assert np.array_equal(single.view.qpos, triple.view.qpos)
        assert np.array_equal(single.view.qvel, triple.view.qvel)


def test_an_old_command_does_not_reach_into_the_next_episode(slider_task: TaskMaker) -> None:
    task = slider_task(action_delay=Delay(lower_s=0.06, upper_s=0.06), episode_length_s=0.12)
    env = Environment(task, 2, num_threads=1)
    last = env.reset()
    for _ in range(3):
        last = push(env, 2.0)
    assert last.truncated.all()
    push(env, 0.0)
    push(env, 0.0)
    assert (env.view.qvel == 0.0).all()


def test_servos_hold_the_start_until_the_first_command_arrives() -> None:
    task = replace(go2_velocity(), action_delay=Delay(lower_s=0.015, upper_s=0.015), push=None, randomisation=())
    engine = ListeningEngine(task.model, 2, num_threads=1, stage=task.stage, derived=task.derived)
    env = Environment(task, 2, engine=engine)
    env.reset()
    start = env.view.joint_pos.copy()
    assert env.engine.state("ctrl") == pytest.approx(start)
    env.step({"joint_pos_target": (start + 0.3).astype(np.float32)})
    assert env.engine.state("ctrl") == pytest.approx(start + 0.3)
    # Three physics steps with the start position, then the command.
    assert engine.driven[:, :3] == pytest.approx(np.repeat(start[:, None], 3, axis=1))
    assert engine.driven[:, 3] == pytest.approx(start + 0.3)


@pytest.mark.parametrize("names", [("", ""), ("right", "left"), ("a", "b")])
def test_an_actuator_is_found_by_its_joint_and_not_by_its_name(names: tuple[str, str], slider_task: TaskMaker) -> None:
    """Models of others name actuators as they like, also after a joint that they do not drive."""
    task = slider_task()
    spec = task.robot.model_spec.copy()
    left, right = spec.actuator("left"), spec.actuator("right")
    left.name, right.name = "x", "y"
    left.name, right.name = names
    env = Environment(replace(task, model=spec.compile()), 1, randomise=False, num_threads=1)
    env.reset()
    assert actuator_columns(env.task, env.engine.model) == [1, 0]
    env.step({"joint_effort_target": np.array([[2.0, 8.0]], np.float32)})
    assert env.view.qvel[0] == pytest.approx([0.04, 0.08])


def test_commands_reach_the_actuator_of_their_joint(slider_task: TaskMaker) -> None:
    env = Environment(slider_task(), 1, randomise=False, num_threads=1)
    env.reset()
    # Targets come as (left, right), controls as (right, left).
    assert actuator_columns(env.task, env.engine.model) == [1, 0]
    env.step({"joint_effort_target": np.array([[2.0, 8.0]], np.float32)})
    assert env.view.qvel[0] == pytest.approx([0.04, 0.08])


@pytest.mark.parametrize("age", range(4))
def test_a_sensor_sample_is_exactly_as_old_as_drawn(slider_task: TaskMaker, age: int) -> None:
    delay = Delay(lower_s=0.04 * age, upper_s=0.04 * age)
    env = Environment(slider_task(sensor_delay=delay), 2, num_threads=1)
    seen, true = [env.reset().sensors["joint_pos"]], [env.view.qpos.astype(np.float32)]
    for _ in range(6):
        seen.append(push(env, 2.0).sensors["joint_pos"])
        true.append(env.view.qpos.astype(np.float32))
    for step in range(7):
        # Before the first sample there is no history: it is filled with the first one.
        assert np.array_equal(seen[step], true[max(0, step - age)])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4))
def test_periods_follow_the_rate_and_seconds_do_not(
    slider_task: TaskMaker, periods: int, steps: int, repeat: int
) -> None:
    """Steps of 10 ms in control periods of 10 to 40 ms; a lag of commands is exact to a physics step. An age of half a
    period more is rounded up or down, as its floating-point numbers have it."""
    assume(2 * (steps % repeat) != repeat)
    task = slider_task()
    control_dt = repeat * PHYSICS_DT
    timing = task.contract.timing.model_copy(update={"control_dt": control_dt, "decimation": repeat})
    delay = Delay(lower_s=steps * PHYSICS_DT, upper_s=steps * PHYSICS_DT, lower_periods=periods, upper_periods=periods)
    contract = task.contract.model_copy(update={"timing": timing})
    late = replace(task, contract=contract, action_delay=delay, sensor_delay=delay)
    env = Environment(late, 1, num_threads=1)
    env.reset()
    lag, age = periods * repeat + steps, round((periods * repeat + steps) / repeat)
    true = [0.0]
    for period in range(1, 9):
        seen = push(env, 2.0).sensors["joint_vel"][0, 0]
        true.append(max(0, period * repeat - lag) * 2.0 / LIGHT_KG * PHYSICS_DT)
        assert env.view.qvel[0, 0] == pytest.approx(true[period])
        assert seen == pytest.approx(true[max(0, period - age)])


def test_each_world_sees_the_age_it_drew(slider_task: TaskMaker) -> None:
    delay = Delay(lower_s=0.04, upper_s=0.16)
    env = Environment(slider_task(sensor_delay=delay), 100, num_threads=1)
    now = env.reset()
    drawn = draw_lags(delay, 0.04, env.episode_seeds, column=0)
    assert set(drawn.tolist()) == {1, 2, 3, 4}
    for _ in range(6):
        now = push(env, 2.0)
    # Constant force: the speed after period k is k · 0.04 m/s.
    assert 6 - now.sensors["joint_vel"][:, 0] / 0.04 == pytest.approx(drawn, abs=1e-4)


def test_a_new_episode_does_not_see_the_old_ones_past(slider_task: TaskMaker) -> None:
    delay = Delay(lower_s=0.12, upper_s=0.12)
    env = Environment(slider_task(sensor_delay=delay, episode_length_s=0.2), 3, num_threads=1)
    now = env.reset()
    for _ in range(5):
        now = push(env, 2.0)
    assert now.truncated.all()
    assert np.array_equal(now.sensors["joint_pos"], env.view.qpos.astype(np.float32))
    assert (push(env, 2.0).sensors["joint_vel"] == 0.0).all()


def test_noise_is_white_and_as_strong_as_asked(slider_task: TaskMaker) -> None:
    task = slider_task(sensors={"joint_vel": SensorModel(noise_std=0.5)}, episode_length_s=40.0)
    env = Environment(task, 50, num_threads=1)
    env.reset()
    samples = np.stack([push(env, 0.0).sensors["joint_vel"].ravel() for _ in range(200)])
    # 20000 samples: the mean has a standard error of 0.0035, the deviation one of 0.0025.
    assert abs(samples.mean()) < 0.02
    assert abs(samples.std() - 0.5) < 0.015
    neighbours = (samples[1:] * samples[:-1]).mean() / 0.25
    assert abs(neighbours) < 0.04
    assert len(np.unique(samples[:, 0])) > 150
    assert np.abs(np.corrcoef(samples.T) - np.eye(100)).max() < 0.4


def test_noise_depends_on_seed_and_step_alone(slider_task: TaskMaker) -> None:
    task = slider_task(sensors={"joint_pos": SensorModel(noise_std=0.1, bias=0.2)})
    seeds = episode_seeds(9, np.arange(4), np.zeros(4, int))
    one, other = Environment(task, 4, num_threads=1), Environment(task, 4, seed=77, num_threads=1)
    first, second = one.reset(seeds), other.reset(seeds[::-1])
    for _ in range(3):
        assert np.array_equal(first.sensors["joint_pos"], second.sensors["joint_pos"][::-1])
        first, second = push(one, 1.0), push(other, 1.0)


def test_a_bias_lasts_for_an_episode(slider_task: TaskMaker) -> None:
    task = slider_task(sensors={"joint_vel": SensorModel(bias=0.3)}, episode_length_s=0.2)
    env = Environment(task, 500, num_threads=1)
    episodes: list[Array] = []
    now = env.reset()
    for _ in range(2):
        biases: list[Array] = []
        for _ in range(5):
            biases.append(now.sensors["joint_vel"])
            now = push(env, 0.0)
        assert all(np.array_equal(bias, biases[0]) for bias in biases)
        episodes.append(biases[0])
    both = np.concatenate(episodes)
    assert (np.abs(both) <= 0.3).all()
    assert both.min() < -0.29
    assert both.max() > 0.29
    assert abs(np.corrcoef(episodes[0].ravel(), episodes[1].ravel())[0, 1]) < 0.2
    assert abs(np.corrcoef(both.T)[0, 1]) < 0.2


def test_a_bias_is_drawn_about_its_mean(slider_task: TaskMaker) -> None:
    """Within 0.3 of -1; of 2000 uniform numbers the extreme ones are within a hundredth of the ends."""
    for reach in (0.3, 0.0):
        task = slider_task(sensors={"joint_vel": SensorModel(bias=reach, bias_mean=(-1.0, 0.0))})
        found = Environment(task, 2000, num_threads=1).reset().sensors["joint_vel"]
        for column, mean in ((0, -1.0), (1, 0.0)):
            assert found[:, column].min() == pytest.approx(mean - reach, abs=0.01)
            assert found[:, column].max() == pytest.approx(mean + reach, abs=0.01)
    with pytest.raises(TaskError, match="bias_mean is nan"):
        SensorModel(bias_mean=math.nan)


def test_given_offsets_take_the_place_of_drawn_ones(slider_task: TaskMaker) -> None:
    """In every episode, and in the positions alone."""
    sensors = {"joint_pos": SensorModel(bias=0.2, bias_mean=0.5), "joint_vel": SensorModel(bias=0.3)}
    task = slider_task(sensors=sensors, episode_length_s=0.1)
    given = np.array([[0.1, -0.2], [0.0, 0.4], [1.0, 2.0]])
    env = Environment(task, 3, num_threads=1, joint_pos_offset=given)
    drawn = Environment(task, 3, num_threads=1)
    now, other = env.reset(), drawn.reset()
    for _ in range(25):
        assert now.sensors["joint_pos"] - env.view.joint_pos == pytest.approx(given, abs=1e-6)
        assert np.array_equal(now.sensors["joint_vel"], other.sensors["joint_vel"])
        now, other = push(env, 0.0), push(drawn, 0.0)


def test_each_element_of_a_sensor_may_have_errors_of_its_own(slider_task: TaskMaker) -> None:
    task = slider_task(sensors={"joint_vel": SensorModel(bias=(0.3, 0.0), noise_std=(0.0, 0.5))})
    first = Environment(task, 2000, num_threads=1).reset().sensors["joint_vel"]
    # Of 2000 uniform numbers the largest is above 0.29 of 0.3; the deviation has a standard error of 0.008.
    assert 0.29 < np.abs(first[:, 0]).max() <= 0.3
    assert abs(first[:, 1].std() - 0.5) < 0.04
    with pytest.raises(TaskError, match="the sensor model of joint_vel has 3 values, it has 2"):
        Environment(slider_task(sensors={"joint_vel": SensorModel(bias=(0.1, 0.1, 0.1))}), 2)
    with pytest.raises(TaskError, match="must be finite and not below 0"):
        SensorModel(noise_std=(0.1, math.nan))


def test_a_noisy_orientation_is_a_unit_quaternion() -> None:
    env = Environment(go2_velocity(), 50, num_threads=1)
    quat = env.reset().sensors["imu_quat"]
    true = env.view.qpos[:, 3:7]
    assert np.linalg.norm(quat, axis=1) == pytest.approx(np.ones(50), abs=1e-6)
    angle = 2.0 * np.arccos(np.clip(np.abs((quat * true).sum(axis=1)), 0.0, 1.0))
    assert 0.005 < angle.mean() < 0.05


def test_the_ends_sensors_are_those_of_an_episode_that_goes_on(slider_task: TaskMaker) -> None:
    options: dict[str, Any] = {
        "sensors": {"joint_pos": SensorModel(noise_std=0.1, bias=0.1)},
        "sensor_delay": Delay(lower_s=0.0, upper_s=0.12),
    }
    short = Environment(slider_task(**options, episode_length_s=0.2), 20, num_threads=1, keep_final=True)
    long = Environment(slider_task(**options, episode_length_s=1.0), 20, num_threads=1)
    ended, going_on = short.reset(), long.reset()
    for _ in range(5):
        ended, going_on = push(short, 1.0), push(long, 1.0)
    assert ended.done.all()
    assert ended.final_sensors is not None
    for name, value in ended.final_sensors.items():
        assert np.array_equal(value, going_on.sensors[name])


def test_effort_is_measured_where_the_task_keeps_it_current() -> None:
    base = cartpole_swingup()
    terms = (*base.contract.observation.terms, ObservationTerm(name="effort", kind="sensor", source="joint_effort"))
    contract = base.contract.model_copy(
        update={"observation": base.contract.observation.model_copy(update={"terms": terms})}
    )
    with pytest.raises(
        TaskError, match=r"'joint_effort': its derived needs 'qfrc_actuator' and its stage at least ACC"
    ):
        Environment(replace(base, contract=contract), 1, num_threads=1)
    task = replace(base, contract=contract, stage=Stage.ACCELERATION, derived=("qfrc_actuator",))
    env = Environment(task, 2, randomise=False, num_threads=1)
    assert (env.reset().sensors["joint_effort"] == 0.0).all()
    now = env.step({"joint_effort_target": np.array([[7.0], [-2.0]], np.float32)})
    assert now.sensors["joint_effort"] == pytest.approx(np.array([[7.0, 0.0], [-2.0, 0.0]]))


def test_a_sensor_the_model_lacks_is_refused() -> None:
    task = go2_velocity()
    spec = task.robot.model_spec.copy()
    spec.delete(spec.sensor("imu_quat"))
    with pytest.raises(TaskError, match="reads sensor 'imu_quat', which the model does not have"):
        Environment(replace(task, model=spec.compile(), randomisation=()), 1, num_threads=1)
    with pytest.raises(TaskError, match="'imu_ang_vel_b': its derived needs 'sensordata' and its stage at least VEL"):
        Environment(replace(task, stage=Stage.POSITION), 1, num_threads=1)


def test_a_joint_without_an_actuator_is_refused(slider_task: TaskMaker) -> None:
    task = slider_task()
    spec = task.robot.model_spec.copy()
    spec.delete(spec.actuator("left"))
    engine = MujocoEngine(spec.compile(), 1, num_threads=1)
    with pytest.raises(TaskError, match="commands joint 'left', but the model has no actuator of that joint alone"):
        ActionDelay(task, engine, active=True)


def test_noise_on_an_unknown_sensor_is_refused(slider_task: TaskMaker) -> None:
    task = slider_task(sensors={"joint_poss": SensorModel(noise_std=0.1)})
    with pytest.raises(TaskError, match="task sliders: no sensor named 'joint_poss'; did you mean joint_pos"):
        Environment(task, 1, num_threads=1)


@pytest.mark.parametrize("bounds", [(0.02, 0.01), (-0.01, 0.01), (0.0, math.inf), (math.nan, 0.1), (0.0, math.nan)])
def test_a_delay_that_is_none_is_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(TaskError, match=r"delay: range is \["):
        Delay(lower_s=bounds[0], upper_s=bounds[1])
    with pytest.raises(TaskError, match=r"delay: range is \[.* periods"):
        Delay(lower_periods=bounds[0], upper_periods=bounds[1])


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_impossible_noise_is_refused(value: float) -> None:
    with pytest.raises(TaskError, match="noise_std is"):
        SensorModel(noise_std=value)
    with pytest.raises(TaskError, match="bias is"):
        SensorModel(bias=value)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.lists(st.floats(-5, 5), min_size=6, max_size=6), st.integers(0, 99))
def test_delayed_force_is_the_shifted_force(
    slider_task: TaskMaker, least: int, more: int, efforts: list[float], seed: int
) -> None:
    delay = Delay(lower_s=least * PHYSICS_DT, upper_s=(least + more) * PHYSICS_DT)
    env = Environment(slider_task(action_delay=delay), 4, seed=seed, num_threads=1)
    env.reset()
    lags = draw_lags(delay, PHYSICS_DT, env.episode_seeds, column=1)
    force = np.repeat(np.array(efforts, np.float32), DECIMATION)
    for period, effort in enumerate(efforts, start=1):
        push(env, effort)
        arrived = [force[: max(0, period * DECIMATION - lag)].sum(dtype=float) for lag in lags]
        assert env.view.qvel[:, 0] == pytest.approx(np.array(arrived) / LIGHT_KG * PHYSICS_DT, abs=1e-9)
