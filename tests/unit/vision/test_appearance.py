"""Draws stay within what the contract states, and pictures get what was drawn."""

import json

import numpy as np
import pytest
from tests.support.plan_contracts import CAMERA

from physai.sdk.contract.robot import CameraSpec
from physai.vision.appearance import Appearance, AppearanceRanges, draw_appearance, taken


def camera(**changed: object) -> CameraSpec:
    mount = CAMERA["mount"] | {"tolerance_m": 0.02, "tolerance_rad": 0.1}
    return CameraSpec.model_validate_json(json.dumps(CAMERA | {"mount": mount} | changed))


def drawn(count: int = 4000, **changed: object) -> Appearance:
    return draw_appearance(np.random.default_rng(0), [camera(**changed)], count)


def test_poses_fill_the_tolerance_and_stay_within_it() -> None:
    found = drawn()
    away = np.linalg.norm(found.offsets["wrist"], axis=1)
    angle = 2.0 * np.arccos(found.turns["wrist"][:, 0])
    assert away.max() <= 0.02
    # Uniform in a ball: an eighth of it lies within half the radius.
    assert (away < 0.01).mean() == pytest.approx(0.125, abs=0.03)
    assert 0.095 < angle.max() <= 0.1
    assert np.linalg.norm(found.turns["wrist"], axis=1) == pytest.approx(np.ones(4000))


def test_a_camera_without_tolerance_stays_where_it_is() -> None:
    found = drawn(mount=CAMERA["mount"])
    assert not found.offsets["wrist"].any()
    assert found.turns["wrist"] == pytest.approx(np.tile([1.0, 0.0, 0.0, 0.0], (4000, 1)))


@pytest.mark.parametrize(
    ("exposure_s", "greatest"), [([0.005, 0.02], 2.0), ([0.01, 0.01], 1.0), ([0.0, 0.02], 4.0), ([0.0001, 0.02], 4.0)]
)
def test_the_exposure_varies_by_its_range_and_at_most_fourfold(exposure_s: list[float], greatest: float) -> None:
    gains = drawn(exposure_s=exposure_s).gains["wrist"]
    assert gains.max() == pytest.approx(greatest, rel=0.01)
    assert gains.min() == pytest.approx(1.0 / greatest, rel=0.01)


def test_light_comes_from_above_and_stays_within_its_ranges() -> None:
    found = drawn()
    assert np.linalg.norm(found.direction, axis=1) == pytest.approx(np.ones(4000))
    assert (found.direction[:, 2] <= -np.cos(0.5) + 1e-12).all()
    ranges = AppearanceRanges()
    for values, (lower, upper) in ((found.ambient, ranges.ambient), (found.direct, ranges.direct)):
        assert lower <= values.min() < values.max() <= upper


def test_equal_seeds_draw_equal_appearances_and_rows_are_those_of_the_whole() -> None:
    one, other = drawn(10), drawn(10)
    assert np.array_equal(one.gamma, other.gamma)
    part = one.rows(3, 7)
    assert np.array_equal(part.direction, one.direction[3:7])
    assert np.array_equal(part.turns["wrist"], one.turns["wrist"][3:7])


def test_a_picture_is_exposed_and_gets_its_gamma_and_noise() -> None:
    images = np.full((3, 40, 50, 3), 64, np.uint8)
    plain = drawn(3)
    chosen = Appearance(
        offsets=plain.offsets,
        turns=plain.turns,
        gains={"wrist": np.array([2.0, 1.0, 1.0])},
        ambient=plain.ambient,
        direct=plain.direct,
        direction=plain.direction,
        gamma=np.array([1.0, 2.0, 1.0]),
        noise=np.array([0.0, 0.0, 6.0]),
    )
    found = taken(images, camera(), chosen, np.random.default_rng(1))
    assert (found[0] == 128).all()
    # 255 · (64 / 255)² = 16.06.
    assert (found[1] == 16).all()
    assert found[2].std() == pytest.approx(6.0, rel=0.05)
    assert found[2].mean() == pytest.approx(64.0, abs=0.3)
    assert (taken(np.full((3, 4, 4, 3), 200, np.uint8), camera(), chosen, np.random.default_rng(1))[0] == 255).all()
