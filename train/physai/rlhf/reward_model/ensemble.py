"""The reward model: an ensemble of perceptrons or linear functions, computed as one batched module.

Each member maps what the critic sees and what the policy commanded to a number; their frozen scale makes a reward of
them that is bounded, so that nothing can be worth more than twice the best that was seen in a segment.
"""

import hashlib
import io
import json
import math
import zipfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from physai.rlhf.answers.segment import PreferenceError
from physai.sdk.base.files import oserror_as, write_atomic

BEST_RATE = 3.0
"""Reward of the best steps of the segments [1/s]."""
MAX_RATE = 2.0 * BEST_RATE
"""Greatest reward [1/s]; the least is 0."""
_WORST, _BEST = 0.01, 0.999
"""Quantiles of the steps that count as the worst and the best ones."""
FORMAT_VERSION = 1
MAX_FILE_BYTES = 64 << 20
MODEL_FILE = "reward_model.npz"
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError),
    *(ValueError, LookupError, TypeError, RuntimeError, AttributeError, ArithmeticError),
)
"""What reading a damaged file raises."""


class RewardEnsemble(nn.Module):
    """E perceptrons on I inputs."""

    input_mean: Tensor
    input_std: Tensor
    member_mean: Tensor
    member_std: Tensor
    worst: Tensor
    span: Tensor

    def __init__(
        self, inputs: int, *, members: int = 3, hidden: tuple[int, ...] = (64, 64), generator: torch.Generator
    ) -> None:
        """Draws weights; `fit` gives it scales.

        Args:
            inputs: columns of critic input and action together.
            members: number of perceptrons.
            hidden: widths of their layers; linear functions have none.
            generator: source of the weights.
        """
        super().__init__()
        self.members, self.hidden = members, hidden
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise((inputs, *hidden, 1)):
            bound = 1.0 / math.sqrt(fan_in)
            draw = torch.rand(members, fan_in, fan_out, generator=generator)
            self.weights.append(nn.Parameter(bound * (2.0 * draw - 1.0)))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, fan_out)))
        self.register_buffer("input_mean", torch.zeros(inputs))
        self.register_buffer("input_std", torch.ones(inputs))
        self.register_buffer("member_mean", torch.zeros(members))
        self.register_buffer("member_std", torch.ones(members))
        self.register_buffer("worst", torch.zeros(()))
        self.register_buffer("span", torch.ones(()))

    @property
    def inputs(self) -> int:
        """Columns of the input."""
        return self.input_mean.numel()

    def normalise(self, x: Tensor) -> Tensor:
        """Inputs on the scale of the segments."""
        return ((x - self.input_mean) / self.input_std).clamp(-10.0, 10.0)

    def raw(self, x: Tensor) -> Tensor:
        """Outputs of the members for normalised inputs (E, N, I) or (N, I) that all share; shape (E, N)."""
        if x.dim() == 2:
            x = x.expand(self.members, *x.shape)
        layers = len(self.weights)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if index < layers - 1:
                x = nn.functional.leaky_relu(x)
        return x.squeeze(-1)

    @torch.no_grad()
    def freeze_scale(self, x: Tensor) -> None:
        """Fixes the scale by inputs before normalisation, (N, I); preferences leave it open.

        A scale that followed every batch would change what a weight of the KL penalty means.
        """
        values = self.raw(self.normalise(x))
        self.member_mean.copy_(values.mean(dim=1))
        self.member_std.copy_(values.std(dim=1).clamp(min=1e-6))
        mean = self.rates(x).mean(dim=0).double().sort().values
        worst, best = (mean[round(share * (len(mean) - 1))] for share in (_WORST, _BEST))
        self.worst.copy_(worst)
        self.span.copy_((best - worst).clamp(min=1e-6))

    @torch.no_grad()
    def rates(self, x: Tensor) -> Tensor:
        """Standardised outputs of each member for inputs (N, I), shape (E, N)."""
        return (self.raw(self.normalise(x)) - self.member_mean[:, None]) / self.member_std[:, None]

    def reward(self, critic: Tensor, action: Tensor) -> Tensor:
        """Reward per second, in [0, `MAX_RATE`], shape of the inputs without their last axis.

        Args:
            critic: critic inputs before normalisation, (..., C).
            action: network outputs, clipped to [-1, 1] here, (..., A).
        """
        x = torch.cat([critic, action.clamp(-1.0, 1.0)], dim=-1)
        mean = self.rates(x.reshape(-1, x.shape[-1])).mean(dim=0)
        return (BEST_RATE * (mean - self.worst) / self.span).clamp(0.0, MAX_RATE).reshape(x.shape[:-1])

    def digest(self) -> str:
        """SHA-256 of all numbers."""
        sha256 = hashlib.sha256(json.dumps([self.members, list(self.hidden), self.inputs]).encode())
        for name, value in sorted(self.state_dict().items()):
            sha256.update(name.encode() + value.detach().cpu().numpy().astype("<f4").tobytes())
        return sha256.hexdigest()


def save_ensemble(model: RewardEnsemble, path: Path, *, facts: dict[str, Any]) -> str:
    """Writes a model with what is known of it; nothing is pickled.

    Returns:
        The model's SHA-256.

    Raises:
        PreferenceError: the file cannot be written.
    """
    digest = model.digest()
    about = {
        "format_version": FORMAT_VERSION,
        "members": model.members,
        "hidden": list(model.hidden),
        "inputs": model.inputs,
        "sha256": digest,
        "facts": facts,
    }
    arrays: dict[str, Any] = {name: value.cpu().numpy() for name, value in model.state_dict().items()}
    data = io.BytesIO()
    np.savez(data, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    with oserror_as(PreferenceError, f"cannot write {path}"):
        write_atomic(path, data.getvalue())
    return digest


def load_ensemble(path: Path) -> tuple[RewardEnsemble, dict[str, Any]]:
    """Reads `save_ensemble` back: the model and the facts.

    Raises:
        PreferenceError: the file is missing, damaged, too large, or of another version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if not size <= MAX_FILE_BYTES:
            raise PreferenceError(f"{path} unpacks to {size} bytes, at most {MAX_FILE_BYTES}")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about: dict[str, Any] = json.loads(arrays.pop("about").tobytes())
        if about["format_version"] != FORMAT_VERSION:
            raise PreferenceError(f"{path} has format version {about['format_version']}, this physai {FORMAT_VERSION}")
        members, hidden, inputs = int(about["members"]), tuple(int(w) for w in about["hidden"]), int(about["inputs"])
        if not (
            1 <= members <= 64
            and 1 <= inputs <= 8192
            and len(hidden) <= 8
            and all(1 <= width <= 4096 for width in hidden)
            # Else a small file would have memory taken that it does not fill.
            and 4 * members * sum(a * b for a, b in pairwise((inputs, *hidden, 1))) <= MAX_FILE_BYTES
        ):
            raise PreferenceError(f"{path}: {members} members of widths {hidden} on {inputs} inputs are out of range")
        model = RewardEnsemble(inputs, members=members, hidden=hidden, generator=torch.Generator())
        model.load_state_dict({name: torch.as_tensor(value) for name, value in arrays.items()})
        digest = model.digest()
        if digest != about["sha256"]:
            raise PreferenceError(f"{path} is damaged: its SHA-256 is {digest}, recorded {about['sha256']}")
        return model, about["facts"]
    except OSError as error:
        raise PreferenceError(f"{path} cannot be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise PreferenceError(f"{path} is no reward model: {' '.join(str(error).split())[:200]}") from error
