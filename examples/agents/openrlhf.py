"""A served world for OpenRLHF (0.11): an agent whose answers call skills as Hermes and Qwen models write them.

    <tool_call>{"name": "act", "arguments": {"targets": [0.5], "seconds": 1.0}}</tool_call>

Only a program that has OpenRLHF can import this module.
"""

import asyncio
import json
import re
from typing import Any, ClassVar

import torch
from openrlhf.utils.agent import AgentInstanceBase

from agents.skills import SkillError, TwinSkills

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
MAX_CALLS = 8
"""Calls of one answer that are carried out."""


class TwinAgent(AgentInstanceBase):
    """One episode in a session of its own; subclass it with `url` and `task`, because OpenRLHF passes no arguments.

    The reward of a step is the score that it gained, so that they add up to the score of the episode, 0 to 1.
    """

    url: ClassVar[str] = "http://127.0.0.1:8800"
    """Address of the service."""
    task: ClassVar[str]
    """Name of a built-in task."""
    options: ClassVar[dict[str, Any]] = {}
    """Further options of `agents.skills.TwinSkills`, such as `access_token`."""
    max_turns: ClassVar[int] = 16
    """Answers after which the episode ends."""
    feedback: ClassVar[str] = "\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    """What the model reads after its answer, which ends with its own end token; this one is ChatML."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Nothing is sent yet.

        Raises:
            PhysaiError: there is no such task.
        """
        self._skills = TwinSkills(self.url, self.task, **self.options)
        self._turns = 0

    async def reset(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Starts the episode that the label, an integer, selects; 0 for another label.

        Returns:
            The states; the `observation` is the prompt, in which the task and its state take the place of `{state}`.

        Raises:
            ServiceError: the service refuses the task, or cannot be reached.
        """
        label = str(states.get("label") or "")
        seed = int(label) if re.fullmatch(r"[0-9]{1,15}", label) else 0
        state = await asyncio.to_thread(self._skills.reset, seed)
        self._turns = 0
        return {**states, "observation": states["observation"].replace("{state}", state)}

    async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Carries out the calls in the model's answer; an answer without calls ends the episode.

        Returns:
            `rewards` and `scores`, tensors without dimensions; `environment_feedback`, `done`, and `extra_logs`.

        Raises:
            ServiceError: the service cannot be used.
        """
        skills, before = self._skills, self._skills.score
        self._turns += 1
        calls = CALL.findall(state_dict["action_text"])[:MAX_CALLS]
        texts = [f"<tool_response>\n{await asyncio.to_thread(_carry_out, skills, c)}\n</tool_response>" for c in calls]
        done = not calls or skills.over or self._turns >= self.max_turns
        result = {
            "rewards": torch.tensor(skills.score - before),
            "scores": torch.tensor(skills.score),
            "environment_feedback": "" if done else self.feedback.format("\n".join(texts)),
            "done": done,
            "extra_logs": {
                "goals_judged": torch.tensor(float(skills.judged)),
                "goals_met": torch.tensor(float(skills.succeeded)),
            },
        }
        if done:
            await asyncio.to_thread(skills.close)
        return result


def _carry_out(skills: TwinSkills, text: str) -> str:
    """Text that the model reads after one call."""
    try:
        call = json.loads(text)
        name, arguments = call["name"], call["arguments"]
    # json raises ValueError for bad text and for huge integers, RecursionError for deep nesting.
    except (ValueError, TypeError, KeyError, RecursionError):
        return 'error: a call is JSON: {"name": ..., "arguments": {...}}'
    try:
        return skills.call(str(name), arguments)
    except SkillError as error:
        return f"error: {error}"
