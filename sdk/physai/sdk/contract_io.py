"""Reads and writes contracts. Bytes from outside are bounded first, parsed second, cross-checked third.

A contract file is canonical JSON without a trailing newline, so `sha256sum contract.json` prints the fingerprint.
"""

import json
import reprlib
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from physai.sdk.canonical import canonical_json
from physai.sdk.contract import FORMAT_VERSION, PolicyContract
from physai.sdk.errors import ContractError
from physai.sdk.files import write_atomic
from physai.sdk.onnx_metadata import read_onnx_metadata

MAX_CONTRACT_BYTES = 1 << 20
"""Greatest size of a contract; one of 64 joints takes some 60 kB."""

MAX_DEPTH = 16
"""Deepest nesting; a contract needs 7."""

MAX_PROBLEMS = 50
"""Most problems one error lists."""

ONNX_METADATA_KEY = "physai.contract"
"""Metadata entry of an ONNX file that holds its contract, canonical JSON."""

CONTRACT_FILE = "contract.json"
"""Name of the contract in a run folder or a bundle."""


def parse_contract(data: bytes | str, *, source: str) -> PolicyContract:
    """The contract in a JSON document.

    Args:
        data: the document, UTF-8.
        source: where it came from, for messages.

    Raises:
        ContractError: the document is too big, malformed, of a newer format, or not a consistent contract.
    """
    text = _bounded_text(data, source)
    _check_document(_parse_json(text, source), source)
    try:
        return PolicyContract.model_validate_json(text)
    except ValidationError as error:
        raise contract_error(error, source=source) from None


def load_contract(path: Path | str) -> PolicyContract:
    """The contract in a JSON file, in a folder that holds `contract.json`, or in an ONNX file's metadata.

    Raises:
        ContractError: there is none, or `parse_contract` refuses it.
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
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONTRACT_BYTES + 1)
    except OSError as error:
        raise ContractError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_contract(data, source=str(path))


def save_contract(contract: PolicyContract, path: Path | str) -> None:
    """Writes the contract's canonical JSON; the file is the old or the new one at every instant.

    Raises:
        ContractError: the file cannot be written.
    """
    try:
        write_atomic(Path(path), canonical_json(contract))
    except OSError as error:
        raise ContractError(f"{path}: cannot be written: {error.strerror}") from None


def contract_error(error: ValidationError, *, source: str) -> ContractError:
    """The ContractError that lists what pydantic found, one `path: message (got value)` a line.

    For contracts built in Python from a user's input, too: pydantic's own error is no PhysaiError.
    """
    problems = [line for detail in error.errors(include_url=False) for line in _problem_lines(detail)]
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
    if len(problems) == 1:
        return ContractError(f"{source}: {problems[0]}")
    return ContractError(f"{source}: not a valid contract\n" + "\n".join(f"  {line}" for line in problems))


def _problem_lines(detail: Any) -> list[str]:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    prefix = f"{path}: " if path else ""
    kind = detail["type"]
    if kind == "value_error":
        # The message of our own validator, which names the values itself; one line per problem.
        return [prefix + line for line in str(detail["ctx"]["error"]).splitlines()]
    if kind == "missing":
        return [f"{prefix}missing"]
    message = "unknown field" if kind == "extra_forbidden" else detail["msg"]
    return [f"{prefix}{message} (got {reprlib.repr(detail['input'])})"]


def _bounded_text(data: bytes | str, source: str) -> str:
    try:
        raw = data.encode("utf-8") if isinstance(data, str) else data
        if not len(raw) <= MAX_CONTRACT_BYTES:
            raise ContractError(f"{source}: larger than the {MAX_CONTRACT_BYTES} bytes a contract may have")
        text = raw.decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        raise ContractError(f"{source}: not UTF-8 text: {error.reason} at {error.start}") from None
    depth = _depth(text)
    if not depth <= MAX_DEPTH:
        raise ContractError(f"{source}: nested {depth} deep, at most {MAX_DEPTH} is allowed")
    return text


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside strings; read before parsing, because a parser may recurse."""
    depth = deepest = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _parse_json(text: str, source: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                raise ContractError(f"{source}: key {reprlib.repr(key)} occurs twice in one object")
            record[key] = value
        return record

    def refuse(constant: str) -> Any:
        raise ContractError(f"{source}: {constant} is not a finite number")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except ValueError as error:
        raise ContractError(f"{source}: not JSON: {error}") from None


def _check_document(document: Any, source: str) -> None:
    """Refuses what is no object or of another format before its fields are looked at."""
    if not isinstance(document, dict):
        raise ContractError(f"{source}: a contract is a JSON object, got {reprlib.repr(document)}")
    version = cast("dict[str, Any]", document).get("format_version")
    if type(version) is not int:
        got = "none" if version is None else reprlib.repr(version)
        raise ContractError(f"{source}: format_version must be a whole number, got {got}")
    if version > FORMAT_VERSION:
        raise ContractError(
            f"{source}: contract format {version} is newer than format {FORMAT_VERSION}, which this physai reads; "
            "upgrade physai-sdk here, or write the contract with the older version"
        )
    if version != FORMAT_VERSION:
        raise ContractError(f"{source}: there is no contract format {version}, this physai reads {FORMAT_VERSION}")
