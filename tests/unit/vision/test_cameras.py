"""Cameras of a contract in a scene: where they see a point, by the pinhole formula and by MuJoCo."""

import json

import mujoco
import numpy as np
import pytest
from tests.support.plan_contracts import CAMERA

from physai.sdk.contract.robot import CameraSpec
from physai.vision.cameras import PREFIX, VisionError, add_cameras, project
from physai.vision.renderers.renderer import camera_ids, encoded

SCENE = """<mujoco><worldbody><body name="arm" pos="0 0 1" euler="0 30 0"><joint name="turn" axis="0 0 1"/>
<geom size=".1"/></body></worldbody></mujoco>"""


def camera(**changed: object) -> CameraSpec:
    """One of 160 by 120 pixels that looks straight down from 2 m."""
    mount = {"frame": "world", "translation": [0.0, 0.0, 2.0], "quat": [0.0, 1.0, 0.0, 0.0]}
    small = {"width": 160, "height": 120, "lens": {"k": [150.0, 140.0, 70.0, 66.0]}, "mount": mount}
    return CameraSpec.model_validate_json(json.dumps(CAMERA | small | changed))


def test_a_point_is_seen_where_the_pinhole_formula_says() -> None:
    # x of the optical frame is that of the world, y is against it: 150 · 0.3 / 1.5 + 70 and 140 · 0.15 / 1.5 + 66.
    at = project(camera(), np.array([[0.3, -0.15, 0.5]]), mount_pos=np.zeros(3), mount_rot=np.eye(3))
    assert at == pytest.approx(np.array([[100.0, 80.0]]))
    behind = project(camera(), np.array([[0.0, 0.0, 2.1]]), mount_pos=np.zeros(3), mount_rot=np.eye(3))
    assert np.isnan(behind).all()


def test_the_pose_in_the_model_is_that_of_the_contract_also_on_a_link_that_turned() -> None:
    spec = mujoco.MjSpec.from_string(SCENE)
    quat = np.array([0.5, -0.5, 0.5, 0.5])
    mount = {"frame": "arm", "translation": [0.1, 0.2, 0.3], "quat": quat.tolist()}
    add_cameras(spec, [camera(mount=mount)])
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = 0.7
    mujoco.mj_forward(model, data)
    body = data.body("arm")
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, quat)
    optical = body.xmat.reshape(3, 3) @ rotation.reshape(3, 3)
    seen = data.cam_xmat[0].reshape(3, 3)
    # MuJoCo's x is ours, its y and z are against ours.
    assert seen == pytest.approx(optical @ np.diag([1.0, -1.0, -1.0]))
    assert data.cam_xpos[0] == pytest.approx(body.xpos + body.xmat.reshape(3, 3) @ np.array([0.1, 0.2, 0.3]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mount": {"frame": "hand", "translation": [0.0] * 3, "quat": [1.0, 0.0, 0.0, 0.0]}}, "no body named 'hand'"),
        ({"lens": {"k": [150.0, 140.0, 70.0, 66.0], "d": [0.1, 0.0, 0.0, 0.0, 0.0]}}, "is not rendered; 0 is"),
        ({"encoding": "16UC1"}, "images of encoding 16UC1 are not rendered"),
    ],
)
def test_a_camera_that_the_scene_cannot_carry_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(VisionError, match=message):
        add_cameras(mujoco.MjSpec.from_string(SCENE), [camera(**changed)])


def test_a_camera_that_is_not_in_the_model_or_of_another_size_there_is_refused() -> None:
    spec = mujoco.MjSpec.from_string(SCENE)
    add_cameras(spec, [camera()])
    model = spec.compile()
    assert camera_ids(model, [camera()]) == [0]
    with pytest.raises(VisionError, match="camera other: it was not added to the model"):
        camera_ids(model, [camera(name="other")])
    with pytest.raises(VisionError, match="camera wrist: 80 by 120 pixels, in the model 160 by 120"):
        camera_ids(model, [camera(width=80)])
    assert model.camera(0).name == PREFIX + "wrist"


def test_encodings_are_those_of_ros() -> None:
    rgb = np.array([[[255, 0, 0], [10, 20, 30]]], np.uint8)
    assert encoded(rgb, camera()).tolist() == rgb.tolist()
    assert encoded(rgb, camera(encoding="bgr8")).tolist() == [[[0, 0, 255], [30, 20, 10]]]
    # 0.299 · 255 = 76.2 and 2.99 + 11.74 + 3.42 = 18.15.
    assert encoded(rgb, camera(encoding="mono8")).tolist() == [[[76], [18]]]
