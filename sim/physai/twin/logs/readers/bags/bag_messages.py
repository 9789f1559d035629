"""Read messages from MCAP files and ROS 2 bag folders, which are not trusted.

Sizes are checked before anything is decompressed or parsed. Only known message types are decoded, with ROS's own
definitions instead of those in the file.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, cast

from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.evidence.recording_channels import COLUMNS_ENCODING, ORIGIN_METADATA_KEY
from physai.twin.logs.readers.bags.bag_columns import joint_states
from physai.twin.logs.readers.table import MAX_CELLS, MAX_FILE_BYTES, MAX_ROWS, read_bounded
from physai.twin.logs.robot_log import LogError

Kind = Literal["JointState", "Float64MultiArray", "JointTrajectory", "PoseStamped", "Odometry", "episode", "origin"]

_KINDS: dict[str, Kind] = {
    "sensor_msgs/JointState": "JointState",
    "std_msgs/Float64MultiArray": "Float64MultiArray",
    "trajectory_msgs/JointTrajectory": "JointTrajectory",
    "geometry_msgs/PoseStamped": "PoseStamped",
    "nav_msgs/Odometry": "Odometry",
    "physai.Episode": "episode",
}
"""Decoded types, without ROS 2's `/msg`."""

_ROS_NAMES = {kind: name.replace("/", "/msg/") for name, kind in _KINDS.items()}

_TWIN_METADATA = "physai.recording"
"""Name of the metadata in recordings from simulation."""

_MAX_CHUNK_BYTES = 256 << 20
_MAX_TOTAL_BYTES = 4 << 30
_MAX_METADATA_BYTES = 4 << 20
_MAGIC = b"\x89MCAP0\r\n"


@dataclass(frozen=True)
class BagMessage:
    """One decoded message."""

    topic: str
    kind: Kind
    log_ns: int
    """Time of recording [ns]."""
    content: Any
    """Fields of the ROS type as attributes (CDR) or as a mapping (JSON); for an origin, its mark."""


_COMPUTED = """
SELECT name FROM pragma_table_list WHERE type <> 'table'
UNION ALL
SELECT tables.name FROM pragma_table_list AS tables, pragma_table_xinfo(tables.name) WHERE hidden <> 0
LIMIT 1
"""
"""A table or view of an SQLite file whose content is computed."""


def bag_files(path: Path) -> tuple[Path, ...]:
    """Return the files with a bag's messages.

    Raises:
        LogError: the path is not a bag, or its storage is not supported.
    """
    if not path.is_dir():
        return (path,)
    storage, names = _metadata(path)
    if storage not in ("mcap", "sqlite3"):
        raise LogError(f"{path}: unsupported storage {storage!r}; supported are mcap and sqlite3")
    # Keep only the names: a bag folder may have been moved, and must not refer to files outside of it.
    files = tuple(path / Path(name).name for name in names)
    for file in files:
        if not os.path.isfile(file):  # unlike Path.is_file, also false for invalid file names
            raise LogError(f"{path}: metadata.yaml names {file.name:.80}, which is missing; copy the whole folder")
    return files


def bag_messages(path: Path) -> Iterator[BagMessage]:
    """Yield messages of known types, file by file in the order of recording.

    Raises:
        LogError: the bag is missing, too large, truncated, damaged, or has too many messages.
    """
    count = 0
    for file in _in_order(bag_files(path)):
        for message in _messages(file):
            count += 1
            if not count <= MAX_ROWS:
                raise LogError(f"{path}: more than {MAX_ROWS} messages; split the bag")
            yield message


def _in_order(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Sort the files of a split bag by their first message: metadata.yaml may list them in any order."""
    if len(files) < 2:
        return files
    return tuple(sorted(files, key=lambda file: next((message.log_ns for message in _messages(file)), 0)))


def _messages(file: Path) -> Iterator[BagMessage]:
    size = file.stat().st_size if file.is_file() else 0
    if not size <= MAX_FILE_BYTES:
        raise LogError(f"{file}: {size} bytes, at most {MAX_FILE_BYTES} are read; split the bag")
    return _sqlite_messages(file) if file.suffix == ".db3" else _mcap_messages(file)


def _metadata(folder: Path) -> tuple[str, list[str]]:
    """Return storage and file names in a bag's metadata.yaml."""
    file = folder / "metadata.yaml"
    if not file.is_file():
        raise LogError(f"{folder}: not a ROS 2 bag, as it has no readable metadata.yaml; name the recordings in it")
    content = read_yaml(file, what="metadata of a ROS 2 bag", max_bytes=_MAX_METADATA_BYTES, error=LogError)
    try:
        information: Any = content["rosbag2_bagfile_information"]
        storage, names = str(information["storage_identifier"]), [str(n) for n in information["relative_file_paths"]]
        compressed = str(information.get("compression_mode") or "none").lower()
    except (KeyError, TypeError, AttributeError) as error:
        raise LogError(f"{file}: not the metadata of a ROS 2 bag: {' '.join(str(error).split())}") from error
    if compressed != "none":
        raise LogError(
            f"{folder}: compressed by rosbag2 ({compressed} by {compressed}); convert it to MCAP, which has its own "
            "compression: ros2 bag convert"
        )
    return storage, names


def _mcap_messages(path: Path) -> Iterator[BagMessage]:
    from mcap.exceptions import McapError
    from mcap.records import Channel, Message, Metadata, Schema

    schemas: dict[int, str] = {}
    channels: dict[int, tuple[str, Kind, str]] = {}
    cells = 0
    try:
        for record in _mcap_records(path):
            if isinstance(record, Schema):
                schemas[record.id] = record.name
            elif isinstance(record, Channel):
                kind = _KINDS.get(schemas.get(record.schema_id, "").replace("/msg/", "/"))
                if kind is not None:
                    channels[record.id] = (record.topic, kind, record.message_encoding)
            elif isinstance(record, Message) and record.channel_id in channels:
                topic, kind, encoding = channels[record.channel_id]
                if encoding == COLUMNS_ENCODING and kind == "JointState":
                    for log_ns, content in joint_states(path, topic, record.data):
                        # Constant columns take no bytes, so that the file's size bounds nothing.
                        cells += len(content["name"]) * len(content)
                        if not cells <= MAX_CELLS:
                            raise LogError(f"{path}: more than {MAX_CELLS} values; split the recording")
                        yield BagMessage(topic, kind, log_ns, content)
                    continue
                yield BagMessage(topic, kind, record.log_time, _decode(path, topic, kind, encoding, record.data))
            elif isinstance(record, Metadata) and (mark := _origin_mark(record.name, record.metadata)):
                yield BagMessage("", "origin", 0, mark)
    except (McapError, struct.error, OverflowError, ValueError) as error:
        raise LogError(
            f"{path}: damaged or truncated: {type(error).__name__} {error}; `mcap recover` may restore the intact part"
        ) from error


def _origin_mark(name: str, metadata: Mapping[str, str]) -> str:
    """Return the origin in a file's metadata; empty if there is none."""
    return metadata.get(ORIGIN_METADATA_KEY, "stand-in" if name == _TWIN_METADATA else "")


def _mcap_records(path: Path) -> Iterator[Any]:
    """Yield the records of a file, including those in its chunks."""
    from mcap.records import Chunk
    from mcap.stream_reader import StreamReader, breakup_chunk

    data = read_bounded(path)
    if not data.startswith(_MAGIC):
        raise LogError(f"{path}: not an MCAP file; its first bytes are {data[: len(_MAGIC)]!r}")
    total = 0
    for record in StreamReader(BytesIO(data), emit_chunks=True, record_size_limit=len(data)).records:
        if not isinstance(record, Chunk):
            yield record
            continue
        content = _chunk_content(path, record)
        total += len(content)
        if not total <= _MAX_TOTAL_BYTES:
            raise LogError(f"{path}: more than {_MAX_TOTAL_BYTES} bytes when decompressed; split the recording")
        # `breakup_chunk` would decompress without a limit, so it gets a chunk that is already decompressed.
        plain = Chunk(
            compression="",
            data=content,
            message_start_time=record.message_start_time,
            message_end_time=record.message_end_time,
            uncompressed_crc=record.uncompressed_crc,
            uncompressed_size=len(content),
        )
        yield from breakup_chunk(plain, validate_crc=True)


def _chunk_content(path: Path, chunk: Any) -> bytes:
    """Decompress a chunk after checking its stated size."""
    if not chunk.uncompressed_size <= _MAX_CHUNK_BYTES:
        raise LogError(
            f"{path}: a chunk of {chunk.uncompressed_size} bytes when decompressed, at most {_MAX_CHUNK_BYTES} are read"
        )
    if not chunk.compression:
        content = bytes(chunk.data)
    elif chunk.compression == "zstd":
        content = _zstd(path, chunk)
    elif chunk.compression == "lz4":
        content = _lz4(path, chunk)
    else:
        raise LogError(f"{path}: unsupported compression {chunk.compression!r}; supported are zstd and lz4")
    if len(content) != chunk.uncompressed_size:
        raise LogError(f"{path}: damaged: a chunk has {len(content)} bytes but states {chunk.uncompressed_size}")
    return content


def _zstd(path: Path, chunk: Any) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    try:
        # A frame with a size in its header is decompressed to that size regardless of max_output_size; -1: not stated.
        if frame_content_size(chunk.data) not in (-1, chunk.uncompressed_size):
            raise LogError(f"{path}: damaged: two stated sizes of a chunk differ")
        return ZstdDecompressor().decompress(chunk.data, max_output_size=chunk.uncompressed_size)
    except ZstdError as error:
        raise LogError(f"{path}: damaged chunk: {error}") from error


def _lz4(path: Path, chunk: Any) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    try:
        return LZ4FrameDecompressor().decompress(chunk.data, max_length=chunk.uncompressed_size)
    except (RuntimeError, EOFError) as error:
        raise LogError(f"{path}: damaged chunk: {error}") from error


def _sqlite_messages(path: Path) -> Iterator[BagMessage]:
    """Yield the messages of an SQLite file of a ROS 2 bag."""
    import apsw  # the SQLite binding of rosbags, for its errors
    from rosbags.rosbag2 import Reader, ReaderError

    if path.exists() and not path.is_file():
        raise LogError(f"{path}: not a regular file")  # SQLite would wait for the writer of a pipe
    try:
        _require_plain_tables(path)
        with Reader(path) as reader:
            kinds: dict[int, Kind | None] = {
                c.id: _KINDS.get(c.msgtype.replace("/msg/", "/")) for c in reader.connections
            }
            wanted = [connection for connection in reader.connections if kinds[connection.id] is not None]
            for connection, log_ns, data in reader.messages(wanted) if wanted else ():
                kind = kinds[connection.id]
                # SQLite does not enforce column types: a damaged file may contain anything.
                message: Any = data
                when: Any = log_ns
                if kind is None or type(message) is not bytes or type(when) is not int:
                    raise ValueError(f"a message of {connection.topic} with invalid data or time")
                yield BagMessage(connection.topic, kind, when, _decode(path, connection.topic, kind, "cdr", message))
    except (ReaderError, OSError, ValueError, KeyError, TypeError, AttributeError, apsw.Error) as error:
        raise LogError(f"{path}: not a readable bag: {' '.join(str(error).split())}") from error


def _require_plain_tables(path: Path) -> None:
    """Raises ValueError for a view, a virtual table or a generated column: such ones can be endless."""
    import apsw

    uri = f"{path.absolute().as_uri()}?immutable=1"
    connection: Any = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    with closing(connection) as database:
        # What SQLite understands, not what the table of its schema says.
        (odd,) = database.execute(_COMPUTED).fetchone() or (None,)
    if odd is not None:
        raise ValueError(f"{str(odd)[:80]!r} is computed; a bag consists of plain tables")


def _decode(path: Path, topic: str, kind: Kind, encoding: str, data: bytes) -> Any:
    from rosbags.serde import SerdeError

    try:
        if encoding == "json":
            content: Any = json.loads(data)
            if not isinstance(content, dict):
                raise ValueError(f"contains {type(content).__name__}, expected an object")
            return cast("dict[str, Any]", content)
        if encoding == "cdr":
            return _typestore().deserialize_cdr(data, _ROS_NAMES[kind])
    except (SerdeError, ValueError, KeyError, IndexError, RecursionError, struct.error) as error:
        raise LogError(f"{path}: topic {topic}: cannot decode a {kind}: {error}") from error
    raise LogError(
        f"{path}: topic {topic}: {kind} has encoding {encoding!r}; supported are cdr, json and physai.columns"
    )


@cache
def _typestore() -> Any:
    """Return ROS 2's message definitions."""
    # Any release will do: these types have not changed since the first.
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)
