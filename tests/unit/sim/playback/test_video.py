"""What is drawn, and films of it."""

import math
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.opengl import needs_opengl

from physai.sdk.base.errors import DeviceError
from physai.sdk.contract.terms import CommandField, CommandSpec
from physai.sim.playback.markers import (
    CommandMarkers,
    Stroke,
    draw,
    frame_axes,
    pose_fields,
    rotation_matrix,
    velocity_arrows,
)
from physai.sim.playback.picture_subject import framing
from physai.sim.playback.player import Player
from physai.sim.playback.rendering import OffscreenRenderer, VideoWriter
from physai.sim.playback.video import Film, pose_between, shrunk
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.robots import home_qpos
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task

HALF = math.sqrt(0.5)
QUARTER_TURN = np.array([HALF, 0.0, 0.0, HALF])
"""A quarter turn to the left about the vertical, wxyz."""


def directions(strokes: list[Stroke]) -> Any:
    return np.array([stroke.end - stroke.start for stroke in strokes])


def test_axes_of_a_turned_frame() -> None:
    axes = frame_axes(np.array([1.0, 2.0, 3.0]), QUARTER_TURN, length=0.5)
    assert all(axis.start.tolist() == [1.0, 2.0, 3.0] for axis in axes)
    np.testing.assert_allclose(directions(axes), [[0, 0.5, 0], [-0.5, 0, 0], [0, 0, 0.5]], atol=1e-12)
    assert [max(range(3), key=lambda i, a=axis: a.colour[i]) for axis in axes] == [0, 1, 2], "red, green, blue"


def test_a_velocity_is_drawn_in_the_heading_frame() -> None:
    """Half a second of 0.8 m/s forward, of a robot that looks left and pitches by 0.3 rad."""
    pitch = np.array([math.cos(0.15), 0.0, math.sin(0.15), 0.0])
    quat = np.zeros(4)
    mujoco.mju_mulQuat(quat, QUARTER_TURN, pitch)
    (arrow,) = velocity_arrows(np.array([1.0, 0.0, 0.3]), quat, np.array([0.8, 0.0, 0.0]))
    np.testing.assert_allclose(directions([arrow]), [[0.0, 0.4, 0.0]], atol=1e-12)
    np.testing.assert_allclose(arrow.start, [1.0, 0.0, 0.5])


def test_a_turn_is_an_arc_that_ends_where_the_robot_will_look() -> None:
    """Half a second of 1 rad/s: from the x axis to 0.5 rad, at a radius of 0.3 m."""
    arc = velocity_arrows(np.zeros(3), np.array([1.0, 0, 0, 0]), np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(arc[0].start, [0.3, 0.0, 0.2], atol=1e-12)
    np.testing.assert_allclose(arc[-1].start, [0.3 * math.cos(0.5), 0.3 * math.sin(0.5), 0.2], atol=1e-12)
    assert [stroke.head for stroke in arc] == [False] * 12 + [True]
    assert velocity_arrows(np.zeros(3), np.array([1.0, 0, 0, 0]), np.zeros(3)) == []


@given(st.lists(st.floats(-10, 10), min_size=4, max_size=4).filter(lambda q: sum(x * x for x in q) > 1e-3))
def test_rotation_matrices_are_rotations(quat: list[float]) -> None:
    matrix = rotation_matrix(np.array(quat))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(matrix) == pytest.approx(1.0)


def test_targets_of_an_arm_are_drawn_and_fit_the_picture() -> None:
    task = load_task("ur10e-reach")
    markers = CommandMarkers(task.contract, task.model)
    assert [field.name for field in pose_fields(task.contract)] == ["ee_pose_target"]
    command = {"ee_pose_target": np.array([0.9, -0.2, 0.3, 1.0, 0.0, 0.0, 0.0], np.float32)}
    strokes = markers.at(home_qpos(task.model), command)
    np.testing.assert_allclose([stroke.start for stroke in strokes], [[0.9, -0.2, 0.3]] * 3, atol=1e-7)
    corners = markers.reach()
    np.testing.assert_allclose(corners.min(axis=0), [0.6375, -0.35, 0.1])
    np.testing.assert_allclose(corners.max(axis=0), [1.1375, -0.1, 0.3])
    poses, points = framing(task, markers)
    assert (len(poses), len(points)) == (32, 8)
    assert np.abs(np.array(poses) - home_qpos(task.model)).max() <= 0.3


def test_a_target_that_is_reached_lies_on_the_tool() -> None:
    """Axes of the target drawn at the tool's own pose, by MuJoCo's kinematics of the site."""
    task = load_task("ur10e-reach")
    data = mujoco.MjData(task.model)
    data.qpos[:] = [0.3, -1.2, 1.4, -1.0, -1.3, 0.7]
    mujoco.mj_kinematics(task.model, data)
    position, rotation = data.site("ee").xpos, data.site("ee").xmat.reshape(3, 3)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, rotation.ravel())
    command = {"ee_pose_target": np.array([*position, *quat])}
    strokes = CommandMarkers(task.contract, task.model).at(data.qpos, command)
    np.testing.assert_allclose([stroke.start for stroke in strokes], [position] * 3, atol=1e-9)
    np.testing.assert_allclose(directions(strokes) / 0.2, rotation.T, atol=1e-9)


def test_a_walking_robot_carries_its_arrow() -> None:
    task = load_task("go2-velocity")
    markers = CommandMarkers(task.contract, task.model)
    qpos = home_qpos(task.model)
    qpos[:7] = [5.0, 1.0, 0.3, *QUARTER_TURN]
    (arrow,) = markers.at(qpos, {"velocity_command": np.array([1.0, 0.0, 0.0])})
    np.testing.assert_allclose([arrow.start, arrow.end], [[5.0, 1.0, 0.5], [5.0, 1.5, 0.5]], atol=1e-9)
    assert len(markers.reach()) == 4


def test_commands_without_a_place_are_not_drawn() -> None:
    task = load_task("cartpole-swingup")
    field = CommandField(name="speed", size=3, unit="m/s", lower=(-1.0,) * 3, upper=(1.0,) * 3)
    contract = task.contract.model_copy(update={"command": CommandSpec(fields=(field,))})
    markers = CommandMarkers(contract, task.model)
    assert markers.at(home_qpos(task.model), {"speed": np.ones(3)}) == []
    assert len(markers.reach()) == 0


def test_a_full_scene_takes_no_more() -> None:
    model = load_task("cartpole-swingup").model
    scene = mujoco.MjvScene(model, 5)
    scene.ngeom = 0
    draw(scene, 3 * frame_axes(np.zeros(3), QUARTER_TURN))
    assert scene.ngeom == 5


@needs_opengl
def test_a_target_shows_in_red_green_and_blue() -> None:
    task = load_task("ur10e-reach")
    markers = CommandMarkers(task.contract, task.model)
    home = home_qpos(task.model)
    strokes = markers.at(home, {"ee_pose_target": np.array([0.9, -0.2, 0.3, 1.0, 0.0, 0.0, 0.0])})
    with OffscreenRenderer(task.model, width=320, height=240, points=markers.reach()) as renderer:
        renderer.render(home)
        plain, marked = renderer.render(home).astype(int), renderer.render(home, strokes).astype(int)
    changed = marked[np.abs(marked - plain).max(axis=2) > 40]
    for channel in range(3):
        others = [c for c in range(3) if c != channel]
        assert (changed[:, channel] > changed[:, others].max(axis=1) + 60).sum() > 5


def film(path: Path, task: Task, *, fps: float = 10.0, **options: Any) -> list[Any]:
    player = Player(ScriptedPolicy(task.contract, "random"), task, **options)
    with Film(path, task, width=160, height=120, fps=fps) as camera:
        for moment in player:
            camera.add(moment)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert float(stream.average_rate or 0) == fps
        return [frame.to_ndarray(format="rgb24").astype(int) for frame in container.decode(stream)]


@needs_opengl
def test_a_film_lasts_as_long_as_its_episodes(tmp_path: Path) -> None:
    task = replace(load_task("cartpole-swingup"), episode_length_s=0.5)
    frames = film(tmp_path / "a.mp4", task, episodes=2, fps=30.0)
    assert len(frames) == 2 * 15
    assert frames[0].shape == (120, 160, 3)
    assert all(frame.std() > 10.0 for frame in frames), "no frame is black or blank"
    assert np.abs(frames[14] - frames[0]).max() > 50, "it moves"


@needs_opengl
def test_frames_are_evenly_spaced_whatever_the_control_rate(tmp_path: Path) -> None:
    """31.25 Hz control, 50 frames per second: 0.256 s is 8 periods and 12.8 frames."""
    assert len(film(tmp_path / "a.mp4", load_task("ur10e-reach"), duration_s=0.25, fps=50.0)) == 13
    assert len(film(tmp_path / "b.mp4", load_task("pendubot-swingup"), duration_s=0.5, fps=10.0)) == 5


def test_between_two_moments_lie_poses_between_theirs() -> None:
    """A quarter of the way of a free body: a quarter of the distance, a quarter of the angle."""
    model = load_task("go2-velocity").model
    start = home_qpos(model)
    end = start.copy()
    end[0] += 0.4
    end[3:7] = QUARTER_TURN
    end[7:] += 1.0
    pose = pose_between(model, start, end, 0.25)
    np.testing.assert_allclose(pose[:3], [start[0] + 0.1, *start[1:3]])
    np.testing.assert_allclose(pose[3:7], [math.cos(math.pi / 16), 0.0, 0.0, math.sin(math.pi / 16)], atol=1e-9)
    np.testing.assert_allclose(pose[7:], start[7:] + 0.25)


def test_shrinking_takes_the_mean() -> None:
    """Blocks of 2 x 2 pixels, black and white in equal parts on the left, white on the right."""
    image = np.full((32, 64, 3), 255, np.uint8)
    image[::2, :32] = 0
    small = shrunk(image, 32, 16)
    assert small.shape == (16, 32, 3)
    np.testing.assert_allclose(small[:, 2:14], 127.5, atol=4)
    np.testing.assert_allclose(small[:, 18:], 255, atol=4)


@needs_opengl
def test_a_robot_that_stands_still_is_drawn_once_and_a_new_target_again(tmp_path: Path) -> None:
    task = replace(load_task("ur10e-reach"), command_interval_s=0.32)
    player = Player(ScriptedPolicy(task.contract, "zero"), task, duration_s=0.6, randomise=False)
    drawn: list[Any] = []
    with Film(tmp_path / "a.mp4", task, width=64, height=48, labelled=False) as camera:
        for moment in player:
            camera.add(moment)
            drawn.append(camera.image)
    assert len({id(image) for image in drawn}) == 2
    assert (drawn[0] != drawn[-1]).any()


@pytest.mark.parametrize("size", [(0, 48), (64, 4097)])
def test_film_sizes_are_bounded(tmp_path: Path, size: tuple[int, int]) -> None:
    with pytest.raises(DeviceError, match=f"{size[0]}x{size[1]} pixels: each side must lie in 1..4096"):
        Film(tmp_path / "a.mp4", load_task("cartpole-swingup"), width=size[0], height=size[1])


@pytest.mark.parametrize("fps", [0.0, 0.5, 121.0, float("nan")])
def test_film_rates_are_bounded(tmp_path: Path, fps: float) -> None:
    with pytest.raises(DeviceError, match="1 to 120 frames per second"):
        Film(tmp_path / "a.mp4", load_task("cartpole-swingup"), fps=fps)
    assert not (tmp_path / "a.mp4").exists()


@needs_opengl
def test_an_unwritable_film_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cannot write the film: No such file"):
        Film(tmp_path / "nowhere" / "a.mp4", load_task("cartpole-swingup"), width=32, height=32)


def write_noise(path: Path, frames: int) -> None:
    random = np.random.default_rng(0)
    with VideoWriter(path, fps=25) as writer:
        for _ in range(frames):
            writer.add(random.integers(0, 256, (240, 320, 3), dtype=np.uint8))


def test_a_film_that_outgrows_the_disk_is_one_line(tmp_path: Path) -> None:
    """The limit on a file's size stands for a full disk: writing fails just so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(DeviceError, match=r"a\.mp4: cannot write the film: File too large"):
            write_noise(tmp_path / "a.mp4", 60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
