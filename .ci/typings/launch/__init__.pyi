from typing import Any

class LaunchContext:
    is_shutdown: bool
    locals: Any

class LaunchDescriptionEntity: ...

class LaunchDescription:
    def __init__(self, entities: Any = ...) -> None: ...
