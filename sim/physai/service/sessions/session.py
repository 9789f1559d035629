"""One session: worlds, their snapshots and the rule that a repeated request is answered, not executed, again."""

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.service.problems import ProblemError, invalid
from physai.service.sessions.worlds import ENGINE_ERRORS, SessionWorlds, WorldsOptions, numbers
from physai.service.settings import ServiceLimits
from physai.sim.engines.protocol import Array, Snapshot

Message = dict[str, Any]
MAX_SEED = 2**53 - 1
"""Greatest seed; JSON readers round greater integers."""

MAX_LAG_S = 0.1
"""A playing session that is later than this leaves time out [s]."""
STACKED = ("reward", "terminated", "truncated", "judged", "succeeded")


class Session:
    """Worlds that one client steps. Every method may be called from any thread."""

    def __init__(self, identifier: str, options: WorldsOptions, worlds: SessionWorlds, limits: ServiceLimits) -> None:
        self.identifier = identifier
        self.token = secrets.token_urlsafe(24)
        """Secret that a request needs to use this session."""
        self.options = options
        self.created = time.time()
        self.steps = 0
        """Steps since the last reset."""
        self.world_steps = 0
        """Steps of single worlds since the session began."""
        self.used = time.monotonic()
        """When a client last used the session, on the monotonic clock [s]."""
        self.connections = 0
        self.lost: float | None = None
        """When its last WebSocket broke off, or None [s]."""
        self._worlds = worlds
        self._limits = limits
        self._lock = threading.Lock()
        self._snapshots: dict[str, tuple[Snapshot, Message]] = {}
        self._record: Callable[[npt.NDArray[np.float64]], None] | None = None
        self._held: dict[str, Array] | None = None
        self._played_until = 0.0
        self._last_sequence = 0
        self._last_reply: Message = {}
        self._observations: Message = {"observations": worlds.first}
        self._operations: dict[str, Callable[[Message], Message]] = {
            "reset": self._reset,
            "step": self._step,
            "steps": self._steps,
            "state": self._state,
            "play": self._play,
            "pause": self._pause,
            "snapshot": self._snapshot,
            "restore": self._restore,
        }

    @property
    def model(self) -> mujoco.MjModel:
        """Nominal model of the worlds."""
        return self._worlds.model

    def positions(self, worlds: int) -> npt.NDArray[np.float64]:
        """Generalised positions of the first worlds now, shape (worlds, nq); looking is no use of the session."""
        with self._lock:
            return np.asarray(self._worlds.state()["qpos"][:worlds], np.float64)

    def record(self, add: Callable[[npt.NDArray[np.float64]], None]) -> None:
        """Passes the first world's positions to a function, now and after each step, in place of the one before."""
        with self._lock:
            self._record = add
            add(np.asarray(self._worlds.state()["qpos"][0], np.float64))

    def advance(self) -> None:
        """Plays until now, in real time; a session that has fallen behind leaves time out."""
        with self._lock:
            now = time.monotonic()
            dt: float = self._worlds.step_dt
            self._played_until = max(self._played_until, now - max(MAX_LAG_S, dt))
            while self._held is not None and self._played_until + dt <= now:
                self._played_until += dt
                try:
                    self._observations = {"observations": self._worlds.step(self._held)["observations"]}
                    self._count_step()
                except BaseException as error:
                    # Or it would fail again a moment later, and for ever.
                    self._held = None
                    if not isinstance(error, (PhysaiError, *ENGINE_ERRORS)):
                        raise

    @property
    def playing(self) -> bool:
        """Whether `advance` has anything to do."""
        return self._held is not None

    def describe(self) -> Message:
        """Facts about the session for clients without its token."""
        return {
            "id": self.identifier,
            "task": self.options.task,
            "robot": self.options.robot and self.options.robot.name,
            "worlds": self.options.worlds,
            "seed": self.options.seed,
            "steps": self.steps,
            "simulation_state": "paused" if self._held is None else "playing",
            "step_dt": self._worlds.step_dt,
            "created": self.created,
            "connections": self.connections,
            **self._worlds.describe(),
        }

    def handle(self, message: Message) -> Message:
        """Carries out one request and returns its reply.

        A request may carry `seq`, a number that grows by one with every request. A client that lost the reply sends the
        same request again and gets the stored reply; nothing is executed twice.

        Raises:
            ProblemError: the request is invalid; the worlds are as before.
        """
        sequence = message.get("seq")
        with self._lock:
            self.used = time.monotonic()
            if sequence is None:
                return self._execute(message)
            if type(sequence) is not int:
                raise invalid(f"seq must be an integer, got {sequence!r}")
            if sequence == self._last_sequence:
                if "refused" in self._last_reply:
                    raise cast("ProblemError", self._last_reply["refused"])
                return self._last_reply
            if sequence != self._last_sequence + 1:
                raise ProblemError(
                    409,
                    "out-of-sequence",
                    f"seq is {sequence}, expected {self._last_sequence + 1}; another client may use this session",
                )
            # A refused request keeps its number: sent again, it is refused again.
            self._last_sequence = sequence
            try:
                self._last_reply = self._execute(message)
            except ProblemError as problem:
                self._last_reply = {"refused": problem}
                raise
            return self._last_reply

    def _execute(self, message: Message) -> Message:
        operation = message.get("op")
        if not isinstance(operation, str) or operation not in self._operations:
            raise invalid(f"op must be one of {', '.join(self._operations)}, got {operation!r}")
        try:
            return self._operations[operation](message)
        except ProblemError:
            raise
        except (PhysaiError, *ENGINE_ERRORS) as error:
            raise invalid(" ".join(str(error).split())) from error

    def _reset(self, message: Message) -> Message:
        seed = message.get("seed")
        if seed is not None and (type(seed) is not int or not 0 <= seed <= MAX_SEED):
            raise invalid(f"seed must be an integer from 0 to 2^53 - 1, got {seed!r}")
        self._observations = {"observations": self._worlds.reset(seed)}
        self.steps = 0
        return self._observations

    def _play(self, message: Message) -> Message:
        """Steps in real time from now on, holding these actions; sent again, it replaces the actions."""
        actions = _actions(message)
        if self._held is None:
            self._played_until = time.monotonic()
        # The first step checks the actions, and is the answer.
        reply = self._worlds.step(actions)
        self._count_step()
        self._held = actions
        return reply

    def _pause(self, message: Message) -> Message:
        self._held = None
        return self._observations | {"steps": self.steps}

    def _require_paused(self) -> None:
        if self._held is not None:
            raise ProblemError(409, "playing", "the session plays in real time; pause it before you step it")

    def _step(self, message: Message) -> Message:
        self._require_paused()
        reply = self._worlds.step(_actions(message))
        self._count_step()
        self._observations = {"observations": reply["observations"]}
        return reply

    def _steps(self, message: Message) -> Message:
        """Steps with one action per step, first axis the step; observations are those after the last one."""
        self._require_paused()
        actions = _actions(message)
        arrays = [array for value in actions.values() if (array := numbers(value)) is not None and array.ndim]
        lengths = {len(value) for value in arrays}
        if len(arrays) != len(actions) or len(lengths) != 1 or not (count := lengths.pop()):
            raise invalid("each action of `steps` needs one row per step as first axis, the same number in all")
        if count * self._worlds.step_dt > self._limits.simulated_s:
            most = int(self._limits.simulated_s / self._worlds.step_dt)
            raise invalid(f"{count} steps exceed {self._limits.simulated_s:g} simulated seconds; send at most {most}")
        if not all(np.isfinite(array).all() for array in arrays):
            raise invalid("an action is not finite; no world was stepped")
        replies: list[Message] = []
        for index in range(count):
            replies.append(self._worlds.step({name: value[index] for name, value in actions.items()}))
            self._count_step()
        reply = replies[-1] | {name: np.stack([r[name] for r in replies]) for name in STACKED}
        reply["final"] = [r.get("final") for r in replies]
        self._observations = {"observations": reply["observations"]}
        return reply

    def _count_step(self) -> None:
        self.steps += 1
        self.world_steps += self.options.worlds
        if self._record is not None:
            self._record(np.asarray(self._worlds.state()["qpos"][0], np.float64))

    def _state(self, message: Message) -> Message:
        return {"steps": self.steps, **self._worlds.state()}

    def _snapshot(self, message: Message) -> Message:
        if len(self._snapshots) >= self._limits.snapshots:
            oldest = next(iter(self._snapshots))
            del self._snapshots[oldest]
        name = secrets.token_hex(8)
        self._snapshots[name] = (self._worlds.snapshot(), self._observations | {"steps": self.steps})
        return {"snapshot": name, "kept": list(self._snapshots)}

    def _restore(self, message: Message) -> Message:
        name = message.get("snapshot")
        if not isinstance(name, str) or name not in self._snapshots:
            known = ", ".join(self._snapshots) or "none"
            raise ProblemError(404, "unknown-snapshot", f"snapshot {name!r:.80} is not kept here; kept: {known}")
        snapshot, observed = self._snapshots[name]
        self._worlds.restore(snapshot)
        self.steps = observed["steps"]
        self._observations = observed
        return observed


def _actions(message: Message) -> dict[str, Array]:
    actions = message.get("actions")
    if not isinstance(actions, dict):
        raise invalid(f"a step needs `actions`, a map of arrays by name, got {type(actions).__name__}")
    return cast("dict[str, Array]", actions)
