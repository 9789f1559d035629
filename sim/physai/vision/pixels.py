"""Crops and averages of images, as a policy reads them; the reference for the graph that does the same."""

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.plans import ImageTerm
from physai.vision.cameras import VisionError

Pixels = npt.NDArray[np.uint8]


def pooled(images: Pixels, term: ImageTerm) -> Pixels:
    """Crop images and replace each square of pixels by its mean, rounded half up.

    Sums of at most 64 by 64 bytes are exact in float32, and rounding to whole numbers leaves nothing on which a
    division's last digit could matter, so every library computes the same.

    Args:
        images: shape (n, height, width, channels).
        term: its `crop` lies inside the images, and its `pool` divides the crop.

    Returns:
        Shape (n, crop height / pool, crop width / pool, channels).

    Raises:
        VisionError: the images are smaller than the crop, or `pool` does not divide it.
    """
    count, height, width, channels = images.shape
    crop, pool = term.crop, term.pool
    if crop is not None:
        if crop.x + crop.width > width or crop.y + crop.height > height:
            raise VisionError(
                f"image {term.name}: {width} by {height} pixels, its crop reaches to {crop.x + crop.width} by "
                f"{crop.y + crop.height}"
            )
        images = images[:, crop.y : crop.y + crop.height, crop.x : crop.x + crop.width]
        height, width = crop.height, crop.width
    if height % pool or width % pool:
        raise VisionError(f"image {term.name}: {pool} does not divide both {width} columns and {height} rows")
    if pool == 1:
        return images.copy()
    squares = images.reshape(count, height // pool, pool, width // pool, pool, channels)
    sums = squares.sum(axis=(2, 4), dtype=np.uint32)
    return ((2 * sums + pool**2) // (2 * pool**2)).astype(np.uint8)
