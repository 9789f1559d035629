"""Parses untrusted XML model files: bounded in size, without entities, with line numbers."""

import math
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from physai.sdk.base.errors import ModelError

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Greatest size of a model file."""

MAX_DEPTH = 256
"""Greatest nesting depth of elements; MuJoCo's parser allows 500."""

MAX_ELEMENTS = 200_000
"""Greatest number of elements; published robots have up to a few thousand. An element takes about 500 bytes."""

_NOT_NUMBERS = {"name", "class", "childclass", "file", "filename", "link", "joint", "body", "site", "geom", "data"}
"""Attributes with names or text, such as `data` of a <text>; MuJoCo itself checks `data` of a <numeric>."""

_ENCODINGS = {"utf-8", "us-ascii", "iso-8859-1", "utf-16"}
"""Encodings that expat decodes natively. Others go through Python's codecs, which include non-text ones: zip, idna."""

_SUSPECT = re.compile(r"nan|inf|e\+?\d{3}", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class XmlFile:
    """A parsed model file."""

    path: Path
    root: Element
    """Root of the tree, without comments."""
    lines: dict[Element, int]
    """Line of each element's start tag, from 1."""

    def where(self, element: Element) -> str:
        """Location of an element as `path:line`."""
        return f"{self.path}:{self.lines.get(element, 0)}"

    def error(self, element: Element, problem: str) -> ModelError:
        """The error for a problem with an element."""
        return ModelError(f"{self.where(element)}: {problem}")


def read_xml(path: Path) -> XmlFile:
    """Read and parse a file.

    Raises:
        ModelError: the file is missing, unreadable, larger than MAX_FILE_BYTES, not XML, in an unsupported encoding,
            has a document type declaration (which could declare entities), is nested too deeply, has too many
            elements, or contains a non-finite number.
    """
    return parse_xml(_read(path), path)


def parse_xml(content: bytes, path: Path, *, max_elements: int = MAX_ELEMENTS) -> XmlFile:
    """Parse the content of a file; `path` is for messages. See `read_xml` for the errors."""
    parsed = _Parser(path, max_elements).parse(content)
    for element in parsed.root.iter():
        _require_finite(parsed, element)
    return parsed


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        # Opening a FIFO would block, and a device has no end.
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path}: not a regular file")
        size = status.st_size
        if size > MAX_FILE_BYTES:
            raise ModelError(f"{path}: {size} bytes; the maximum for a model file is {MAX_FILE_BYTES}")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise ModelError(f"{str(path)!r}: invalid path: {error}") from None
    # The file may have grown since `stat`.
    if len(content) > MAX_FILE_BYTES:
        raise ModelError(f"{path}: more than {MAX_FILE_BYTES} bytes, the maximum for a model file")
    return content


class _Parser:
    def __init__(self, path: Path, max_elements: int) -> None:
        self._path = path
        self._max_elements = max_elements
        self._builder = TreeBuilder()
        self._lines: dict[Element, int] = {}
        self._depth = 0
        self._expat = expat.ParserCreate()
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.XmlDeclHandler = self._declaration
        self._expat.StartDoctypeDeclHandler = self._doctype

    def parse(self, content: bytes) -> XmlFile:
        try:
            self._expat.Parse(content, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ModelError(f"{self._path}:{error.lineno}: not well-formed XML: {reason}") from error
        return XmlFile(path=self._path, root=self._builder.close(), lines=self._lines)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ModelError(f"{self._path}:{self._expat.CurrentLineNumber}: elements nested deeper than {MAX_DEPTH}")
        if len(self._lines) >= self._max_elements:
            line = self._expat.CurrentLineNumber
            raise ModelError(f"{self._path}:{line}: more than {self._max_elements} elements; simplify the model")
        self._lines[self._builder.start(tag, attributes)] = self._expat.CurrentLineNumber

    def _end(self, tag: str) -> None:
        self._depth -= 1
        self._builder.end(tag)

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            line = self._expat.CurrentLineNumber
            raise ModelError(f"{self._path}:{line}: encoding {encoding[:40]!r}; save the file as UTF-8")

    def _doctype(self, name: str, system_id: str | None, public_id: str | None, has_internal_subset: bool) -> None:
        line = self._expat.CurrentLineNumber
        # Entities could expand to gigabytes or read local files.
        raise ModelError(f"{self._path}:{line}: a model file may not have a <!DOCTYPE>; remove the declaration")


def _require_finite(parsed: XmlFile, element: Element) -> None:
    for key, value in element.attrib.items():
        if key in _NOT_NUMBERS or not _SUSPECT.search(value):
            continue
        for token in value.split():
            try:
                number = float(token)
            except ValueError:
                break
            if not math.isfinite(number):
                raise parsed.error(element, f"<{element.tag}> {key}={value!r} is not a finite number")
