"""Read and write contracts; untrusted input is checked against size limits before it is parsed.

A contract file is canonical JSON without a trailing newline, so `sha256sum contract.json` prints the fingerprint.
"""

from pathlib import Path

from pydantic import ValidationError

from physai.sdk.base.errors import ContractError
from physai.sdk.base.file_names import CONTRACT_FILE, MAX_CONTRACT_BYTES
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.formats.onnx_metadata import read_onnx_metadata
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import FORMAT_VERSION, OLDEST_FORMAT_VERSION

MAX_DEPTH = 16
"""Maximum nesting; a contract needs 7."""

MAX_VALUES = 1 << 16
"""Maximum number of values; a contract of 64 joints has about 5000."""

ONNX_METADATA_KEY = "physai.contract"
"""Metadata entry of an ONNX file that holds its contract, canonical JSON."""

_KIND = DocumentKind(
    name="contract",
    format_version=FORMAT_VERSION,
    oldest_version=OLDEST_FORMAT_VERSION,
    max_bytes=MAX_CONTRACT_BYTES,
    max_depth=MAX_DEPTH,
    error=ContractError,
    max_values=MAX_VALUES,
)


def parse_contract(data: bytes | str, *, source: str) -> PolicyContract:
    """Parse a contract from a JSON document.

    Args:
        data: the document, UTF-8.
        source: origin of the document, for messages.

    Raises:
        ContractError: the document is too large, malformed, of a newer format, or inconsistent.
    """
    return _KIND.parse(PolicyContract, data, source=source)


def load_contract(path: Path | str) -> PolicyContract:
    """Load a contract from a JSON file, from `contract.json` in a folder, or from the metadata of an ONNX file.

    Raises:
        ContractError: there is no contract, or it is invalid.
    """
    path = Path(path)
    if path.is_dir():
        path = path / CONTRACT_FILE
    if path.suffix == ".onnx":
        metadata = read_onnx_metadata(path)
        if ONNX_METADATA_KEY not in metadata:
            keys = ", ".join(map(repr, metadata)) or "none"
            raise ContractError(f"{path}: no contract in the ONNX metadata (key {ONNX_METADATA_KEY!r}); keys: {keys}")
        return parse_contract(metadata[ONNX_METADATA_KEY], source=str(path))
    with oserror_as(ContractError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_CONTRACT_BYTES)
    return parse_contract(data, source=str(path))


def save_contract(contract: PolicyContract, path: Path | str) -> None:
    """Write the contract as canonical JSON, atomically.

    Raises:
        ContractError: the file cannot be written.
    """
    with oserror_as(ContractError, f"{path}: cannot be written"):
        write_atomic(Path(path), canonical_json(contract))


def contract_error(error: ValidationError, *, source: str) -> ContractError:
    """Convert pydantic's error; the message lists one `path: message (got value)` per line.

    Use it for contracts built in Python from user input, because pydantic's own error is not a PhysaiError.
    """
    return _KIND.invalid(error, source=source)
