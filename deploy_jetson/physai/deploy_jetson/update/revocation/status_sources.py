"""Status documents of a source: a file, a folder such as a mounted stick, or a URL; bounded in bytes and time."""

import http.client
import os
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from urllib.parse import urlsplit

from physai.sdk.evidence.origin import model_of
from physai.sdk.signing.status.status_document import MAX_STATUS_BYTES, StatusError

# Longest wait for one answer of a socket, and for a whole document [s].
ANSWER_S, WHOLE_S = 5.0, 10.0

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_url(source: str) -> bool:
    """Whether a source is asked over a network."""
    return source.startswith(("http://", "https://"))


def names_in_folder(robot: str) -> tuple[str, ...]:
    """Names of the files that are read in a folder: for every robot, for the model, for the unit."""
    # Fixed names, so that no number of other files on a stick matters.
    own = (f"{model_of(robot)}.status.json", f"{robot.replace('/', '.')}.status.json")
    return tuple(dict.fromkeys(("status.json", *own)))


def read_source(source: str, robot: str) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the bytes of each document of a source; nothing if a file or folder is not there.

    Args:
        source: absolute path, or URL.
        robot: name of the robot.

    Raises:
        StatusError: the source cannot be read, is too large or too slow.
    """
    try:
        if is_url(source):
            yield source, _fetched(source)
        else:
            yield from _files(source, robot)
    except FileNotFoundError:
        return
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StatusError(f"{source}: no status document: {reason}") from None


def _files(path: str, robot: str) -> Iterator[tuple[str, bytes]]:
    # The path is the owner's; what lies there may be a stranger's, so links are not followed.
    descriptor = os.open(path, _OPEN)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            yield path, _contents(descriptor, path)
            return
        failed: StatusError | OSError | None = None
        for name in names_in_folder(robot):
            try:
                data = _read_in(descriptor, name, path)
            except FileNotFoundError:
                continue
            except (StatusError, OSError) as error:
                # Said at the end: what lies there under one name must not hide the others.
                failed = error
                continue
            yield f"{path}/{name}", data
        if failed is not None:
            raise failed
    finally:
        os.close(descriptor)


def _read_in(folder: int, name: str, path: str) -> bytes:
    file = os.open(name, _OPEN, dir_fd=folder)
    try:
        return _contents(file, f"{path}/{name}")
    finally:
        os.close(file)


def _contents(descriptor: int, path: str) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise StatusError(f"{path}: no status document: not a regular file")
    if not status.st_size <= MAX_STATUS_BYTES:
        raise StatusError(f"{path}: no status document: {status.st_size} bytes, at most {MAX_STATUS_BYTES} are read")
    return os.read(descriptor, MAX_STATUS_BYTES + 1)


def _fetched(url: str) -> bytes:
    """Return what a GET answers; follows no redirect and uses no proxy."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise StatusError(f"{url}: no status document: the URL names no host")
    secure = parts.scheme == "https"
    connection = (
        http.client.HTTPSConnection(parts.hostname, parts.port, timeout=ANSWER_S, context=ssl.create_default_context())
        if secure
        else http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_S)
    )
    with closing(connection):
        connection.connect()
        # Each answer has its limit; this one bounds a server that sends a byte now and then.
        limit = threading.Timer(WHOLE_S, _shut, (connection.sock,))
        limit.daemon = True
        limit.start()
        try:
            connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise StatusError(f"{url}: no status document: the server answers {response.status}")
            data = response.read(MAX_STATUS_BYTES + 1)
        finally:
            limit.cancel()
    if not len(data) <= MAX_STATUS_BYTES:
        raise StatusError(f"{url}: no status document: more than {MAX_STATUS_BYTES} bytes")
    return data


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
