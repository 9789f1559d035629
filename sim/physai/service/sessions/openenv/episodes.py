"""Episodes of an OpenEnv client: a session behind the protocol's reset, step and state.

Three profiles serve each task: `single`, one world with plain JSON; `batch`, many worlds with base64 arrays; and
`skills`, one world behind named tools for language-model agents.
"""

import base64
import binascii
import math
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from physai.service.problems import ProblemError, invalid
from physai.service.sessions.json_values import as_json
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.openenv.tools import SkillTools
from physai.service.sessions.session import MAX_SEED, Message, Session
from physai.service.sessions.worlds import WorldsOptions

Profile = Literal["single", "batch", "skills"]
FLAGS = ("terminated", "truncated", "succeeded")


class Episode(Protocol):
    """One client's environment."""

    session: Session

    def reset(self, data: Message) -> Message:
        """Starts an episode; returns `observation`, `reward`, `done` and `metadata`."""
        ...

    def step(self, data: Message) -> Message:
        """Acts; returns as `reset` does."""
        ...


def open_episode(manager: SessionManager, task: str, profile: Profile, *, worlds: int = 1) -> Episode:
    """Creates a session for a client.

    Raises:
        ProblemError: there is no such task, or the service is full.
    """
    # Clients that name no seed must not all see the same episodes.
    session = manager.create(WorldsOptions(task=task, worlds=worlds, seed=secrets.randbits(53)), rewarded=True)
    return EPISODES[profile](session)


def state(episode: Episode) -> Message:
    """The protocol's `state`."""
    session = episode.session
    return {
        "episode_id": session.identifier,
        "step_count": session.steps,
        "task": session.options.task,
        "worlds": session.options.worlds,
        "step_dt": session.describe()["step_dt"],
    }


def start(session: Session, data: Message) -> Message:
    """Resets a session with the seed of a reset message, if it has one; returns the observations by name."""
    seed = data.get("seed")
    if seed is not None and (type(seed) is not int or not 0 <= seed <= MAX_SEED):
        raise invalid(f"seed must be an integer from 0 to 2^53 - 1, got {seed!r:.40}")
    return session.handle({"op": "reset"} | ({} if seed is None else {"seed": seed}))["observations"]


class SingleEpisode:
    """One world: actions and observations are lists of numbers by name."""

    def __init__(self, session: Session) -> None:
        """Takes the session over; it has one world."""
        self.session = session
        self._over = True

    def reset(self, data: Message) -> Message:
        """Starts an episode; `seed` makes it repeatable."""
        observations = start(self.session, data)
        self._over = False
        return _single(observations, None, None)

    def step(self, data: Message) -> Message:
        """Advances the world by one step of the task.

        Raises:
            ProblemError: the episode is over, or the action does not fit.
        """
        if self._over:
            raise ProblemError(409, "episode-over", "no episode runs; send reset")
        reply = self.session.handle({"op": "step", "actions": _rows(data)})
        self._over = bool(reply["terminated"][0] or reply["truncated"][0])
        # The world has begun its next episode; the client sees the last observation of this one.
        return _single(reply["final"] if self._over else reply["observations"], float(reply["reward"][0]), reply)


def _rows(data: Message) -> dict[str, npt.NDArray[np.float64]]:
    actions: dict[str, npt.NDArray[np.float64]] = {}
    for name, value in data.items():
        if name == "metadata":
            continue
        try:
            actions[name] = np.asarray([value], np.float64)
        except (ValueError, TypeError, OverflowError):
            raise invalid(f"action {name[:80]!r} is no list of numbers") from None
    return actions


def _single(observations: Mapping[str, Any], reward: float | None, reply: Message | None) -> Message:
    flags = {} if reply is None else {name: bool(reply[name][0]) for name in FLAGS}
    done = flags.get("terminated", False) or flags.get("truncated", False)
    values = as_json({name: array[0] for name, array in observations.items()})
    # Typed clients read metadata inside the observation, generic ones beside it.
    return {
        "observation": values | {"metadata": flags},
        "reward": reward if reward is None or math.isfinite(reward) else None,
        "done": done,
        "metadata": flags,
    }


class BatchEpisode:
    """Many worlds, which start anew by themselves: arrays of float32 as base64, first axis the world."""

    def __init__(self, session: Session) -> None:
        """Takes the session over."""
        self.session = session

    def reset(self, data: Message) -> Message:
        """Starts an episode in each world."""
        observations = start(self.session, data)
        return {"observation": _encode(observations), "reward": None, "done": False, "metadata": {}}

    def step(self, data: Message) -> Message:
        """Advances all worlds by one step, or by one step per row of arrays with one more axis in front.

        Raises:
            ProblemError: an array does not fit.
        """
        actions = {name: _decode(name, value) for name, value in data.items() if name != "metadata"}
        shapes = self.session.describe()["actions"]
        many = any(name in shapes and a.ndim == 2 + len(shapes[name]["shape"]) for name, a in actions.items())
        reply = self.session.handle({"op": "steps" if many else "step", "actions": actions})
        arrays = {name: reply[name] for name in ("reward", *FLAGS)}
        observation = _encode(reply["observations"]) | _encode(arrays)
        if reply.get("final") is not None and not many:
            observation["final"] = _encode(reply["final"])
        reward = float(reply["reward"].mean())
        return {
            "observation": observation,
            "reward": reward if math.isfinite(reward) else None,
            "done": False,
            "metadata": {},
        }


def _encode(arrays: Mapping[str, npt.NDArray[Any]]) -> Message:
    encoded: Message = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            array = array.astype("<f4")
        data = base64.b64encode(np.ascontiguousarray(array).data).decode("ascii")
        encoded[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}
    return encoded


def _decode(name: str, value: Any) -> npt.NDArray[np.float32]:
    try:
        given = cast("Message", value)
        if set(given) != {"dtype", "shape", "data"} or given["dtype"] != "<f4":
            raise ValueError
        flat: npt.NDArray[np.float32] = np.frombuffer(base64.b64decode(given["data"], validate=True), "<f4")
        return flat.reshape(cast("list[int]", list(given["shape"])))
    except (ValueError, TypeError, binascii.Error):
        raise invalid(
            f"action {name[:80]!r} must be {{'dtype': '<f4', 'shape': [worlds, values], 'data': base64 of the bytes}}"
        ) from None


class SkillEpisode:
    """One world behind named tools."""

    def __init__(self, session: Session) -> None:
        """Takes the session over; it has one world."""
        self.session = session
        self.tools = SkillTools(session)

    def reset(self, data: Message) -> Message:
        """Starts an episode; the observation is what the tool `read_state` returns."""
        observations = start(self.session, data)
        return {"observation": self.tools.begin(observations), "reward": None, "done": False, "metadata": {}}

    def step(self, data: Message) -> Message:
        """Lists the tools (`type` is `list_tools`) or calls one (`call_tool`, `tool_name`, `arguments`).

        Raises:
            ProblemError: the type is another one.
        """
        if data.get("type") == "list_tools":
            observation: Message = {"tools": self.tools.describe()}
            return {"observation": observation, "reward": None, "done": self.tools.over, "metadata": {}}
        if data.get("type") != "call_tool" or not isinstance(data.get("tool_name"), str):
            raise invalid(
                "an action is {'type': 'list_tools'} or {'type': 'call_tool', 'tool_name': …, 'arguments': {…}}"
            )
        observation = {"tool_name": data["tool_name"], "result": None, "error": None}
        reward = None
        try:
            observation["result"], reward = self.tools.call(data["tool_name"], data.get("arguments") or {})
        except ProblemError as problem:
            kind = {404: "tool_not_found", 422: "invalid_args"}.get(problem.status, "execution_error")
            observation["error"] = {"error_type": kind, "message": problem.detail}
        return {"observation": observation, "reward": reward, "done": self.tools.over, "metadata": {}}


EPISODES: dict[Profile, Callable[[Session], Episode]] = {
    "single": SingleEpisode,
    "batch": BatchEpisode,
    "skills": SkillEpisode,
}
