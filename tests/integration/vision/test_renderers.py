"""Two renderers of one scene: a ball is where the pinhole formula says, and their images agree."""

import json
from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
from tests.support.plan_contracts import CAMERA

from physai.sdk.contract.robot import CameraSpec
from physai.vision.appearance import Appearance, AppearanceRanges, draw_appearance
from physai.vision.cameras import add_cameras, project
from physai.vision.renderers.lighting import even_light
from physai.vision.renderers.opengl import OpenGlRenderer
from physai.vision.renderers.raycast import RaycastRenderer
from physai.vision.renderers.renderer import CameraRenderer, Pixels

SCENE = """<mujoco><worldbody>
<geom type="plane" size="5 5 .1" rgba=".5 .5 .5 1"/>
<body name="ball"><joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
<joint name="z" type="slide" axis="0 0 1"/><geom type="sphere" size=".1" rgba="1 .1 .1 1"/></body>
<geom type="box" size=".1 .1 .1" pos="-.3 .2 .1" rgba=".1 .1 .9 1"/>
</worldbody></mujoco>"""

POSITIONS = np.array([[0.3, -0.15, 0.5], [-0.2, -0.3, 0.2], [0.5, 0.4, 0.1], [0.0, 0.0, 0.9], [-0.6, 0.1, 0.3]])


def cameras() -> list[CameraSpec]:
    """One from above with its centre beside the image's, and one from the side."""
    above = {"frame": "world", "translation": [0.0, 0.0, 2.0], "quat": [0.0, 1.0, 0.0, 0.0]}
    half = 0.5**0.5
    side = {"frame": "world", "translation": [0.0, -2.0, 0.5], "quat": [half, -half, 0.0, 0.0]}
    lens = {"k": [150.0, 140.0, 70.0, 66.0]}
    fields = [
        {"name": "above", "width": 160, "height": 120, "lens": lens, "mount": above},
        {"name": "side", "width": 100, "height": 120, "lens": {"k": [120.0, 120.0, 49.5, 59.5]}, "mount": side},
    ]
    return [CameraSpec.model_validate_json(json.dumps(CAMERA | field)) for field in fields]


def scene(*, shadows: bool = False) -> mujoco.MjModel:
    spec = mujoco.MjSpec.from_string(SCENE)
    add_cameras(spec, cameras())
    even_light(spec, shadows=shadows)
    return spec.compile()


@pytest.fixture(scope="module")
def opengl() -> Iterator[CameraRenderer]:
    made = OpenGlRenderer(scene(), cameras())
    yield made
    made.close()


@pytest.fixture(scope="module")
def raycast() -> Iterator[CameraRenderer]:
    made = RaycastRenderer(scene(), cameras(), worlds=2)
    yield made
    made.close()


def centre(image: Pixels) -> tuple[float, float]:
    """Mean column and row of what is red."""
    rows, columns = np.nonzero(image[..., 0].astype(int) > 20 + 2 * image[..., 1].astype(int))
    return float(columns.mean()), float(rows.mean())


def psnr(a: Pixels, b: Pixels) -> float:
    return float(10.0 * np.log10(255.0**2 / np.mean((a.astype(float) - b) ** 2)))


@pytest.mark.parametrize("name", ["opengl", "raycast"])
def test_a_ball_is_seen_where_the_pinhole_formula_says(name: str, request: pytest.FixtureRequest) -> None:
    renderer: CameraRenderer = request.getfixturevalue(name)
    images = renderer.render(POSITIONS)
    for camera in cameras():
        expected = project(camera, POSITIONS, mount_pos=np.zeros(3), mount_rot=np.eye(3))
        for image, at in zip(images[camera.name], expected, strict=True):
            # A sphere appears as an ellipse whose middle is off its centre by less than a pixel here.
            assert centre(image) == pytest.approx(tuple(at), abs=0.8)


def test_both_renderers_agree_to_30_db(opengl: CameraRenderer, raycast: CameraRenderer) -> None:
    ours, theirs = opengl.render(POSITIONS), raycast.render(POSITIONS)
    assert ours.keys() == theirs.keys()
    for name, images in ours.items():
        assert images.shape == theirs[name].shape
        assert psnr(images, theirs[name]) > 30.0
    # It must be able to fail: another state is no agreement.
    assert psnr(ours["above"][0], theirs["above"][1]) < 27.0


def test_equal_states_give_equal_images(opengl: CameraRenderer, raycast: CameraRenderer) -> None:
    for renderer in (opengl, raycast):
        first, second = renderer.render(POSITIONS), renderer.render(POSITIONS[::-1])
        for name, images in first.items():
            assert np.array_equal(images, second[name][::-1])


@pytest.mark.parametrize("kind", [OpenGlRenderer, RaycastRenderer])
def test_shadows_darken_what_lies_in_them_and_leave_the_rest_as_it_is(
    kind: type[OpenGlRenderer] | type[RaycastRenderer],
) -> None:
    bright, shaded = (
        kind(scene(shadows=shadows), cameras(), shadows=shadows).render(POSITIONS[:1])["above"].astype(int)
        for shadows in (False, True)
    )
    changed = np.abs(bright - shaded).max(axis=-1) > 8
    assert 0.005 < changed.mean() < 0.2
    # Some edges that the lamp does not reach are brighter in OpenGL's shadow pass.
    assert (shaded[changed] <= bright[changed] + 1).mean() > 0.97


def test_the_encoding_is_the_cameras_own() -> None:
    blue = [camera.model_copy(update={"encoding": "bgr8"}) for camera in cameras()]
    model = scene()
    rgb, bgr = OpenGlRenderer(model, cameras()), OpenGlRenderer(model, blue)
    assert np.array_equal(rgb.render(POSITIONS[:1])["side"], bgr.render(POSITIONS[:1])["side"][..., ::-1])


def looks(count: int, ranges: AppearanceRanges | None = None) -> Appearance:
    """Poses and light of some episodes, with cameras that may be 50 mm and 3° off."""
    loose = [
        camera.model_copy(
            update={"mount": camera.mount.model_copy(update={"tolerance_m": 0.05, "tolerance_rad": 0.05})}
        )
        for camera in cameras()
    ]
    return draw_appearance(np.random.default_rng(3), loose, count, ranges)


def test_a_camera_that_is_moved_and_turned_sees_the_ball_where_the_formula_says(
    opengl: CameraRenderer, raycast: CameraRenderer
) -> None:
    appearance = looks(len(POSITIONS))
    for renderer in (opengl, raycast):
        images = renderer.render(POSITIONS, appearance)
        for camera in cameras():
            mount = camera.mount
            for index, image in enumerate(images[camera.name]):
                quat = np.zeros(4)
                mujoco.mju_mulQuat(quat, np.array(mount.quat), appearance.turns[camera.name][index])
                at = tuple((np.array(mount.translation) + appearance.offsets[camera.name][index]).tolist())
                moved = camera.model_copy(
                    update={"mount": mount.model_copy(update={"translation": at, "quat": tuple(quat.tolist())})}
                )
                expected = project(moved, POSITIONS[index][None], mount_pos=np.zeros(3), mount_rot=np.eye(3))
                assert centre(image) == pytest.approx(tuple(expected[0]), abs=1.0)


def test_both_renderers_agree_on_light_too_and_afterwards_the_models_own_is_back(
    opengl: CameraRenderer, raycast: CameraRenderer
) -> None:
    plain = opengl.render(POSITIONS), raycast.render(POSITIONS)
    dark = looks(len(POSITIONS), AppearanceRanges(ambient=(0.1, 0.2), direct=(0.1, 0.6)))
    ours, theirs = opengl.render(POSITIONS, dark), raycast.render(POSITIONS, dark)
    for name, images in ours.items():
        for index, image in enumerate(images):
            assert psnr(image, theirs[name][index]) > 30.0
        assert images.mean() < 0.8 * plain[0][name].mean()
    again = opengl.render(POSITIONS), raycast.render(POSITIONS)
    for before, after in zip(plain, again, strict=True):
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_no_states_give_no_images(opengl: CameraRenderer, raycast: CameraRenderer) -> None:
    for renderer in (opengl, raycast):
        assert renderer.render(np.zeros((0, 3)))["above"].shape == (0, 120, 160, 3)
