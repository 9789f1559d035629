"""Named tensors of checkpoints: of torch, of Stable-Baselines3, and safetensors.

Everything here runs in a child process: the file is a stranger's. No pickle of it runs code, and nothing is unpacked to
a disk.
"""

import io
import json
import math
import re
import zipfile
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from physai.foreign.body.checkpoints.ways_out import WAY_OUT
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.file_names import MAX_POLICY_BYTES

MAX_NAMES = 4096
MAX_DEPTH = 6
MAX_HEADER = 8 << 20
"""Greatest size of the header of safetensors [bytes]."""
MAX_NUMBERS = MAX_POLICY_BYTES // 4
"""Greatest number of elements of all tensors."""
ZOO_POLICY, ZOO_DATA = "policy.pth", "data"
"""Files of an archive of Stable-Baselines3: weights, and settings as JSON, whose pickles in base64 are not read."""
KINDS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types of numbers of safetensors; tensors of others are left out."""


@dataclass(frozen=True)
class CheckpointContents:
    """Tensors and settings of a checkpoint."""

    tensors: dict[str, Tensor]
    """Tensors by names with those of the dictionaries that contain them: `model_state_dict.actor.0.weight`."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of Stable-Baselines3."""


def read_checkpoint(data: bytes, *, safetensors: bool) -> CheckpointContents:
    """Read a checkpoint.

    Args:
        data: the file.
        safetensors: whether it is one of safetensors, which has no mark of its own.

    Raises:
        ForeignPolicyError: it is none, or reading it needs more than numbers and texts.
    """
    if safetensors:
        return CheckpointContents(_safetensors(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            if sum(sizes.values()) > MAX_POLICY_BYTES:
                raise ForeignPolicyError(
                    f"an archive of {sum(sizes.values()) >> 20} MiB, at most {MAX_POLICY_BYTES >> 20} MiB are read"
                )
            if ZOO_POLICY not in sizes:
                return CheckpointContents(_torch_tensors(data))
            settings = archive.read(ZOO_DATA) if ZOO_DATA in sizes else b"{}"
            tensors = _torch_tensors(archive.read(ZOO_POLICY))
            return CheckpointContents(tensors, _dictionary(json.loads(settings), ZOO_DATA))
    except (zipfile.BadZipFile, ValueError, RecursionError, NotImplementedError, RuntimeError, EOFError) as error:
        raise ForeignPolicyError(f"not a checkpoint: {str(error)[:200]}") from None


def _torch_tensors(data: bytes) -> dict[str, Tensor]:
    library: Any = torch.serialization
    # Numbers of numpy, which rl_games keeps rewards in; names of before and after numpy 2.
    scalar: Any = getattr(np, "_core").multiarray.scalar  # noqa: B009
    harmless = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    kinds = [np.dtype, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?"))]
    try:
        with library.safe_globals([*harmless, *kinds]):
            found: object = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler's, and torch's own
        name = re.search(r"GLOBAL ([\w.]+)|class ([\w.]+)", str(error))
        if name is not None:
            needs = (name[1] or name[2])[:200]
            raise ForeignPolicyError(f"reading it needs {needs}, which may run a program; {WAY_OUT}") from None
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ForeignPolicyError(f"not a checkpoint of torch: {lines[0][:200]}") from None
    tensors: dict[str, Tensor] = {}
    _flatten(found, "", 0, tensors)
    return _checked(tensors)


def _flatten(value: object, prefix: str, depth: int, tensors: dict[str, Tensor]) -> None:
    """Add the tensors of dictionaries in dictionaries; keys that are no texts are those of optimisers."""
    if depth > MAX_DEPTH or len(tensors) > MAX_NAMES:
        raise ForeignPolicyError(f"more than {MAX_NAMES} tensors, or {MAX_DEPTH} dictionaries in each other; {WAY_OUT}")
    for key, inner in cast("dict[Any, Any]", value).items() if isinstance(value, dict) else ():
        name = f"{prefix}{key}"
        if isinstance(inner, Tensor):
            tensors[name] = inner
        elif isinstance(key, str) and isinstance(inner, dict):
            _flatten(cast("dict[Any, Any]", inner), f"{name}.", depth + 1, tensors)


def _checked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that are plain arrays of numbers: one may claim more elements than are in the file."""
    total = sum(tensor.numel() for tensor in tensors.values())
    if total > MAX_NUMBERS:
        raise ForeignPolicyError(f"tensors of {total} numbers, at most {MAX_NUMBERS} are read")
    if any(len(name) > 200 or not name.isprintable() for name in tensors):
        raise ForeignPolicyError(f"a tensor has a name of more than 200 characters, or of unprintable ones; {WAY_OUT}")
    # A compiled module adds a word to the names.
    return {
        name.replace("_orig_mod.", ""): tensor.detach()
        for name, tensor in tensors.items()
        if tensor.layout == torch.strided and tensor.device.type == "cpu"
    }


def _safetensors(data: bytes) -> dict[str, Tensor]:
    """Read the header, JSON after its size, and the tensors that it names in the bytes after it."""
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(MAX_HEADER, len(data) - 8):
        raise ForeignPolicyError(f"not a file of safetensors: a header of {size} bytes in {len(data)} bytes")
    try:
        header = _dictionary(json.loads(data[8 : 8 + size]), "header")
    except (ValueError, RecursionError):
        raise ForeignPolicyError("not a file of safetensors: its header is not JSON") from None
    body = data[8 + size :]
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        described = _dictionary(entry, name[:200])
        kind = KINDS.get(str(described.get("dtype")))
        if name == "__metadata__" or kind is None:
            continue
        shape, (start, end) = _whole(described.get("shape"), name), _whole(described.get("data_offsets"), name, 2)
        wanted = math.prod(shape) * kind.itemsize
        if not 0 <= start <= end <= len(body) or end - start != wanted:
            raise ForeignPolicyError(
                f"{name} of shape {shape} needs {wanted} bytes, and has those from {start} to {end} of {len(body)}"
            )
        if wanted:
            tensors[name] = torch.frombuffer(bytearray(body[start:end]), dtype=kind).reshape(shape)
    return _checked(tensors)


def _whole(value: Any, name: str, count: int | None = None) -> list[int]:
    numbers = cast("list[Any]", value) if isinstance(value, list) else []
    if not all(type(one) is int and 0 <= one < 1 << 40 for one in numbers) or count not in (None, len(numbers)):
        raise ForeignPolicyError(f"not a file of safetensors: shape or place of {name[:200]}")
    return numbers


def _dictionary(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ForeignPolicyError(f"not a checkpoint: {name} is no object")
    return cast("dict[str, Any]", value)
