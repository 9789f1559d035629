"""Golden states of a policy: inputs of visited states and the outputs of the trained policy.

`golden.npz` is an uncompressed .npz file with one float32 array per input and output of the graph, all with the same
number of rows, and the contract's fingerprint. It is untrusted: nothing is unpickled, and no array is allocated before
its stated size has been compared with the number of bytes present. Format of the arrays:
https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

import io
import zipfile
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from physai.sdk.policy.header import GOLDEN_FILE, PolicyError, PolicyHeader

FINGERPRINT_NAME = "fingerprint"
"""Entry that holds the contract's fingerprint."""

MAX_HEADER_BYTES = 4096
"""Maximum size of an array's header."""

Floats = npt.NDArray[np.float32]


class GoldenError(PolicyError):
    """A golden file is damaged or belongs to another policy."""


@dataclass(frozen=True)
class Golden:
    """Recorded states of a policy, float32, shape (rows, width)."""

    inputs: dict[str, Floats]
    """Inputs of the graph by name."""
    outputs: dict[str, Floats]
    """Outputs of the trained policy by name."""

    @property
    def rows(self) -> int:
        """Number of states."""
        return len(next(iter(self.outputs.values())))


def read_golden(data: bytes, header: PolicyHeader, *, source: str = GOLDEN_FILE) -> Golden:
    """Parse the golden states of a policy.

    Args:
        data: the .npz file.
        header: header of the policy that the states must belong to.
        source: origin of the file, for messages.

    Raises:
        GoldenError: the file is damaged or compressed, or its arrays do not match the graph.
    """
    widths = {**header.inputs, **header.outputs}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = _members(archive, len(data), source)
            _check_names(set(files), set(widths), source)
            _check_fingerprint(archive.read(files[FINGERPRINT_NAME]), header.contract.fingerprint, source)
            arrays = {name: _array(archive.read(files[name]), name, width, source) for name, width in widths.items()}
    except GoldenError:
        raise
    except Exception as error:  # zipfile and numpy raise many types of exceptions for damaged files
        raise GoldenError(f"{source} is damaged: {error}") from None
    rows = {name: len(array) for name, array in arrays.items()}
    if len(set(rows.values())) != 1 or not min(rows.values()) > 0:
        raise GoldenError(f"{source}: every array needs the same number of rows, at least one; got {rows}")
    return Golden(
        inputs={name: arrays[name] for name in header.inputs}, outputs={name: arrays[name] for name in header.outputs}
    )


def _members(archive: zipfile.ZipFile, size: int, source: str) -> dict[str, zipfile.ZipInfo]:
    """Return the archive's members by array name."""
    # Compressed members are rejected, and so are overlapping ones: together they must not exceed the file ("zip bomb").
    files: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        size -= info.file_size
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or not size >= 0:
            raise GoldenError(f"{source}: {name[:64]!r} is compressed or encrypted; physai export stores it plainly")
        if name in files:
            raise GoldenError(f"{source}: {name[:64]!r} occurs twice")
        files[name] = info
    return files


def _check_names(found: set[str], graph: set[str], source: str) -> None:
    if found != graph | {FINGERPRINT_NAME}:
        missing = ", ".join(sorted((graph | {FINGERPRINT_NAME}) - found)) or "nothing"
        extra = ", ".join(name[:64] for name in sorted(found - graph - {FINGERPRINT_NAME})[:8]) or "nothing"
        raise GoldenError(f"{source}: not of this graph: {missing} missing, {extra} unexpected")


def _check_fingerprint(member: bytes, expected: str, source: str) -> None:
    file = io.BytesIO(member)
    shape, dtype = _header(file)
    if shape != () or dtype != np.dtype("<U64"):
        raise GoldenError(f"{source}: the fingerprint is not a string of 64 characters")
    found = member[file.tell() :].decode("utf-32-le")
    if found != expected:
        raise GoldenError(
            f"{source}: recorded under another contract ({found[:12]!r}) than the policy's ({expected[:12]})"
        )


def _array(member: bytes, name: str, width: int, source: str) -> Floats:
    file = io.BytesIO(member)
    shape, dtype = _header(file)
    data = member[file.tell() :]
    if dtype != np.dtype("<f4") or len(shape) != 2 or shape[1] != width or shape[0] * width * 4 != len(data):
        raise GoldenError(f"{source}: {name!r} is {dtype} of shape {shape}, expected float32 of shape (n, {width})")
    array = np.frombuffer(data, np.dtype("<f4")).reshape(shape)
    if not np.isfinite(array).all():
        raise GoldenError(f"{source}: {name!r} holds a value that is not finite")
    return array


def _header(file: io.BytesIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of an array: its shape and data type."""
    library = cast("Any", np.lib.format)
    if library.read_magic(file) != (1, 0):
        raise ValueError("not in version 1.0 of the .npy format")
    shape, fortran_order, dtype = library.read_array_header_1_0(file, max_header_size=MAX_HEADER_BYTES)
    if fortran_order:
        raise ValueError("an array in column order")
    return shape, dtype
