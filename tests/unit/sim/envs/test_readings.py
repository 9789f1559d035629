"""Readings as a robot computes them: differences of positions, steps and filters, at the policy's own rate."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.terms import ObservationTerm
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.envs.readings import Readings
from physai.sim.envs.step_result import StepResult
from physai.sim.tasks.task import MAX_DIFFERENCE_SPAN, Delay, SensorModel, Task

TaskMaker = Callable[..., Task]
STEP_S = 0.04
SLICES = {"joint_pos": slice(0, 1), "joint_vel": slice(1, 2)}


def push(env: Environment, left_n: float) -> StepResult:
    """One period of 0.04 s with that effort on the left mass of 2 kg."""
    return env.step({"joint_effort_target": np.array([[left_n, 0.0]] * env.num_worlds, np.float32)})


def moving(speed: float) -> Callable[[Array], tuple[Array, Array]]:
    """A reset to positions that the seed draws, at one speed of the left mass."""

    def start(draw: Array) -> tuple[Array, Array]:
        qpos, qvel = np.zeros((len(draw), 2)), np.zeros((len(draw), 2))
        qpos[:, 0], qvel[:, 0] = draw[:, 0], speed
        return qpos, qvel

    return start


def played(readings: Readings, truth: Array) -> Array:
    """Readings without errors of a series of positions and speeds, shape (n, 2), from its first row on."""
    rows = truth.astype(np.float32)
    smooth, read = rows[:1].copy(), list[Array]()
    past = readings.before(rows[:1], np.zeros((1, 2), np.float32), 0.0)
    for row in rows:
        sample = readings.read(row[None].copy(), 0.0, smooth, past[-1] if past else None)
        past = [sample[:, :1], *past][: readings.span]
        read.append(sample[0])
    return np.array(read)


@given(st.integers(1, 8), st.floats(-20.0, 20.0), st.floats(-3.0, 3.0), st.sampled_from([0.0, 0.01, 0.2]))
def test_of_a_steady_motion_the_difference_is_its_speed_from_the_first_reading_on(
    span: int, speed: float, start: float, constant_s: float
) -> None:
    model = SensorModel(difference_span=span, time_constant_s=constant_s)
    readings = Readings(SLICES, {"joint_vel": model}, step_dt=STEP_S)
    ramp = start + speed * STEP_S * np.arange(20)
    read = played(readings, np.column_stack([ramp, np.full(20, speed)]))
    # Positions in float32 below 32: rounding of 2e-6 each, divided by at least 0.04 s.
    assert read[:, 1] == pytest.approx(np.full(20, speed), abs=2e-4)


def test_a_difference_lags_by_half_its_span() -> None:
    """At constant acceleration a the speed half a span earlier: a·(t - k·dt/2), as soon as the past is real."""
    readings = Readings(SLICES, {"joint_vel": SensorModel(difference_span=3)}, step_dt=STEP_S)
    time = STEP_S * np.arange(12)
    read = played(readings, np.column_stack([0.5 * 2.0 * time**2, 2.0 * time]))
    assert read[3:, 1] == pytest.approx(2.0 * (time[3:] - 0.06), abs=1e-5)
    # (0.01 - 0)/0.12 at the third: 0.08², by hand. Before the first reading the mass was at rest.
    assert read[2, 1] == pytest.approx(0.0064 / 0.12, abs=1e-6)


def test_a_filter_follows_a_step_by_the_exponential() -> None:
    readings = Readings(SLICES, {"joint_vel": SensorModel(time_constant_s=0.1)}, step_dt=STEP_S)
    truth = np.zeros((6, 2))
    truth[1:, 1] = 5.0
    expected = 5.0 * (1.0 - np.exp(-STEP_S * np.arange(6) / 0.1))
    assert played(readings, truth)[:, 1] == pytest.approx(expected, abs=1e-5)


def test_steps_of_the_position_are_steps_of_its_difference() -> None:
    """Positions of 0.024 and 0.066 m read as 0.0 and 0.1 m: a difference over 0.08 s of 1.25 m/s."""
    models = {"joint_pos": SensorModel(resolution=0.1), "joint_vel": SensorModel(difference_span=2)}
    readings = Readings(SLICES, models, step_dt=STEP_S)
    read = played(readings, np.array([[0.024, 0.0], [0.024, 0.0], [0.066, 0.0], [0.066, 0.0], [0.066, 0.0]]))
    assert read[:, 0] == pytest.approx([0.0, 0.0, 0.1, 0.1, 0.1])
    assert read[:, 1] == pytest.approx([0.0, 0.0, 1.25, 1.25, 0.0])


@given(st.floats(1e-3, 0.5), st.lists(st.floats(-10.0, 10.0), min_size=1, max_size=20))
def test_readings_are_multiples_of_the_resolution_within_half_of_it(step: float, values: list[float]) -> None:
    readings = Readings(SLICES, {"joint_pos": SensorModel(resolution=step)}, step_dt=STEP_S)
    read = played(readings, np.column_stack([values, np.zeros(len(values))]))[:, 0]
    counts: Array = read / step
    assert np.abs(counts - counts.round()).max() < 1e-2
    assert (np.abs(read - values) <= 0.5 * step + 1e-5).all()


def test_an_environment_reads_the_difference_of_its_own_readings(slider_task: TaskMaker) -> None:
    """With noise, bias and steps; the bias cancels, and a new episode starts with a past of its own."""
    models = {
        "joint_pos": SensorModel(noise_std=0.02, bias=0.3, resolution=0.005),
        "joint_vel": SensorModel(difference_span=2),
    }
    env = Environment(slider_task(sensors=models, reset=moving(1.5)), 200, num_threads=1)
    now, seen = env.reset(), list[Array]()
    # Noise of two readings, and of rounding them: (2·(0.02² + 0.005²/12))^½/0.08.
    expected = math.sqrt(2.0 * (0.02**2 + 0.005**2 / 12.0)) / 0.08
    for number in range(12):
        error = now.sensors["joint_vel"][:, 0] - env.view.qvel[:, 0]
        # Standard errors: 0.025 of the mean, 0.018 of the deviation. In the tenth step all episodes end.
        assert abs(error.mean()) < 0.1
        assert abs(error.std() - expected) < 0.08
        seen.append(now.sensors["joint_pos"])
        if 2 <= number < 10:
            assert now.sensors["joint_vel"] == pytest.approx((seen[-1] - seen[-3]) / 0.08, abs=1e-4)
        now = push(env, 0.0)


def test_age_is_that_of_the_whole_reading(slider_task: TaskMaker) -> None:
    models, delay = {"joint_vel": SensorModel(difference_span=1)}, Delay(lower_s=STEP_S, upper_s=STEP_S)
    late = Environment(slider_task(sensors=models, sensor_delay=delay), 2, num_threads=1)
    prompt = Environment(slider_task(sensors=models), 2, num_threads=1)
    now = [prompt.reset().sensors["joint_vel"], *(push(prompt, 2.0).sensors["joint_vel"] for _ in range(5))]
    then = [late.reset().sensors["joint_vel"], *(push(late, 2.0).sensors["joint_vel"] for _ in range(5))]
    assert np.array_equal(then, [now[0], *now[:-1]])
    assert len(np.unique(now)) > 5


def without_positions(task: Task) -> Task:
    """The task with a graph that reads speeds alone."""
    terms = (ObservationTerm(name="speed", kind="sensor", source="joint_vel"),)
    observation = task.contract.observation.model_copy(update={"terms": terms})
    return replace(task, contract=task.contract.model_copy(update={"observation": observation}))


def test_a_graph_that_reads_no_positions_gets_their_difference_nevertheless(slider_task: TaskMaker) -> None:
    models = {"joint_pos": SensorModel(resolution=0.01), "joint_vel": SensorModel(difference_span=1)}
    env = Environment(without_positions(slider_task(sensors=models, reset=moving(0.0))), 3, num_threads=1)
    now = env.reset()
    assert list(now.sensors) == ["joint_vel"]
    for _ in range(4):
        now = push(env, 2.0)
        # A multiple of 0.01 m / 0.04 s.
        steps: Array = now.sensors["joint_vel"][:, 0] / 0.25
        assert steps == pytest.approx(steps.round(), abs=1e-4)
        assert (np.abs(now.sensors["joint_vel"][:, 0] - env.view.qvel[:, 0] + 0.02) < 0.26).all()


def test_the_end_of_an_episode_reads_what_an_episode_that_goes_on_reads(slider_task: TaskMaker) -> None:
    models = {
        "joint_pos": SensorModel(noise_std=0.1, bias=0.1),
        "joint_vel": SensorModel(difference_span=3, time_constant_s=0.05),
    }
    short = Environment(slider_task(sensors=models, episode_length_s=0.2), 20, num_threads=1, keep_final=True)
    long = Environment(slider_task(sensors=models, episode_length_s=1.0), 20, num_threads=1)
    ended, going_on = short.reset(), long.reset()
    for _ in range(5):
        ended, going_on = push(short, 1.0), push(long, 1.0)
    assert ended.done.all()
    assert ended.final_sensors is not None
    for name, value in ended.final_sensors.items():
        assert np.array_equal(value, going_on.sensors[name])


def test_a_restored_environment_continues_bit_for_bit(slider_task: TaskMaker) -> None:
    models = {
        "joint_pos": SensorModel(noise_std=0.1),
        "joint_vel": SensorModel(difference_span=2, time_constant_s=0.05, resolution=0.01),
    }
    one, other = (Environment(slider_task(sensors=models), 3, num_threads=1) for _ in range(2))
    one.reset()
    other.reset()
    for _ in range(3):
        push(one, 2.0)
    other.restore(one.snapshot())
    for _ in range(4):
        assert np.array_equal(push(one, 1.0).sensors["joint_vel"], push(other, 1.0).sensors["joint_vel"])


def test_models_that_are_none_are_refused(slider_task: TaskMaker) -> None:
    for name in ("resolution", "time_constant_s"):
        for value in (-0.1, math.nan, math.inf):
            with pytest.raises(TaskError, match=f"{name} is"):
                SensorModel(**{name: value})  # pyright: ignore[reportArgumentType]
    for span in (-1, MAX_DIFFERENCE_SPAN + 1):
        with pytest.raises(TaskError, match=f"difference_span is {span}, it must be 0 to {MAX_DIFFERENCE_SPAN}"):
            SensorModel(difference_span=span)
    with pytest.raises(TaskError, match="sensor model of joint_pos: difference_span is 2, but only joint_vel can be"):
        Environment(slider_task(sensors={"joint_pos": SensorModel(difference_span=2)}), 1, num_threads=1)
