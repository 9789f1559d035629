"""Poses in other frames: quaternion algebra by hand and by its laws."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.ros.frames import moved, product, rotated

HALF = np.sqrt(0.5)
QUARTER_ABOUT_Z = np.array([HALF, 0.0, 0.0, HALF])

parts = st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4).filter(lambda q: sum(x * x for x in q) > 0.01)
vectors = st.lists(st.floats(-10.0, 10.0), min_size=3, max_size=3)


def unit(q: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.array(q, np.float64)
    return values / np.linalg.norm(values)


def test_a_quarter_turn_about_z() -> None:
    np.testing.assert_allclose(rotated(QUARTER_ABOUT_Z, np.array([1.0, 0.0, 3.0])), [0.0, 1.0, 3.0], atol=1e-15)


@given(parts, parts, vectors)
def test_turning_twice_is_turning_by_the_product(first: list[float], second: list[float], v: list[float]) -> None:
    a, b, vector = unit(first), unit(second), np.array(v)
    np.testing.assert_allclose(rotated(a, rotated(b, vector)), rotated(product(a, b), vector), atol=1e-12)
    assert np.linalg.norm(rotated(a, vector)) == pytest.approx(float(np.linalg.norm(vector)))


def test_a_pose_on_a_table_in_the_robots_frame() -> None:
    """The table lies 2 m along x and is turned by 90° about z: its point (1, 0, 0.5) is (2, 1, 0.5) of the robot."""
    xyz = SimpleNamespace
    transform = xyz(translation=xyz(x=2.0, y=0.0, z=0.0), rotation=xyz(w=HALF, x=0.0, y=0.0, z=HALF))
    pose = xyz(position=xyz(x=1.0, y=0.0, z=0.5), orientation=xyz(w=1.0, x=0.0, y=0.0, z=0.0))
    moved(pose, transform)
    assert (pose.position.x, pose.position.y, pose.position.z) == pytest.approx((2.0, 1.0, 0.5))
    assert (pose.orientation.w, pose.orientation.z) == pytest.approx((HALF, HALF))
