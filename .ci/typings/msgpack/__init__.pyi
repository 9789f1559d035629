from collections.abc import Callable
from typing import Any

from msgpack import exceptions as exceptions

def packb(o: object, *, default: Callable[[object], object] | None = ...) -> bytes: ...
def unpackb(
    packed: bytes,
    *,
    object_hook: Callable[[dict[str, Any]], object] | None = ...,
    max_array_len: int = ...,
    max_map_len: int = ...,
    max_ext_len: int = ...,
) -> object: ...
