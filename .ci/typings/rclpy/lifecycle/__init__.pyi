from typing import Any

class LifecycleState: ...

class TransitionCallbackReturn:
    SUCCESS: TransitionCallbackReturn
    FAILURE: TransitionCallbackReturn
    ERROR: TransitionCallbackReturn

class LifecycleNodeMixin:
    def __init__(self, **kwargs: Any) -> None: ...
