"""Fixtures of these tests; see `tests.support.s3_server`."""

from tests.support.s3_server import s3_server, server

__all__ = ["s3_server", "server"]
