"""A crop averaged over squares, against a mean that is computed with fractions."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.contract.plans import ImageCrop, ImageTerm
from physai.vision.cameras import VisionError
from physai.vision.pixels import pooled


def term(pool: int, crop: ImageCrop | None = None) -> ImageTerm:
    return ImageTerm(name="seen", camera="wrist", crop=crop, pool=pool, max_age_s=0.1, max_skew_s=0.1)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
def test_each_square_becomes_its_mean_rounded_half_up(
    pool: int, rows: int, columns: int, channels: int, seed: int
) -> None:
    images = np.random.default_rng(seed).integers(0, 256, (2, rows * pool, columns * pool, channels), dtype=np.uint8)
    found = pooled(images, term(pool))
    assert found.shape == (2, rows, columns, channels)
    for place in np.ndindex(found.shape):
        image, row, column, channel = place
        square = images[image, row * pool : (row + 1) * pool, column * pool : (column + 1) * pool, channel]
        mean = Fraction(sum(square.ravel().tolist()), pool * pool)
        assert found[place] == floor(mean + Fraction(1, 2))


def test_a_crop_is_cut_out_first() -> None:
    images = np.arange(5 * 6, dtype=np.uint8).reshape(1, 5, 6, 1)
    found = pooled(images, term(2, ImageCrop(x=1, y=2, width=4, height=2)))
    # Rows 2 and 3, columns 1 to 4: 13 14 15 16 over 19 20 21 22.
    assert found[0, :, :, 0].tolist() == [[17, 19]]


def test_images_that_are_too_small_or_do_not_divide_are_refused_with_both_sizes() -> None:
    images = np.zeros((1, 5, 6, 1), np.uint8)
    with pytest.raises(VisionError, match="image seen: 6 by 5 pixels, its crop reaches to 7 by 2"):
        pooled(images, term(1, ImageCrop(x=3, y=0, width=4, height=2)))
    with pytest.raises(VisionError, match="image seen: 4 does not divide both 6 columns and 5 rows"):
        pooled(images, term(4))
