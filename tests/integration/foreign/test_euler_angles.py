"""Terms of angles: what a policy that was trained in Isaac Gym observes of the base's orientation."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.integration.foreign.test_import import DESCRIPTION, SIZE, network, refusal, write
from tests.support.foreign_reference import observed, wanted

from physai.foreign import import_policy
from physai.foreign.conversion.euler_angles import roll_pitch, roll_pitch_yaw
from physai.sdk.contract.io import load_contract

Floats = NDArray[np.float64]
TERMS: list[dict[str, Any]] = [
    {"of": "roll_pitch_yaw", "scale": 0.5},
    {"of": "roll_pitch_yaw", "elements": [0, 1], "clip": 1.0},
]


def quaternion(roll: float, pitch: float, yaw: float) -> list[float]:
    """Turns about x, then y, then z, by the product of their quaternions wxyz."""
    product = np.array([1.0, 0.0, 0.0, 0.0])
    for angle, axis in ((roll, 1), (pitch, 2), (yaw, 3)):
        turn = np.zeros(4)
        turn[0], turn[axis] = math.cos(angle / 2), math.sin(angle / 2)
        (a, b), (u, v) = (turn[0], product[0]), (turn[1:], product[1:])
        product = np.array([a * b - u @ v, *(a * v + b * u + np.cross(u, v))])
    return product.tolist()


def angles_of(quaternions: list[list[float]]) -> Floats:
    return roll_pitch_yaw(torch.tensor(quaternions, dtype=torch.float64)).numpy()


def test_angles_are_those_of_the_turns() -> None:
    random = np.random.default_rng(0)
    drawn = random.uniform(-1.0, 1.0, (500, 3)) * [math.pi, 0.49 * math.pi, math.pi]
    quaternions = [quaternion(*row) for row in drawn]
    np.testing.assert_allclose(angles_of(quaternions), drawn, atol=1e-9)
    # A quaternion and its negative are one orientation.
    np.testing.assert_allclose(angles_of([[-one for one in row] for row in quaternions]), drawn, atol=1e-9)
    two = roll_pitch(torch.tensor(quaternions, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(two, drawn[:, :2], atol=1e-9)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        ((math.pi / 2, 0.0, -math.pi / 2), (math.pi / 2, 0.0, -math.pi / 2)),
        ((math.pi, 0.0, 0.0), (math.pi, 0.0, 0.0)),
        ((0.0, 0.0, 1.5 * math.pi), (0.0, 0.0, -math.pi / 2)),
    ],
)
def test_angles_are_wrapped(turns: tuple[float, float, float], expected: tuple[float, float, float]) -> None:
    np.testing.assert_allclose(angles_of([quaternion(*turns)])[0], expected, atol=1e-6)


@pytest.mark.parametrize("pitch", [math.pi / 2, -math.pi / 2])
def test_a_vertical_base_has_finite_angles(pitch: float) -> None:
    found = roll_pitch_yaw(torch.tensor([quaternion(0.0, pitch, 0.0), [math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0]]))
    assert torch.isfinite(found).all()
    assert found[0, 1].item() == pytest.approx(pitch, abs=1e-3)


@pytest.mark.slow
def test_a_policy_observes_them(tmp_path: Path) -> None:
    path = write(tmp_path / "policy", observation=[*DESCRIPTION["observation"], *TERMS])
    network(path.parent / "network.onnx", inputs=SIZE + 5)
    import_policy(path, model="go2", out=tmp_path / "run")
    golden = dict(np.load(tmp_path / "run" / "export" / "golden.npz"))
    contract = load_contract(tmp_path / "run" / "task" / "contract.json")
    assert contract.observation_size == SIZE + 5
    described = json.loads((tmp_path / "run" / "import.json").read_text())["description"]
    inputs = {name: np.asarray(value, np.float64) for name, value in golden.items() if name != "fingerprint"}
    seen = observed(
        {**described, "observation": described["observation"][:-2]}, list(contract.robot.joint_names), inputs
    )
    w, x, y, z = inputs["imu_quat"].T
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - x * z), -1, 1))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    assert np.ptp(yaw) > 0.1
    angles = [0.5 * roll, 0.5 * pitch, 0.5 * yaw, np.clip(roll, -1, 1), np.clip(pitch, -1, 1)]
    targets = wanted(described, path.parent / "network.onnx", np.concatenate([seen, np.stack(angles, 1)], axis=1))
    action = contract.action.terms[0]
    bounded = np.clip(targets, action.lower, action.upper)
    np.testing.assert_allclose(golden["joint_pos_target"], bounded, atol=1e-5)


@pytest.mark.slow
def test_single_angles_are_refused(tmp_path: Path) -> None:
    terms = [*DESCRIPTION["observation"], {"of": "roll_pitch_yaw", "elements": [2]}]
    assert "a term roll_pitch_yaw has the elements (2,), not all or (0, 1)" in refusal(tmp_path, observation=terms)
