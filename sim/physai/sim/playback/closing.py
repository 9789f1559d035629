"""Base class of things to close."""

from types import TracebackType
from typing import Self


class Closing:
    """A context manager that calls `close` at its end."""

    def close(self) -> None:
        """Frees what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
