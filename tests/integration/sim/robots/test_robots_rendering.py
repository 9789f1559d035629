"""Pictures and films."""

import argparse
import struct
import sys
import zlib
from pathlib import Path

import av
import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.opengl import needs_opengl

from physai.sdk.base.errors import DeviceError
from physai.sim.cli.robots import command
from physai.sim.playback.markers import end_effector_axes
from physai.sim.playback.rendering import (
    OffscreenRenderer,
    VideoWriter,
    free_camera,
    png_bytes,
    reachable_poses,
    render_png,
    rendering_backend,
)
from physai.sim.robots import home_qpos, load_robot, robot_names
from physai.sim.robots.shapes import shape_corners

Image = NDArray[np.uint8]


def decode_png(content: bytes) -> Image:
    """Pixels of an unfiltered 8-bit RGB file, checksums verified."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    position, chunks = 8, dict[bytes, bytes]()
    while position < len(content):
        (length,) = struct.unpack_from(">I", content, position)
        kind, body = content[position + 4 : position + 8], content[position + 8 : position + 8 + length]
        assert struct.unpack_from(">I", content, position + 8 + length) == (zlib.crc32(kind + body),)
        chunks[kind] = body
        position += 12 + length
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def test_png_holds_the_pixels() -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode_png(png_bytes(image)), image)


@pytest.mark.parametrize("name", robot_names())
@pytest.mark.parametrize("aspect", [0.5, 1.0, 2.0])
def test_the_camera_sees_the_whole_robot(name: str, aspect: float) -> None:
    """Every corner, projected by hand through a pinhole, lies inside the image."""
    model = load_robot(name).model
    poses = [home_qpos(model)]
    camera = free_camera(model, poses, aspect=aspect)
    azimuth, elevation = np.radians(camera.azimuth), np.radians(camera.elevation)
    forward = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    right = np.cross(forward, [0.0, 0.0, 1.0]) / np.cos(elevation)
    eye = np.array(camera.lookat) - camera.distance * forward
    rays = shape_corners(model, poses) - eye
    depth = rays @ forward
    half = np.tan(np.radians(float(model.vis.global_.fovy)) / 2.0)
    assert depth.min() > 0.0
    horizontal = np.abs(rays @ right) / depth / (half * aspect)
    vertical = np.abs(rays @ np.cross(right, forward)) / depth / half
    fill = max(float(horizontal.max()), float(vertical.max()))
    assert 0.75 < fill < 1.0


@pytest.mark.parametrize(("turn", "azimuth"), [(-45.0, 225.0), (45.0, 135.0), (0.0, 135.0)])
def test_the_camera_looks_at_the_side_of_a_long_robot(turn: float, azimuth: float) -> None:
    """At 135° it stands to the front right, and a beam turned by -45° points at it."""
    model = mujoco.MjSpec.from_string(
        f"""<mujoco><worldbody><body euler="0 0 {turn}"><joint type="hinge"/>
        <geom type="box" size="1 .05 .05" pos="1 0 0"/></body></worldbody></mujoco>"""
    ).compile()
    assert free_camera(model, [home_qpos(model)], aspect=1.0).azimuth == azimuth


def test_the_axes_of_the_end_effector_stand_where_the_site_is() -> None:
    """A site 1 m along a beam 2 m long, turned by 90° about z: x shows along y, a fifth of 2 m long."""
    model = mujoco.MjSpec.from_string(
        """<mujoco><worldbody><body><joint type="hinge"/><geom type="box" size="1 .05 .05"/>
        <site name="ee" pos="1 0 0" euler="0 0 90"/></body></worldbody></mujoco>"""
    ).compile()
    strokes = end_effector_axes(model)
    assert [stroke.start for stroke in strokes] == [pytest.approx([1.0, 0.0, 0.0])] * 3
    assert [stroke.end - stroke.start for stroke in strokes] == [
        pytest.approx([0.0, 0.4, 0.0]),
        pytest.approx([-0.4, 0.0, 0.0]),
        pytest.approx([0.0, 0.0, 0.4]),
    ]
    assert end_effector_axes(load_robot("cartpole").model) == []


def test_reachable_poses_stay_within_the_limits() -> None:
    model = load_robot("cartpole").model
    poses = np.array(reachable_poses(model))
    assert np.abs(poses[:, 0]).max() <= 2.4
    assert np.ptp(poses[:, 0]) > 3.0, "a slide is drawn over its whole range"
    assert len(reachable_poses(load_robot("go2").model)) == 1


@needs_opengl
@pytest.mark.parametrize("name", robot_names())
def test_pictures_show_more_than_the_background(name: str, tmp_path: Path) -> None:
    model = load_robot(name).model
    shadows = int(model.vis.quality.shadowsize)
    render_png(model, home_qpos(model), tmp_path / "a.png", width=160, height=120)
    image = decode_png((tmp_path / "a.png").read_bytes())
    assert image.shape == (120, 160, 3)
    assert image.std() > 10.0
    assert int(model.vis.quality.shadowsize) == shadows


@needs_opengl
def test_a_moved_joint_changes_the_picture_and_the_view_follows_a_floating_base() -> None:
    model = load_robot("go2").model
    home = home_qpos(model)
    with OffscreenRenderer(model, width=96, height=64) as renderer:
        first, again = renderer.render(home), renderer.render(home)
        crouched = home.copy()
        crouched[2] -= 0.1
        lower = renderer.render(crouched)
        walked = home.copy()
        walked[0] += 2.0
        renderer.render(walked)
        assert renderer.camera.lookat[0] == pytest.approx(2.0, abs=0.2)
    # The very first frame may differ in the last bit.
    assert np.abs(again.astype(int) - first).max() <= 2
    assert np.abs(lower.astype(int) - first).max() > 50
    renderer.close()


def test_sizes_are_bounded() -> None:
    with pytest.raises(DeviceError, match="image size 0x64"):
        OffscreenRenderer(load_robot("cartpole").model, width=0, height=64)


def test_without_opengl_one_line_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    rendering_backend.cache_clear()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    try:
        with pytest.raises(DeviceError, match="apt-get install libegl1") as caught:
            rendering_backend()
    finally:
        rendering_backend.cache_clear()
    assert "\n" not in str(caught.value)


@needs_opengl
def test_an_unwritable_picture_is_one_line(tmp_path: Path) -> None:
    model = load_robot("cartpole").model
    with pytest.raises(DeviceError, match=r"a\.png: cannot write the picture: No such file"):
        render_png(model, home_qpos(model), tmp_path / "nowhere" / "a.png", width=16, height=16)


@needs_opengl
def test_the_verb_draws_into_the_named_file_or_one_named_after_the_robot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    monkeypatch.chdir(tmp_path)
    assert command.run(parser.parse_args(["show", "double_pendulum", "--render"])) == 0
    assert "picture: double_pendulum.png" in capsys.readouterr().out
    assert decode_png((tmp_path / "double_pendulum.png").read_bytes()).shape == (960, 1280, 3)


def frames(count: int, height: int = 48, width: int = 64) -> list[Image]:
    """A bright bar that moves right."""
    images: list[Image] = []
    for i in range(count):
        image = np.zeros((height, width, 3), np.uint8)
        image[:, 4 * i : 4 * i + 8] = 255
        images.append(image)
    return images


def test_films_play_back_frame_by_frame(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with VideoWriter(path, fps=25) as film:
        for image in frames(10):
            film.add(image)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, float(stream.average_rate or 0)) == (64, 48, 25.0)
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(decoded) == 10
    for image, original in zip(decoded, frames(10), strict=True):
        assert np.abs(image.astype(int) - original).mean() < 12.0


def test_films_cut_odd_sizes_and_refuse_changing_ones(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "film.mp4", fps=29.97) as film:
        film.add(np.zeros((49, 65, 3), np.uint8))
        with pytest.raises(DeviceError, match="frame of 32x48 pixels after frames of 64x48"):
            film.add(np.zeros((48, 32, 3), np.uint8))
    with av.open(str(tmp_path / "film.mp4")) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (64, 48)


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf")])
def test_films_need_a_frame_rate(tmp_path: Path, fps: float) -> None:
    with pytest.raises(DeviceError, match="fps"):
        VideoWriter(tmp_path / "film.mp4", fps=fps)


def test_an_unwritable_film_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"film\.mp4: cannot write the film: No such file"):
        VideoWriter(tmp_path / "nowhere" / "film.mp4", fps=25)
