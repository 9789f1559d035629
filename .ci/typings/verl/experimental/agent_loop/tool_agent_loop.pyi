from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, ToolListWrap

class ToolAgentLoop:
    def __init__(self, *args: Any, tools: ToolListWrap | None = ..., **kwargs: Any) -> None: ...
    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput: ...
