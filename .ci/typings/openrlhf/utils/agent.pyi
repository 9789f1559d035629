from abc import ABC, abstractmethod
from typing import Any

class AgentInstanceBase(ABC):
    @abstractmethod
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    async def reset(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]: ...
    @abstractmethod
    async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]: ...

class MultiTurnAgentExecutor:
    def __init__(self, agent_instance_cls: type[AgentInstanceBase]) -> None: ...
    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = ...,
    ) -> dict[str, Any]: ...
