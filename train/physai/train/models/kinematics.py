"""Forward kinematics of a contract's chain as tensor operations that export to ONNX.

Quaternions are wxyz. Right multiplication by a constant quaternion is a constant 4 × 4 matrix, and rotating a
constant vector by q is quadratic in q, so a chain of n joints is n small matrix products and one large one.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from physai.sdk.contract.robot import ChainSegment, KinematicChain


def _right_product(quat: Sequence[float]) -> Tensor:
    """Matrix M with p ⊗ quat = p @ M for row vectors p, shape (4, 4)."""
    w, x, y, z = quat
    return torch.tensor([[w, x, y, z], [-x, w, -z, y], [-y, z, w, -x], [-z, -y, x, w]], dtype=torch.float64)


def _rotation_form(vector: Sequence[float] | Tensor) -> Tensor:
    """Matrix C with R(q) · vector = flatten(q qᵀ) @ C for unit q, shape (16, 3)."""
    x, y, z = (float(element) for element in vector)
    form = torch.zeros(4, 4, 3, dtype=torch.float64)
    # R(q) v written out: (w² + x² - y² - z²) v_x + 2 (xy - wz) v_y + 2 (xz + wy) v_z, and its cyclic siblings.
    form[:, :, 0] = torch.tensor([[x, 0, 2 * z, -2 * y], [0, x, 2 * y, 2 * z], [0, 0, -x, 0], [0, 0, 0, -x]])
    form[:, :, 1] = torch.tensor([[y, -2 * z, 0, 2 * x], [0, -y, 2 * x, 0], [0, 0, y, 2 * z], [0, 0, 0, -y]])
    form[:, :, 2] = torch.tensor([[z, 2 * y, -2 * x, 0], [0, -z, 0, 2 * x], [0, 0, -z, 2 * y], [0, 0, 0, z]])
    return form.reshape(16, 3)


def _error_product() -> Tensor:
    """Matrix C with target ⊗ conjugate(actual) = flatten(target actualᵀ) @ C, shape (16, 4)."""
    product = torch.zeros(4, 4, 4)
    # Row i, column j: the unit quaternion e_i ⊗ conjugate(e_j).
    for j in range(4):
        unit = [0.0] * 4
        unit[j] = 1.0 if j == 0 else -1.0
        product[:, j] = _right_product(unit)
    return product.reshape(16, 4)


_ERROR = _error_product()


class Pick(nn.Module):
    """Chosen columns of a vector: one Gather in ONNX, no node if they are all in order."""

    indices: Tensor

    def __init__(self, columns: Sequence[int], width: int) -> None:
        """Keeps the columns of a vector of `width` elements where the module is."""
        super().__init__()
        self._all = list(columns) == list(range(width))
        self.register_buffer("indices", torch.tensor(columns, dtype=torch.int64), persistent=False)

    def forward(self, vector: Tensor) -> Tensor:
        """The columns, shape (n, len(columns)), of a vector of shape (n, width)."""
        return vector if self._all else vector.index_select(1, self.indices)


class ForwardKinematics(nn.Module):
    """Pose of a chain's tip in its base frame from joint positions."""

    turn: Tensor
    keep: Tensor
    offset: Tensor
    error_product: Tensor

    def __init__(self, chain: KinematicChain, joint_names: Sequence[str]) -> None:
        """Compiles the chain into constants.

        Args:
            chain: the contract's chain; its joints must be revolute.
            joint_names: order of the joint vector passed to `forward`.
        """
        super().__init__()
        moving = [segment for segment in chain.segments if segment.joint is not None]
        columns = [list(joint_names).index(segment.joint or "") for segment in moving]
        self.pick, self._joints = Pick(columns, len(joint_names)), len(columns)
        keep, turn, offset = _compile(chain.segments)
        # Transposed: with the worlds along the last axis every operation runs over contiguous memory.
        self.register_buffer("keep", keep.mT.float().contiguous(), persistent=False)
        self.register_buffer("turn", turn.mT.float().contiguous(), persistent=False)
        self.register_buffer("offset", offset.mT.float().contiguous(), persistent=False)
        self.register_buffer("error_product", _ERROR.clone(), persistent=False)

    def forward(self, joint_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Tip position [m], shape (n, 3), and orientation wxyz, shape (n, 4), in the base frame.

        Args:
            joint_pos: joint positions [rad], shape (n, joints).
        """
        half = 0.5 * self.pick(joint_pos).t().contiguous()
        cosine, sine = torch.cos(half), torch.sin(half)
        one = torch.ones_like(joint_pos[:, :1]).t()
        quat = torch.cat([one, 0.0 * one, 0.0 * one, 0.0 * one])
        along = [quat]
        for i in range(self._joints):
            quat = cosine[i] * (self.keep[i] @ quat) + sine[i] * (self.turn[i] @ quat)
            along.append(quat)
        frames = torch.stack(along)
        products = (frames.unsqueeze(2) * frames.unsqueeze(1)).flatten(0, 2)
        return (self.offset @ products).t(), (self.keep[-1] @ quat).t()


def _compile(segments: Sequence[ChainSegment]) -> tuple[Tensor, Tensor, Tensor]:
    """Constants of the recursion: keep and turn (joints + 1, 4, 4), offset (16 · (joints + 1), 3).

    After joint i the running quaternion is q ← q ⊗ fixed_i ⊗ (cos, axis_i · sin); what is fixed after the last joint
    is the last entry of `keep`. Translations are rotated by the running quaternion of the frame they are given in.
    """
    identity = (1.0, 0.0, 0.0, 0.0)
    keep: list[Tensor] = []
    turn: list[Tensor] = []
    fixed = _right_product(identity)
    position = torch.zeros(3, dtype=torch.float64)
    offsets: list[Tensor] = []
    for segment in segments:
        # A translation after fixed rotations since the last joint: rotate it into that joint's frame first.
        position = position + _rotate(fixed[0], segment.translation)
        fixed = fixed @ _right_product(segment.quat)
        if segment.joint is not None:
            offsets.append(_rotation_form(position))
            keep.append(fixed)
            turn.append(fixed @ _right_product((0.0, *segment.axis)))
            fixed, position = _right_product(identity), torch.zeros(3, dtype=torch.float64)
    offsets.append(_rotation_form(position))
    keep.append(fixed)
    turn.append(fixed)
    return torch.stack(keep), torch.stack(turn), torch.cat(offsets)


def _rotate(quat: Tensor, vector: Sequence[float]) -> Tensor:
    """R(quat) · vector, shape (3,)."""
    return torch.outer(quat, quat).reshape(16) @ _rotation_form(vector)


def pose_error(target: Tensor, position: Tensor, quat: Tensor, product: Tensor = _ERROR) -> Tensor:
    """Target pose minus actual pose in the base frame, shape (n, 6).

    Position difference [m], then twice the vector part of the error quaternion taken the short way: the rotation
    axis times 2 sin(angle / 2), which is the rotation vector to 1 % up to 0.5 rad and grows with the angle up to π.

    Args:
        target: position [m] and orientation wxyz, shape (n, 7).
        position: actual position [m], shape (n, 3).
        quat: actual orientation wxyz, shape (n, 4).
        product: `ForwardKinematics.error_product`, which is on the device; the default is copied there in each call.
    """
    products = (target[:, 3:].unsqueeze(2) * quat.unsqueeze(1)).flatten(1)
    error = products @ product.to(products)
    short_way = torch.where(error[:, :1] < 0.0, -2.0, 2.0)
    return torch.cat([target[:, :3] - position, short_way * error[:, 1:]], dim=1)


MAX_ORIENTATION_ERROR = 2.0 * math.sin(math.pi / 2)
"""Greatest norm of the rotation part of `pose_error`, at half a turn."""


def projected_gravity(quat: Tensor) -> Tensor:
    """Unit vector of gravity in the base frame, R(quat)ᵀ · (0, 0, -1), shape (n, 3); quat is wxyz, base in world."""
    w, x, y, z = quat.unbind(dim=1)
    return torch.stack([2.0 * (w * y - x * z), -2.0 * (w * x + y * z), x * x + y * y - w * w - z * z], dim=1)
