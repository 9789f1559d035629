"""A served world for verl (0.9): an agent loop with one session per trajectory, and the tools that act in it.

Name the loop in the file of `actor_rollout_ref.rollout.agent.agent_loop_config_path`:

    - name: physai_twin
      _target_: agents.verl.TwinAgentLoop
      url: http://127.0.0.1:8800
      task: ur10e-reach

Only a program that has verl can import this module.
"""

import asyncio
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, ToolListWrap
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from agents.skills import TwinSkills


class TwinTool(BaseTool):
    """One skill as a tool; the trajectory's `TwinSkills` arrive in its `create_kwargs`, put there by the loop."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema) -> None:
        """See `verl.tools.base_tool.BaseTool`; the schema's name is that of the skill."""
        super().__init__(config, tool_schema)
        self._instances: dict[str, tuple[TwinSkills, float]] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begins one call: verl creates and releases an instance for each."""
        instance, response = await super().create(instance_id)
        skills: TwinSkills = kwargs["create_kwargs"]["skills"]
        self._instances[instance] = skills, skills.score
        return instance, response

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Carries out the skill; returns the state as text, the score gained, and no metrics.

        Raises:
            SkillError: the call is wrong; verl shows the text to the model.
            ServiceError: the service cannot be used; the loop raises it again.
        """
        skills, before = self._instances[instance_id]
        text = await asyncio.to_thread(skills.call, self.name, parameters)
        return ToolResponse(text=text), skills.score - before, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """Score of the episode, 0 to 1."""
        return self._instances[instance_id][0].score

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Ends one call; the session stays."""
        self._instances.pop(instance_id, None)


class TwinAgentLoop(ToolAgentLoop):
    """verl's tool-calling loop in a session of its own; the score of the episode is the trajectory's reward."""

    _tools: dict[tuple[str, str], list[TwinTool]] = {}  # noqa: RUF012 - shared: verl makes a loop per trajectory

    def __init__(
        self,
        *args: Any,
        url: str,
        task: str,
        twin: dict[str, Any] | None = None,
        tools: ToolListWrap | None = None,
        **kwargs: Any,
    ) -> None:
        """Nothing is sent yet.

        Args:
            args: see `verl.experimental.agent_loop.agent_loop.AgentLoopBase`.
            url: address of the service.
            task: name of a built-in task.
            twin: further options of `agents.skills.TwinSkills`, such as `access_token`.
            tools: tools beside those of the twin.
            kwargs: see `verl.experimental.agent_loop.agent_loop.AgentLoopBase`.

        Raises:
            PhysaiError: there is no such task.
        """
        self.skills = TwinSkills(url, task, **(twin or {}))
        own = self._own_tools(task, (twin or {}).get("preset"))
        super().__init__(*args, tools=ToolListWrap([*(tools.tools if tools else []), *own]), **kwargs)

    def _own_tools(self, task: str, preset: str | None) -> list[TwinTool]:
        # verl prints the schema of every tool that is made.
        return self._tools.setdefault(
            (task, preset or ""),
            [
                TwinTool({}, OpenAIFunctionToolSchema.model_validate({"type": "function", "function": schema}))
                for schema in self.skills.schemas().values()
            ],
        )

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One trajectory in one episode; `extra_info.seed` of the data set selects it, 0 if there is none.

        Raises:
            ServiceError: the service refuses the task, or could not be used.
        """
        extra: dict[str, Any] = kwargs.get("extra_info") or {}
        state = await asyncio.to_thread(self.skills.reset, int(extra.get("seed") or 0))
        try:
            messages = [dict(message) for message in kwargs["raw_prompt"]]
            messages[-1]["content"] = f"{messages[-1]['content']}\n\n{state}"
            given = {name: {"create_kwargs": {"skills": self.skills}} for name in self.skills.schemas()}
            known: dict[str, Any] = kwargs.get("tools_kwargs") or {}
            kwargs |= {"raw_prompt": messages, "tools_kwargs": {**known, **given}}
            output = await super().run(sampling_params, **kwargs)
        finally:
            await asyncio.to_thread(self.skills.close)
        if self.skills.failure is not None:
            raise self.skills.failure
        output.reward_score = self.skills.score
        return output
