from typing import Any

from launch import LaunchDescriptionEntity

class LifecycleNode(LaunchDescriptionEntity):
    def __init__(self, **given: Any) -> None: ...

def __getattr__(name: str) -> Any: ...
