from typing import Any

class AgentLoopOutput:
    reward_score: float | None

class ToolListWrap:
    tools: list[Any]
    def __init__(self, tools: list[Any]) -> None: ...
