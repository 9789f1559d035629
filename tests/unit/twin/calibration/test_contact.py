"""Contact parameters: what they do to MuJoCo's contacts, and that throws give them back."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.fixtures_calibration import changed_model
from tests.support.floating import fitted
from tests.support.tossed_cube import CONTACT_TIME, CUBE, FRICTION, RESTITUTION, cube, still, throws

from physai.sdk.base.errors import UnknownNameError
from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.registry import load_task
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.replay.pose import (
    BasePath,
    measured_coordinates,
    pose_starts,
    simulated_coordinates,
    start_pose,
)
from physai.twin.calibration.replay.replay import WINDOW_S, replay, windows_of
from physai.twin.calibration.replay.touch import touching
from physai.twin.logs import BasePose, LogError
from physai.twin.logs.checks.base import pose_noise
from physai.twin.logs.signals.rotation import from_vector, multiply, relative, rotate, to_vector
from physai.twin.model.measured_task import posterior_randomisation
from physai.twin.model.twin import load_twin, save_twin
from physai.twin.parameters.contact import damping_ratio, restitution
from physai.twin.parameters.models import calibration_model, model_fingerprint
from physai.twin.parameters.parameters import catalogue, model_fields

Array = NDArray[np.float64]

TRUTH = {FRICTION: 0.3, RESTITUTION: 0.4, CONTACT_TIME: 0.03}


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    return cube(tmp_path_factory.mktemp("cube"))


vectors = st.tuples(*[st.floats(-1.7, 1.7)] * 3).map(np.array)  # of less than pi: 1.7·√3 = 2.94


@given(vectors, vectors)
def test_rotation_vectors_and_quaternions_agree(one: Array, other: Array) -> None:
    np.testing.assert_allclose(to_vector(from_vector(one)), one, atol=1e-9)
    np.testing.assert_allclose(to_vector(-from_vector(one)), one, atol=1e-9)
    start = from_vector(other)
    np.testing.assert_allclose(relative(start, multiply(start, from_vector(one))), one, atol=1e-9)
    expected = np.zeros(3)
    mujoco.mju_rotVecQuat(expected, one, start)
    np.testing.assert_allclose(rotate(start, one), expected, atol=1e-9)


def test_small_rotations_keep_their_axis() -> None:
    np.testing.assert_allclose(to_vector(from_vector(np.array([1e-12, 0.0, -2e-12]))), [1e-12, 0.0, -2e-12], atol=1e-20)


def test_restitution_of_a_damped_contact() -> None:
    """A contact at critical damping returns exp(-2) of its speed; one without damping returns all of it."""
    np.testing.assert_allclose(restitution(np.array([0.0, 1.0])), [1.0, np.exp(-2.0)])
    # By hand at z = 0.5: acos(0.5) = pi/3, √(1 - 0.25) = 0.8660, exp(-1.0472/0.8660) = 0.2985.
    assert restitution(np.array([0.5]))[0] == pytest.approx(0.2985, abs=1e-4)
    # At z = 2: acosh(2) = 1.31696, √3 = 1.73205, exp(-4·0.76035) = 0.04777.
    assert restitution(np.array([2.0]))[0] == pytest.approx(0.04777, abs=1e-5)


@given(st.floats(0.05, 0.95))
def test_the_damping_ratio_inverts_the_restitution(bounce: float) -> None:
    assert restitution(damping_ratio(np.array([bounce])))[0] == pytest.approx(bounce, abs=1e-9)


@pytest.mark.parametrize("bounce", [0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("time_s", [0.02, 0.05])
def test_a_simulated_bounce_returns_its_restitution_in_its_contact_time(
    body: Robot, bounce: float, time_s: float
) -> None:
    model = changed_model(body, {RESTITUTION: bounce, CONTACT_TIME: time_s})
    data: Any = mujoco.MjData(model)
    speed = 3.0
    data.qpos[2], data.qvel[2] = 0.0524 + 1e-6, -speed
    touched, fastest = 0, -speed
    for _ in range(300):
        mujoco.mj_step(model, data)
        touched += data.ncon > 0
        fastest = max(fastest, float(data.qvel[2]))
    # Gravity takes up to 9.81·0.05/3 = 16 % of the speed at the longest contact; time steps the rest.
    assert fastest / speed == pytest.approx(bounce, abs=0.03)
    if bounce == 0.9:
        assert touched * 0.001 == pytest.approx(time_s, rel=0.1)


@pytest.mark.parametrize("friction", [0.1, 0.2])
def test_a_sliding_cube_slows_down_by_its_friction(body: Robot, friction: float) -> None:
    """The floor's own coefficient of 1 does not count: a = mu·g. With more friction the cube begins to rock."""
    model = changed_model(body, {FRICTION: friction, CONTACT_TIME: 0.02})
    data: Any = mujoco.MjData(model)
    data.qpos[2] = 0.0524
    for _ in range(1000):
        mujoco.mj_step(model, data)
    data.qvel[0] = 2.0
    mujoco.mj_step(model, data, nstep=100)
    assert (2.0 - data.qvel[0]) / 0.1 == pytest.approx(9.81 * friction, rel=0.03)


def test_the_catalogue_has_the_contact_of_bodies_that_touch_the_world(body: Robot) -> None:
    found = {parameter.name: parameter for parameter in catalogue(body, "effort")}
    assert "cube.torsional_friction" not in found  # condim 3
    assert found[FRICTION].prior == 1.0
    # MuJoCo's solref of 0.02 s and 1: T = pi·0.02, e = exp(-2).
    assert found[CONTACT_TIME].prior == pytest.approx(np.pi * 0.02)
    assert found[RESTITUTION].prior == pytest.approx(np.exp(-2.0))
    assert found[CONTACT_TIME].lower == pytest.approx(0.012)
    feet = [p.name for p in catalogue(load_robot("go2"), "command") if p.name.endswith("sliding_friction")]
    assert feet == [f"{foot}_foot.sliding_friction" for foot in ("FL", "FR", "RL", "RR")]
    assert not [p for p in catalogue(load_robot("ur10e"), "command") if p.name.endswith("restitution")]


def test_torsional_and_rolling_friction_where_condim_has_them(tmp_path: Path) -> None:
    robot = cube(tmp_path, CUBE.replace('name="box"', 'name="box" condim="6" friction="0.5 0.02 0.001"'))
    found = {p.name: p for p in catalogue(robot, "effort")}
    # MuJoCo takes the greater coefficient of the two geoms, and the floor has 1, 0.005 and 0.0001.
    assert [found[f"cube.{what}_friction"].prior for what in ("sliding", "torsional", "rolling")] == [1.0, 0.02, 0.001]
    fields = model_fields(robot.model, ["cube.torsional_friction"], np.array([[0.007]]))
    box = int(robot.model.geom("box").id)
    np.testing.assert_allclose(fields["geom_friction"][0, box], [1.0, 0.007, 0.001])


def test_prior_values_change_nothing(body: Robot) -> None:
    """With the priors of its parameters a model moves as without them."""
    parameters = catalogue(body, "effort")
    same = changed_model(body, {p.name: p.prior for p in parameters})
    paths: list[Array] = []
    for model in (calibration_model(body), same):
        data: Any = mujoco.MjData(model)
        data.qpos[2:7], data.qvel[:] = [0.12, 0.8, 0.6, 0.0, 0.0], [1.0, 0.5, -1.0, 2.0, -3.0, 1.0]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        mujoco.mj_step(model, data, nstep=150)
        paths.append(data.qpos.copy())
    np.testing.assert_allclose(paths[0], paths[1], atol=1e-4)


def test_unknown_bodies_are_refused(body: Robot) -> None:
    with pytest.raises(UnknownNameError, match="no body named 'block'; known: cube"):
        model_fields(body.model, ["block.restitution"], np.array([[0.5]]))


def test_coordinates_of_a_pose_differ_by_the_rotation_between_the_poses() -> None:
    start, turn = from_vector(np.array([[0.3, -2.0, 0.4]])), np.array([0.02, 0.1, -0.05])
    measured = multiply(start[:, None], from_vector(np.array([[[0.0, 0.0, 0.0], [2.5, 0.0, 1.0]]])))
    base = BasePose(np.zeros((2, 3)), measured[0])
    target = measured_coordinates(base, start, np.array([[0, 1]]))
    simulated = multiply(measured, from_vector(turn))[None]
    poses = np.concatenate([np.full((1, 1, 2, 3), 0.25), 3.0 * simulated], axis=-1)
    found = simulated_coordinates(BasePath(start, measured), target, poses)
    np.testing.assert_allclose(found[0] - target, np.tile([0.25] * 3 + turn.tolist(), (1, 2, 1)), atol=1e-12)
    begun = start_pose(BasePath(start, measured), np.array([[[1.0, 2.0, 3.0, *turn]]]))
    np.testing.assert_allclose(relative(start, begun[0, :, 3:]), turn[None], atol=1e-12)


def test_starts_have_the_velocity_of_a_flight_and_avoid_impacts(body: Robot) -> None:
    logs = throws(body, TRUTH, count=4, seed=4, noise=0.0)
    flying, log = max(((int(np.argmax(touching(body, log))), log) for log in logs), key=lambda pair: pair[0])
    assert log.base is not None
    samples = np.arange(20, len(log.time) - 20)
    starts = pose_starts(log, log.base, samples)
    # In flight the body falls by 9.81 m/s² without turning faster or slower.
    early = starts.samples < flying - 20
    assert early.sum() > 5
    fall = np.diff(starts.velocity[early, 2]) / np.diff(log.time[starts.samples[early]])
    np.testing.assert_allclose(fall, -9.81, atol=0.05)
    assert np.ptp(starts.velocity[early, 3:], axis=0).max() < 0.02
    # The first impact changes the velocity within a few samples: no window may start in it.
    impact = int(np.argmax(np.abs(np.diff(log.base.position[:, 2], 2)) > 1e-3)) + 1
    assert impact >= flying - 5
    assert not (np.abs(starts.samples - impact) <= 1).any()


def test_noise_of_poses_is_measured_in_spite_of_impacts(body: Robot) -> None:
    logs = throws(body, TRUTH, count=4, seed=5)
    found = np.mean([pose_noise(log.base) for log in logs if log.base is not None], axis=0)
    np.testing.assert_allclose(found, [3e-4, 2e-3], rtol=0.2)


def test_windows_touch_the_world_and_move(body: Robot) -> None:
    log = throws(body, TRUTH, count=1, seed=2)[0]
    touches = touching(body, log)
    windows = windows_of(body, [log], 0.2, stride_s=0.05)
    assert windows.target.shape[1:] == (24, 6)
    for start in windows.start_s:
        inside = (log.time >= start) & (log.time <= start + 0.2)
        assert touches[inside].any()
    with pytest.raises(LogError, match="with contact and motion and without an impact at its start"):
        windows_of(body, [still(log)], 0.2, stride_s=0.05)
    assert log.base is not None
    high = replace(log, base=replace(log.base, position=log.base.position + np.array([0.0, 0.0, 1.0])))
    with pytest.raises(LogError, match="with contact"):
        windows_of(body, [high], 0.2, stride_s=0.05)


def test_a_body_without_a_floor_and_logs_without_poses_are_refused(body: Robot, tmp_path: Path) -> None:
    log = throws(body, TRUTH, count=1, seed=2)[0]
    floor = '<geom name="floor" type="plane" size="2 2 0.1"/>'
    floating = cube(tmp_path, CUBE.replace(floor, ""))
    with pytest.raises(LogError, match="has nothing to touch: add the floor"):
        replay(calibration_model(floating), floating, [log])
    with pytest.raises(LogError, match="floating base, whose motion log throw0 does not contain"):
        replay(calibration_model(body), body, [replace(log, base=None)])


def test_the_truth_replays_throws_and_wrong_contacts_do_not(body: Robot) -> None:
    logs = throws(body, TRUTH, count=6, seed=1)
    errors = {
        name: np.array([error.value for error in replay(changed_model(body, values), body, logs).rmse])
        for name, values in {
            "truth": TRUTH,
            "slippery": {**TRUTH, FRICTION: 0.15},
            "dead": {**TRUTH, RESTITUTION: 0.1},
            "soft": {**TRUTH, CONTACT_TIME: 0.09},
        }.items()
    }
    assert (errors["truth"] < [0.004, 0.05]).all()
    for name in ("slippery", "dead", "soft"):
        assert (errors[name] > 2.0 * errors["truth"]).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (0, 1, 3))])
def test_throws_give_friction_restitution_and_contact_time_back(body: Robot, seed: int) -> None:
    random = np.random.default_rng([3, seed])
    truth = {
        FRICTION: random.uniform(0.1, 0.6),
        RESTITUTION: random.uniform(0.15, 0.7),
        CONTACT_TIME: random.uniform(0.02, 0.06),
    }
    logs = throws(body, truth, count=11, seed=seed)
    result = fit_twin(body, logs[:8], logs[8:], only=tuple(truth), budget_steps=4_000_000, num_threads=2)
    found = {parameter.name: parameter for parameter in result.twin.parameters}
    for name, value in truth.items():
        assert found[name].identified
        assert found[name].value == pytest.approx(value, rel=0.1), name
    assert result.held_out is not None
    assert result.held_out.joint_names == ("base.position", "base.rotation")
    residuals = result.twin.residuals
    assert residuals is not None
    assert residuals.joint_names == ("base.position", "base.rotation")
    assert all(gain.lo > 0.0 for gain in residuals.gain)
    assert result.twin.credible().holds, result.twin.credible().reasons


def test_a_twin_keeps_contacts_in_its_file_and_applies_and_draws_them(body: Robot, tmp_path: Path) -> None:
    twin = fitted(body, {FRICTION: 0.3, RESTITUTION: 0.5})
    save_twin(twin, tmp_path / "twin.json")
    loaded = load_twin(tmp_path / "twin.json")
    assert loaded.hash == twin.hash
    assert loaded.joint_names == ()
    model = copy.copy(body.model)
    twin.apply(model, twin.values)
    box, floor = int(model.geom("box").id), int(model.geom("floor").id)
    assert model.geom_friction[box, 0] == 0.3
    assert model.geom_friction[floor, 0] == 0.0
    # T stays pi·0.02 s: k = (pi/T)² = 2500 1/s².
    assert model.geom_solref[box, 0] == pytest.approx(-2500.0)
    drawn = twin.randomisation(200, seed=1)["geom_friction"][:, box, 0]
    assert drawn.mean() == pytest.approx(0.3, abs=0.006)
    assert drawn.std() == pytest.approx(0.02, rel=0.2)


def test_training_varies_the_friction_of_the_feet_in_the_model_of_the_task() -> None:
    """The task's floor comes before the robot's geoms, so rows of the robot's model would be others."""
    go2 = load_robot("go2")
    task = load_task("go2-velocity")
    twin = fitted(go2, {"FL_foot.sliding_friction": 0.4})
    model = copy.copy(task.model)
    twin.apply(model, twin.values)
    rules = posterior_randomisation(twin, model, go2)
    foot = int(model.geom("FL_foot").id)
    assert [(rule.field, rule.rows, rule.columns) for rule in rules] == [("geom_friction", (foot,), (0,))]
    assert model.geom_friction[foot, 0] == 0.4


def test_the_shape_of_what_touches_the_world_identifies_a_robot(body: Robot, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    larger = cube(tmp_path / "a", CUBE.replace("0.0524 0.0524 0.0524", "0.06 0.06 0.06"))
    slippery = cube(tmp_path / "b", CUBE.replace('name="box"', 'name="box" friction="2 0.005 0.0001"'))
    assert len({model_fingerprint(robot) for robot in (body, larger, slippery)}) == 3


def test_throws_shorter_than_a_stretch_have_intervals(body: Robot) -> None:
    score = replay(calibration_model(body), body, throws(body, TRUTH, count=5, seed=3), window_s=WINDOW_S)
    for error in score.rmse:
        assert error.lo < error.value < error.hi
