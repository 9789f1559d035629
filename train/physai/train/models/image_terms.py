"""Images as a policy reads them, as a part of its graph; see `physai.vision.pixels` for the same in numpy."""

import torch
from torch import Tensor, nn

from physai.sdk.contract.plans import ImageTerm
from physai.sdk.contract.robot import CameraSpec


class ImageFront(nn.Module):
    """Raw bytes of a camera in, cropped and averaged over squares, as numbers from 0 to 255.

    The first operation is the conversion to float32: TensorRT takes bytes for nothing else. The mean of each square is
    rounded half up to a whole number. Its sum is exact in float32, and with a quarter of the least possible difference
    added before rounding down, no last digit of a division decides, so that torch, ONNX Runtime and TensorRT agree.
    """

    def __init__(self, term: ImageTerm, camera: CameraSpec) -> None:
        """Prepare the crop; see `physai.sdk.contract.checks` for what fits."""
        super().__init__()
        crop = term.crop
        self.rows = slice(0, camera.height) if crop is None else slice(crop.y, crop.y + crop.height)
        self.columns = slice(0, camera.width) if crop is None else slice(crop.x, crop.x + crop.width)
        self.pool = term.pool
        self.height = (self.rows.stop - self.rows.start) // term.pool
        self.width = (self.columns.stop - self.columns.start) // term.pool
        self.channels = 1 if camera.encoding in ("mono8", "16UC1") else 3
        self.flips = camera.encoding == "bgr8"

    def forward(self, images: Tensor) -> Tensor:
        """Return red, green and blue, or grey, of shape (n, channels, height, width).

        Args:
            images: bytes in the camera's encoding, shape (n, camera height, camera width, channels).
        """
        values = images.to(torch.float32)[:, self.rows, self.columns]
        if self.flips:
            values = torch.cat([values[..., 2:3], values[..., 1:2], values[..., 0:1]], dim=-1)
        values = values.permute(0, 3, 1, 2)
        if self.pool == 1:
            return values
        area = self.pool**2
        squares = values.reshape(-1, self.channels, self.height, self.pool, self.width, self.pool)
        sums = squares.sum(dim=5).sum(dim=3)
        return torch.floor(sums * (1.0 / area) + (0.5 + 0.25 / area))
