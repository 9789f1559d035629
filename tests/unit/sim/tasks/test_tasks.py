"""The built-in tasks: sound contracts, finite physics, success where it is due."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import TaskError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.io import parse_contract
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.envs.step_result import StepResult
from physai.sim.robots import home_qpos
from physai.sim.robots.spec import joint_columns
from physai.sim.tasks import rotations
from physai.sim.tasks.pendulums import double_pendulum
from physai.sim.tasks.registry import load_task, task_names
from physai.sim.tasks.task import Task, WorldView
from physai.sim.tasks.walking import velocity
from physai.sim.tasks.walking.legged import Legged, require_legs

TASKS = {name: load_task(name) for name in task_names()}
TASKS["pendubot-swingup:realaigym-v2"] = load_task("pendubot-swingup", preset="realaigym-v2")
TASKS["acrobot-swingup:realaigym-v2"] = load_task("acrobot-swingup", preset="realaigym-v2")

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def hold(env: Environment, targets: Array, steps: int) -> StepResult:
    """The same commands for some steps; the last result."""
    (term,) = env.task.contract.action.terms
    now = env.step({term.target_name: targets.astype(np.float32)})
    for _ in range(steps - 1):
        now = env.step({term.target_name: targets.astype(np.float32)})
    return now


def place(env: Environment, qpos: Array, qvel: Array | None = None) -> None:
    """Puts every world into a state."""
    env.engine.reset(np.ones(env.num_worlds, bool), qpos, np.zeros_like(env.view.qvel) if qvel is None else qvel)
    env.view.shared.clear()


# Laws of every task


@every_task
@pytest.mark.parametrize("training", [False, True])
def test_random_commands_keep_everything_finite(task: Task, training: bool) -> None:
    env = Environment(task, 4, seed=1, training=training, num_threads=1)
    now = env.reset()
    rng = np.random.default_rng(0)
    limits = [(t.target_name, np.array(t.lower), np.array(t.upper)) for t in task.contract.action.terms]
    judged = 0
    for _ in range(200):
        now = env.step({n: rng.uniform(low, high, (4, len(low))).astype(np.float32) for n, low, high in limits})
        assert np.isfinite(now.reward).all()
        assert np.isfinite(now.critic).all()
        assert np.isfinite(now.final_critic).all()
        assert now.critic.shape == (4, task.critic_size)
        assert set(now.reward_terms) == set(task.rewards)
        assert np.isfinite(list(now.reward_terms.values())).all()
        assert all(np.isfinite(value).all() for value in now.sensors.values())
        judged += int(now.judged.sum())
        if now.judged.any():
            assert {name: len(v) for name, v in now.metrics.items()} == dict.fromkeys(task.metrics, now.judged.sum())
    assert env.diverged_episodes == []
    expected = {name: (4, size) for name, size in graph_interface(task.contract).sensors.items()}
    assert {name: value.shape for name, value in now.sensors.items()} == expected


@every_task
def test_a_contract_survives_its_own_file(task: Task) -> None:
    contract = parse_contract(canonical_json(task.contract), source="test")
    assert contract == task.contract
    assert contract.fingerprint == task.contract.fingerprint
    assert json.loads(canonical_json(contract))["task"] == task.name
    # A scene's objects are seen by sensors that the robot alone does not have.
    own = task.robot.spec
    assert contract.robot.model_copy(update={"sensors": own.sensors}) == own
    assert contract.robot.sensors[: len(own.sensors)] == own.sensors
    timing = task.contract.timing
    assert task.model.opt.timestep == timing.physics_dt
    assert task.episode_length_s / timing.control_dt == pytest.approx(round(task.episode_length_s / timing.control_dt))


@pytest.mark.parametrize("key", TASKS)
def test_a_task_made_again_has_the_same_contract(key: str) -> None:
    name, _, preset = key.partition(":")
    assert load_task(name, preset=preset or None).contract.fingerprint == TASKS[key].contract.fingerprint


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(TASKS)), st.integers(0, 2**32 - 1))
def test_starts_and_commands_keep_to_what_the_contract_says(name: str, seed: int) -> None:
    task = TASKS[name]
    rng = np.random.default_rng(seed)
    draws = np.concatenate([rng.random((6, task.reset_draws)), np.zeros((1, task.reset_draws))])
    for start in filter(None, (task.reset, task.training_reset)):
        qpos, qvel = start(draws)
        again = start(draws.copy())
        assert qpos.shape == (7, task.model.nq)
        assert qvel.shape == (7, task.model.nv)
        assert np.array_equal(qpos, again[0])
        assert np.array_equal(qvel, again[1])
        joints = qpos[:, joint_columns(task.model, task.robot.spec)[0]]
        for column, joint in enumerate(task.robot.spec.joints):
            assert joint.position_lower is None or (joints[:, column] >= joint.position_lower).all()
            assert joint.position_upper is None or (joints[:, column] <= joint.position_upper).all()
    if task.command is not None:
        commands = task.command(rng.random((50, task.command_draws)))
        for field in task.contract.command.fields:
            assert commands[field.name].shape == (50, field.size)
            assert (commands[field.name] >= np.array(field.lower) - 1e-9).all()
            assert (commands[field.name] <= np.array(field.upper) + 1e-9).all()


@every_task
def test_no_episode_starts_over_or_at_its_goal(task: Task) -> None:
    env = Environment(task, 40, num_threads=1)
    env.reset()
    assert not any(ended(env.view).any() for ended in task.terminations.values())
    assert task.success.condition(env.view).mean() < 0.5


# Success by construction


def test_a_balanced_cartpole_succeeds_and_a_hanging_one_does_not() -> None:
    task = replace(TASKS["cartpole-swingup"], episode_length_s=2.4)
    env = Environment(task, 3, randomise=False, num_threads=1)
    env.reset()
    # Upright; hanging; upright but falling.
    place(env, np.array([[0.2, 0.0], [0.0, math.pi], [0.0, 0.15]]))
    now = hold(env, np.zeros((3, 1)), 120)
    assert now.judged.all()
    assert now.succeeded.tolist() == [True, False, False]


def test_a_cart_off_its_rail_has_failed() -> None:
    task = TASKS["cartpole-swingup"]
    rail = task.robot.spec.joints[0].position_upper or 0.0
    env = Environment(task, 2, randomise=False, num_threads=1)
    env.reset()
    place(env, np.array([[0.97 * rail, 0.0], [0.99 * rail, 0.0]]))
    assert hold(env, np.zeros((2, 1)), 1).terminated.tolist() == [False, True]


@pytest.mark.parametrize("name", ["pendubot-swingup", "acrobot-swingup"])
def test_a_standing_double_pendulum_succeeds_and_a_hanging_one_does_not(name: str) -> None:
    # Dry friction holds it at the top for as long as this.
    task = replace(TASKS[name], episode_length_s=2.4)
    env = Environment(task, 2, randomise=False, num_threads=1)
    env.reset()
    place(env, np.array([[math.pi, 0.0], [0.0, 0.0]]))
    now = hold(env, np.zeros((2, 1)), 1200)
    assert now.judged.all()
    assert now.succeeded.tolist() == [True, False]


def test_the_double_pendulums_height_by_hand() -> None:
    env = Environment(TASKS["pendubot-swingup"], 4, randomise=False, num_threads=1)
    env.reset()
    place(env, np.array([[0.0, 0.0], [math.pi, 0.0], [math.pi / 2, 0.0], [math.pi, math.pi]]))
    # Links of 0.2 and 0.3 m: hanging, standing, level, folded down.
    assert double_pendulum.height(env.view) == pytest.approx([-0.5, 0.5, 0.0, -0.1], abs=1e-12)
    assert double_pendulum.upright(env.view) == pytest.approx([0.0, 1.0, 0.5, 0.4])
    assert double_pendulum.is_up(env.view).tolist() == [False, True, False, False]


def test_an_arm_at_its_target_succeeds() -> None:
    task = TASKS["ur10e-reach"]
    home = np.array([joint.default_pos for joint in task.robot.spec.joints])
    env = Environment(task, 3, randomise=False, num_threads=1)
    env.reset()
    place(env, np.repeat(home[None], 3, axis=0))
    hold(env, np.repeat(home[None], 3, axis=0), 50)
    tip = env.engine.model.site("ee").id
    target = env.view.commands["ee_pose_target"]
    body = env.engine.model.site_bodyid[tip]
    orientation = rotations.multiply(
        env.view.derived["xquat"][:, body], np.array(env.engine.model.site_quat[tip])[None], np
    )
    target[:, :3] = env.view.derived["site_xpos"][:, tip]
    target[:, 3:] = orientation
    # World 1: 3 cm beside it. World 2: turned by 0.2 rad about the target's own z axis.
    target[1, 0] += 0.03
    turn = np.array([[math.cos(0.1), 0.0, 0.0, math.sin(0.1)]])
    target[2:, 3:] = rotations.multiply(orientation[2:], turn, np)
    env.view.shared.clear()
    now = hold(env, np.repeat(home[None], 3, axis=0), 74)
    assert not now.judged.any()
    now = hold(env, np.repeat(home[None], 3, axis=0), 1)
    # 125 periods of 32 ms: the first target's 4 s.
    assert now.judged.all()
    assert now.succeeded.tolist() == [True, False, False]
    assert now.metrics["position_error_m"] == pytest.approx([0.0, 0.03, 0.0], abs=2e-3)
    assert now.metrics["orientation_error_rad"] == pytest.approx([0.0, 0.0, 0.2], abs=5e-3)


# The Go2


def go2_home(count: int) -> Array:
    return np.repeat(home_qpos(TASKS["go2-velocity"].model)[None], count, axis=0)


def command(env: Environment, *rows: tuple[float, float, float]) -> None:
    env.view.commands[velocity.COMMAND][:] = rows
    env.view.shared.clear()


def test_a_standing_go2_follows_the_command_to_stand() -> None:
    task = replace(TASKS["go2-velocity"], push=None)
    env = Environment(task, 3, randomise=False, num_threads=1)
    env.reset()
    place(env, go2_home(3))
    command(env, (0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.0, 0.0, 0.8))
    now = hold(env, go2_home(3)[:, 7:], 200)
    assert now.judged.all()
    assert now.succeeded.tolist() == [True, False, False]
    assert now.metrics["velocity_error_m_s"] == pytest.approx([0.0, 0.5, 0.0], abs=0.01)
    assert now.metrics["yaw_rate_error_rad_s"] == pytest.approx([0.0, 0.0, 0.8], abs=0.01)


def test_a_go2_that_folds_its_legs_has_fallen() -> None:
    env = Environment(TASKS["go2-velocity"], 2, randomise=False, num_threads=1)
    env.reset()
    folded = go2_home(2)[:, 7:] + np.tile([0.0, 1.2, -1.2], 4)
    ended = [hold(env, folded, 1).terminated for _ in range(60)]
    assert np.any(ended, axis=0).all()


def test_a_tilted_go2_has_fallen() -> None:
    task = TASKS["go2-velocity"]
    env = Environment(task, 4, randomise=False, num_threads=1)
    env.reset()
    qpos = go2_home(4)
    for world, degrees in enumerate((0.0, 55.0, 65.0, 180.0)):
        half = math.radians(degrees) / 2.0
        qpos[world, 3:7] = [math.cos(half), math.sin(half), 0.0, 0.0]
    place(env, qpos)
    assert task.terminations["fallen"](env.view).tolist() == [False, False, True, True]
    qpos = go2_home(4)
    qpos[:, 2] = [0.3, 0.17, 0.15, 0.05]
    place(env, qpos)
    assert task.terminations["fallen"](env.view).tolist() == [False, False, True, True]


def test_a_go2_stands_in_every_randomised_twin() -> None:
    task = replace(TASKS["go2-velocity"], push=None)
    env = Environment(task, 32, seed=3, num_threads=1)
    env.reset()
    for _ in range(150):
        now = hold(env, go2_home(32)[:, 7:], 1)
        assert not now.terminated.any()
    assert (env.view.qpos[:, 2] > 0.24).all()
    assert (np.abs(env.view.qvel[:, :6]) < 0.1).all()


def go2_terms(qvel: Array, yaw_rad: float, *commands: tuple[float, float, float]) -> tuple[Task, WorldView]:
    """The Go2 at home, heading by yaw, with that velocity in world coordinates."""
    task = TASKS["go2-velocity"]
    env = Environment(task, len(commands), randomise=False, num_threads=1)
    env.reset()
    qpos = go2_home(len(commands))
    qpos[:, 2] = velocity.GO2.base_height
    qpos[:, 3:7] = [math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2)]
    place(env, qpos, qvel)
    env.view.target[:] = env.view.previous_target[:] = qpos[:, 7:]
    command(env, *commands)
    return task, env.view


def go2_body(task: Task) -> Legged:
    return Legged(task.robot, task.model, require_legs(task.robot), velocity.GO2)


def test_the_go2s_rewards_by_hand() -> None:
    qvel = np.zeros((2, 18))
    # Heading left (+y): moving at 0.8 m/s along world y is moving forward.
    qvel[:, 1] = 0.8
    qvel[:, 2] = 0.1
    qvel[:, 3:6] = [0.3, -0.4, 0.5]
    task, view = go2_terms(qvel, math.pi / 2, (0.8, 0.0, 0.5), (0.5, 0.4, 0.0))
    terms = {name: entry.term(view) for name, entry in task.rewards.items()}
    # The second command is 0.3 and 0.4 m/s away: exp(-0.25 / 0.25); 0.5 rad/s away: exp(-1).
    assert terms["track_velocity"] == pytest.approx([1.0, math.exp(-1.0)])
    assert terms["track_yaw_rate"] == pytest.approx([1.0, math.exp(-1.0)])
    assert terms["vertical_velocity"] == pytest.approx([0.01, 0.01])
    assert terms["roll_pitch_rate"] == pytest.approx([0.25, 0.25])
    for name in ("tilt", "height", "effort", "target_rate", "pose"):
        assert terms[name] == pytest.approx([0.0, 0.0], abs=1e-12), name
    assert task.metrics["velocity_error_m_s"](view) == pytest.approx([0.0, 0.5], abs=1e-6)


def test_the_go2s_joint_terms_by_hand() -> None:
    task, view = go2_terms(np.zeros((1, 18)), 0.0, (0.0, 0.0, 0.0))
    view.target[0, 0] += 0.2
    view.target[0, 2] += 0.1
    view.target[0, 5] -= 5.0
    view.previous_target[0, 0] += 0.1
    view.previous_target[0, 2] += 0.1
    view.previous_target[0, 5] -= 5.0
    view.shared.clear()
    # 20 · 0.2 and 40 · 0.1 N·m, and a knee at its limit of 45.43 N·m; one target moved by 0.1 rad in 20 ms.
    assert task.rewards["effort"].term(view) == pytest.approx([16.0 + 16.0 + 45.43**2])
    assert task.rewards["target_rate"].term(view) == pytest.approx([25.0])


def test_the_go2s_feet_by_hand() -> None:
    qvel = np.zeros((1, 18))
    qvel[0, :2] = [0.3, 0.4]
    task, view = go2_terms(qvel, 0.0, (0.0, 0.0, 0.0))
    body = go2_body(task)
    heights, speeds = body.foot_heights(view), body.foot_speeds(view)
    # At home the feet are 1 mm above the floor with the base at 0.3245 m (fore) or there about (hind).
    assert heights[0, :2] == pytest.approx([0.001 + velocity.GO2.base_height - 0.3245] * 2, abs=2e-3)
    assert speeds == pytest.approx(np.full((1, 4), 0.5))
    assert body.foot_contacts(view).tolist() == [[1.0] * 4]
    assert task.rewards["slip"].term(view) == pytest.approx([4 * 0.25])
    gap = np.abs(heights + 0.022 - 0.08).sum()
    assert task.rewards["swing"].term(view) == pytest.approx([0.5 * gap])


@given(st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4).filter(lambda q: sum(x * x for x in q) > 0.1))
def test_gravity_in_the_base_frame_is_the_rotated_vertical(quat: list[float]) -> None:
    unit = np.array(quat) / np.linalg.norm(quat)
    qpos = go2_home(1)
    qpos[0, 3:7] = unit
    env = Environment(TASKS["go2-velocity"], 1, randomise=False, num_threads=1)
    env.view.qpos[:] = qpos
    body = go2_body(env.task)
    expected = rotations.rotate_inverse(unit[None], np.array([[0.0, 0.0, -1.0]]), np)
    assert body.gravity(env.view) == pytest.approx(expected, abs=1e-12)


def test_the_go2_is_told_to_stand_now_and_then() -> None:
    draw = np.random.default_rng(0).random((5000, 4))
    commands = velocity.commands(velocity.GREATEST_COMMAND)(draw)[velocity.COMMAND]
    still = (commands == 0.0).all(axis=1)
    assert abs(still.mean() - velocity.STANDING_SHARE) < 0.02
    moving = commands[~still]
    assert np.abs(moving).max(axis=0) == pytest.approx(velocity.GREATEST_COMMAND, rel=0.01)
    assert np.abs(moving.mean(axis=0)).max() < 0.05


def test_the_go2s_policy_reads_what_the_robot_measures() -> None:
    interface = graph_interface(TASKS["go2-velocity"].contract)
    assert set(interface.sensors) == {"joint_pos", "joint_vel", "imu_quat", "imu_ang_vel_b"}
    assert interface.commands == {"velocity_command": 3}
    assert interface.targets == {"joint_pos_target": 12}
    assert TASKS["go2-velocity"].contract.observation_size == 3 + 3 + 3 + 12 + 12 + 12


def test_a_preset_from_a_file_is_shown_in_one_short_line() -> None:
    with pytest.raises(TaskError, match=r"has no presets to choose from; leave --preset x\\n") as caught:
        load_task("cartpole-swingup", preset="x\n" * 10_000)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
