from typing import Any

class LifecycleState: ...

class TransitionCallbackReturn:
    SUCCESS: TransitionCallbackReturn
    FAILURE: TransitionCallbackReturn
    ERROR: TransitionCallbackReturn

class LifecycleNode:
    def __init__(self, node_name: str, **kwargs: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
