"""Untrusted JSON documents: checked against size limits first, then parsed, then validated."""

import json
import reprlib
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from physai.sdk.base.errors import PhysaiError

Record = TypeVar("Record", bound=BaseModel)
Failure = TypeVar("Failure", bound=PhysaiError)

MAX_CONTAINERS = 1 << 15
"""Maximum number of objects and arrays: an empty one takes 2 bytes of text but about 1 kB while it is parsed."""

MAX_PROBLEMS = 50
"""Maximum number of problems in one error message."""


@dataclass(frozen=True, kw_only=True)
class DocumentKind(Generic[Failure]):
    """Limits and format versions of one kind of document."""

    name: str
    """Name for messages, e.g. `verdict`."""
    format_version: int
    """Newest supported format."""
    max_bytes: int
    max_depth: int
    """Maximum nesting of brackets."""
    error: type[Failure]
    max_values: int = 1 << 24
    """Maximum number of values: one takes at least 2 bytes of text but about 300 while it is parsed."""
    oldest_version: int | None = None
    """Oldest supported format; None for `format_version`."""

    def parse(self, model: type[Record], data: bytes | str, *, source: str) -> Record:
        """Parse and validate a JSON document.

        Args:
            model: pydantic model of the document.
            data: the document, UTF-8.
            source: origin of the document, for messages.

        Raises:
            PhysaiError: of type `error`, if the document is too large, malformed, of another format or inconsistent.
        """
        text = self._bounded_text(data, source)
        self._check_format(self._parse_json(text, source), source)
        try:
            return model.model_validate_json(text)
        except ValidationError as error:
            raise self.invalid(error, source=source) from None

    def invalid(self, error: ValidationError, *, source: str) -> Failure:
        """Convert pydantic's error; the message lists one `path: message (got value)` per line."""
        problems = [line for detail in error.errors(include_url=False) for line in _problem_lines(detail)]
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more"]
        if len(problems) == 1:
            return self.error(f"{source}: {problems[0]}")
        lines = "\n".join(f"  {line}" for line in problems)
        return self.error(f"{source}: not a valid {self.name}\n{lines}")

    def _bounded_text(self, data: bytes | str, source: str) -> str:
        try:
            raw = data.encode("utf-8") if isinstance(data, str) else data
            if not len(raw) <= self.max_bytes:
                raise self.error(f"{source}: larger than the {self.max_bytes} bytes a {self.name} may have")
            text = raw.decode("utf-8")
        except (UnicodeEncodeError, UnicodeDecodeError) as error:
            raise self.error(f"{source}: not UTF-8 text: {error.reason} at {error.start}") from None
        depth = _depth(text)
        if not depth <= self.max_depth:
            raise self.error(f"{source}: nested {depth} deep, at most {self.max_depth} is allowed")
        containers = text.count("{") + text.count("[")
        values = text.count(",") + containers
        if not (containers <= MAX_CONTAINERS and values <= self.max_values):
            raise self.error(
                f"{source}: {values} values in {containers} objects and arrays, at most {self.max_values} in "
                f"{MAX_CONTAINERS} are allowed"
            )
        return text

    def _parse_json(self, text: str, source: str) -> Any:
        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            record: dict[str, Any] = {}
            for key, value in pairs:
                if key in record:
                    raise self.error(f"{source}: key {reprlib.repr(key)} occurs twice in one object")
                record[key] = value
            return record

        def refuse(constant: str) -> Any:
            raise self.error(f"{source}: {constant} is not a finite number")

        try:
            return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
        except ValueError as error:
            raise self.error(f"{source}: not JSON: {error}") from None

    def _check_format(self, document: Any, source: str) -> None:
        # Before pydantic sees the fields: a document of another format gets one clear message, not a list of them.
        if not isinstance(document, dict):
            raise self.error(f"{source}: a {self.name} is a JSON object, got {reprlib.repr(document)}")
        version = cast("dict[str, Any]", document).get("format_version")
        if type(version) is not int:
            got = "none" if version is None else reprlib.repr(version)
            raise self.error(f"{source}: format_version must be a whole number, got {got}")
        if version > self.format_version:
            raise self.error(
                f"{source}: {self.name} format {version} is newer than format {self.format_version}, which this "
                f"physai reads; upgrade physai-sdk here, or write the {self.name} with the older version"
            )
        oldest = self.format_version if self.oldest_version is None else self.oldest_version
        if version < oldest:
            readable = f"{oldest}" if oldest == self.format_version else f"{oldest} to {self.format_version}"
            raise self.error(f"{source}: there is no {self.name} format {version}, this physai reads {readable}")


def _depth(text: str) -> int:
    """Return the maximum nesting of brackets outside strings."""
    # Counted before parsing, because the parser recurses.
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


def _problem_lines(detail: Any) -> list[str]:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    prefix = f"{path}: " if path else ""
    kind = detail["type"]
    if kind == "value_error":
        # Raised by our own validators, whose messages contain the values; one line per problem.
        return [prefix + line for line in str(detail["ctx"]["error"]).splitlines()]
    if kind == "missing":
        return [f"{prefix}missing"]
    message = "unknown field" if kind == "extra_forbidden" else detail["msg"]
    return [f"{prefix}{message} (got {reprlib.repr(detail['input'])})"]
