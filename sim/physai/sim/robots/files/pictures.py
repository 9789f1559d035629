"""Checks the size of pictures before anything decodes them: a file of 1 kB may hold a picture of many gigabytes."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import mujoco

from physai.sdk.base.errors import ModelError
from physai.sdk.base.files import read_plain

MAX_SIDE = 16384
"""Greatest width and height [px]; a cube's six faces of 2048 px lie one below the other."""
MAX_PIXELS = 2**24
"""Greatest number of pixels of all pictures of a robot together: 64 MiB of red, green, blue and opacity."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = b"\x00\x00\x00\x0dIHDR"
HEAD_BYTES = len(_SIGNATURE) + len(_HEADER) + 8
"""As much of a file as tells its size."""


def check_pictures(files: Mapping[str, bytes]) -> None:
    """Checks the PNG files among a robot's files; their first `HEAD_BYTES` bytes are enough.

    Raises:
        ModelError: one is no PNG, or they are too large.
    """
    total = 0
    for name, content in files.items():
        if PurePosixPath(name).suffix.lower() == ".png":
            total += _pixels(name, content)
            if total > MAX_PIXELS:
                raise ModelError(
                    f"{name}: with this picture the robot has {total} pixels, at most {MAX_PIXELS}; make it smaller"
                )


def check_model_pictures(spec: mujoco.MjSpec, folder: Path) -> None:
    """Checks the pictures that a model names, before it is compiled.

    Args:
        spec: the model.
        folder: where its relative names begin.

    Raises:
        ModelError: see `check_pictures`.
    """
    heads: dict[str, bytes] = {}
    named = [(element.file, spec.meshdir) for element in spec.hfields]
    for texture in spec.textures:
        named += [(name, spec.texturedir) for name in (texture.file, *texture.cubefiles)]
    for name, subfolder in named:
        if name.lower().endswith(".png"):
            path = folder / subfolder / name
            try:
                heads[str(path)] = read_plain(path, limit=HEAD_BYTES)
            except OSError:
                continue  # MuJoCo says what it cannot read
    check_pictures(heads)


def _pixels(name: str, content: bytes) -> int:
    start = len(_SIGNATURE) + len(_HEADER)
    if content[:start] != _SIGNATURE + _HEADER or len(content) < start + 8:
        raise ModelError(f"{name}: is no PNG picture; convert it to PNG, or remove the texture")
    width, height = (int.from_bytes(content[start + at : start + at + 4]) for at in (0, 4))
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise ModelError(f"{name}: the picture has {width} × {height} pixels, a side may have 1 to {MAX_SIDE}")
    return width * height
