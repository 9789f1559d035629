"""Named tools with which a language-model agent reads and moves a robot in a session."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from physai.service.problems import ProblemError, invalid
from physai.service.sessions.json_values import as_json
from physai.service.sessions.session import Message, Session

MAX_SECONDS = 5.0
"""Simulated time of one call [s]."""
POSITIONS = "joint_pos_target"
"""Action of joint position targets [rad or m]."""


class SkillTools:
    """Tools over one session of one world: `read_state`, `act`, and `move_to` where joints take position targets."""

    def __init__(self, session: Session) -> None:
        """Reads from the session's description which joints the tools move."""
        description = session.describe()
        self.over = True
        self._session = session
        self._step_dt: float = description["step_dt"]
        self._joints: dict[str, list[str]] = {name: spec["joints"] for name, spec in description["actions"].items()}
        self._observations: Message = {}
        self._targets: dict[str, npt.NDArray[np.float64]] = {}
        self._measured: list[str] = description["observations"]["joint_pos"]["joints"]
        self._succeeded = False
        self._tools: dict[str, tuple[Message, Callable[[Message], float]]] = {"read_state": (_READ, self._read)}
        joints = [joint for names in self._joints.values() for joint in names]
        unit = "rad or m" if POSITIONS in self._joints else "N·m or N"
        self._tools["act"] = (_moving("act", f"Holds joint commands [{unit}] for some time", joints), self._act)
        if POSITIONS in self._joints:
            about = "Moves joints at constant speed to positions [rad or m]; the others stay"
            self._tools["move_to"] = (_moving("move_to", about, self._joints[POSITIONS]), self._move_to)

    def begin(self, observations: Mapping[str, npt.NDArray[Any]]) -> Message:
        """Takes the first observations of an episode and returns the state."""
        self.over = self._succeeded = False
        self._observations = {name: array[0] for name, array in observations.items()}
        # Until a tool moves it, the robot stays where it is.
        measured = dict(zip(self._measured, self._observations["joint_pos"], strict=True))
        self._targets = {
            name: np.array([measured[joint] if name == POSITIONS else 0.0 for joint in joints])
            for name, joints in self._joints.items()
        }
        return self._state()

    def describe(self) -> list[Message]:
        """The tools as the Model Context Protocol describes them."""
        return [description for description, _ in self._tools.values()]

    def call(self, name: str, arguments: Any) -> tuple[Message, float]:
        """Calls a tool; returns the state afterwards and the sum of the task's rewards.

        Raises:
            ProblemError: there is no such tool, its arguments do not fit, or no episode runs.
        """
        if name not in self._tools:
            raise ProblemError(
                404, "unknown-tool", f"there is no tool {name!r:.80}; there are {', '.join(self._tools)}"
            )
        if not isinstance(arguments, dict):
            raise invalid(f"arguments must be an object, got {type(arguments).__name__}")
        description, tool = self._tools[name]
        given = cast("Message", arguments)
        unknown = sorted(set(given) - set(description["inputSchema"]["properties"]))
        if unknown:
            raise invalid(f"tool {name} has no argument {unknown[0]!r:.80}; it takes {description['inputSchema']}")
        if self.over:
            raise ProblemError(409, "episode-over", "no episode runs; reset first")
        reward = tool(given)
        return self._state(), reward

    def _state(self) -> Message:
        values = as_json(self._observations)
        return {
            "time": round(self._session.steps * self._step_dt, 6),
            "joints": [joint for names in self._joints.values() for joint in names],
            "observations": values,
            "succeeded": self._succeeded,
            "done": self.over,
        }

    def _read(self, _: Message) -> float:
        return 0.0

    def _act(self, arguments: Message) -> float:
        goal = self._goal(arguments)
        return self._run(lambda _: goal, _seconds(arguments))

    def _move_to(self, arguments: Message) -> float:
        start, goal = self._targets, self._goal(arguments)
        return self._run(lambda done: {n: start[n] + done * (goal[n] - start[n]) for n in goal}, _seconds(arguments))

    def _goal(self, arguments: Message) -> dict[str, npt.NDArray[np.float64]]:
        goal = {name: targets.copy() for name, targets in self._targets.items()}
        given: Any = arguments.get("targets", {})
        if not isinstance(given, dict):
            raise invalid(f"targets must be an object of numbers by joint, got {type(given).__name__}")
        for joint, value in cast("dict[str, Any]", given).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise invalid(f"target of {joint!r:.80} must be a finite number, got {value!r:.40}")
            found = [(name, joints.index(joint)) for name, joints in self._joints.items() if joint in joints]
            if not found:
                raise invalid(f"there is no joint {joint!r:.80}; there are {self._joints}")
            for name, index in found:
                goal[name][index] = value
        return goal

    def _run(self, targets: Callable[[float], dict[str, npt.NDArray[np.float64]]], seconds: float) -> float:
        steps = max(1, round(seconds / self._step_dt))
        total = 0.0
        for step in range(1, steps + 1):
            self._targets = targets(step / steps)
            actions = {name: row[np.newaxis] for name, row in self._targets.items()}
            reply = self._session.handle({"op": "step", "actions": actions})
            total += float(reply["reward"][0])
            self.over = bool(reply["terminated"][0] or reply["truncated"][0])
            self._succeeded = bool(reply["succeeded"][0])
            observed = reply["final"] if self.over else reply["observations"]
            self._observations = {name: array[0] for name, array in observed.items()}
            if self.over:
                break
        return total


def _seconds(arguments: Message) -> float:
    seconds = arguments.get("seconds", 0.5)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.0 < seconds <= MAX_SECONDS:
        raise invalid(f"seconds must be a number above 0 and at most {MAX_SECONDS:g}, got {seconds!r:.40}")
    return float(seconds)


def _moving(name: str, about: str, joints: list[str]) -> Message:
    targets = {"type": "object", "properties": {joint: {"type": "number"} for joint in joints}}
    duration = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS, "default": 0.5}
    return {
        "name": name,
        "description": f"{about}. Returns the state afterwards.",
        "inputSchema": {"type": "object", "properties": {"targets": targets, "seconds": duration}},
    }


_READ: Message = {
    "name": "read_state",
    "description": "Reads sensors and commands of the robot; takes no time.",
    "inputSchema": {"type": "object", "properties": {}},
}


def as_text(result: Message) -> str:
    """A tool's result as the text that a language model reads."""
    return json.dumps(result, separators=(",", ":"))
