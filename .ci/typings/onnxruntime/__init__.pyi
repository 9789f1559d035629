from collections.abc import Mapping, Sequence
from typing import Any

class SessionOptions:
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class InferenceSession:
    def __init__(
        self,
        path_or_bytes: str | bytes,
        sess_options: SessionOptions | None = ...,
        providers: Sequence[str | tuple[str, Mapping[str, str]]] = ...,
        *,
        enable_fallback: int = ...,
        read_config_from_model: int = ...,
    ) -> None: ...
    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]: ...
    def __getattr__(self, name: str) -> Any: ...

def __getattr__(name: str) -> Any: ...
