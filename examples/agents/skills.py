"""One world of a service as skills that a language model calls; shared by the adapters of such frameworks.

An action lasts as long as the model says, because a model answers far too slowly for a robot's control period.
"""

import json
import math
import threading
import weakref
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from agents.reaching import Reach
from physai.sdk import PhysaiError
from physai.service import RemoteSession, ServiceError
from physai.sim import Task, load_task

MAX_S = 10.0
"""Longest action [s]."""
MOVING = 0.7
"""Share of `move_to`'s time in which the targets move; in the rest the arm settles."""
DEFAULT_SPEED = 1.0
"""Speed that `move_to` allows a joint without a velocity limit [rad/s]."""
DIGITS = 4
"""Digits behind the point in what a model reads: 0.1 mm, or 0.006 degrees."""

Vector = npt.NDArray[np.float64]


class SkillError(PhysaiError):
    """A model's call cannot be carried out, and nothing moved; the message is written for the model."""


class TwinSkills:
    """Skills of a model in one world; texts are JSON. A session is opened at the first `reset`."""

    def __init__(
        self, url: str, task: str, *, access_token: str | None = None, preset: str | None = None, **options: Any
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: address of the service.
            task: name of a built-in task.
            access_token: token of the service, if it needs one.
            preset: variant of the task.
            options: further ones of `RemoteSession.create`, such as `randomise`.

        Raises:
            PhysaiError: there is no such task or preset.
        """
        self._task, self._reach = _task(task, preset)
        known = {"access_token": access_token, "preset": preset, "worlds": 1, "interface": "targets"}
        self._create = partial(RemoteSession.create, url, task, **{**options, **known})
        self._lock = threading.Lock()
        self.session: RemoteSession | None = None
        """The open session; None before the first `reset`, and after `close`."""
        self._start = ""
        self._seed = 0
        self._now: dict[str, list[Any]] = {}
        self._steps, self._over = 0, True
        self.judged, self.succeeded = 0, 0
        """Commands or episodes judged since `reset`, and how many of them met the task's criterion."""
        self.failure: ServiceError | None = None
        """Why the service could not be used; frameworks turn errors of tools into text, this one must not get lost."""

    @property
    def over(self) -> bool:
        """Whether the episode ended, or none began."""
        return self._over

    @property
    def score(self) -> float:
        """Share of the episode's commands that met the task's criterion so far: who stops early gains nothing."""
        task = self._task
        goals = 1 if task.command_interval_s is None else round(task.episode_length_s / task.command_interval_s)
        return self.succeeded / max(1, goals)

    def schemas(self) -> dict[str, dict[str, Any]]:
        """The skills of this task by name: description and parameters as JSON Schema, as OpenAI's tools have them."""
        seconds = {"type": "number", "description": f"how long it lasts, up to {MAX_S:g} s"}
        targets = {"type": "array", "items": {"type": "number"}, "description": f"{self._targets_text()}"}
        skills: dict[str, tuple[str, dict[str, Any]]] = {
            "read_state": ("Reads the sensors and the command without moving.", {}),
            "act": ("Holds joint targets for a time.", {"targets": targets, "seconds": seconds}),
        }
        if self._reach is not None:
            text = "x, y, z [m] and quaternion w, x, y, z of the end effector in the base frame"
            pose = {"type": "array", "items": {"type": "number"}, "description": text}
            skills["move_to"] = ("Moves the end effector to a pose and settles.", {"pose": pose, "seconds": seconds})
        skills["reset"] = ("Starts the same episode again.", {})
        return {
            name: {
                "name": name,
                "description": text,
                "parameters": {"type": "object", "properties": properties, "required": list(properties)},
            }
            for name, (text, properties) in skills.items()
        }

    def reset(self, seed: int | None = None) -> str:
        """Starts an episode; equal seeds start equal ones. None for the seed before, 0 at first.

        Returns:
            The task in words and its state.

        Raises:
            ServiceError: the service refuses the task or the seed, or cannot be reached.
        """
        self._seed = self._seed if seed is None else seed
        try:
            observations = self._reset()
        except ServiceError:
            # A service closes a session that nobody used for minutes, as happens while a learner updates.
            self.close()
            observations = self._reset()
        self._steps, self._over, self.judged, self.succeeded, self.failure = 0, False, 0, 0, None
        self._see(observations)
        task = self._task
        text = f"Task: {task.summary}. Success: {task.success.text}. Targets: {self._targets_text()}."
        return f"{text}\n{self.read_state()}"

    def call(self, name: str, arguments: object) -> str:
        """Carries out a skill that a model named; calls from several threads take turns.

        Raises:
            SkillError: there is no such skill, its arguments are wrong, or the episode is over.
            ServiceError: the service cannot be used; also kept in `failure`.
        """
        known = self.schemas()
        if name not in known:
            raise SkillError(f"there is no skill {name[:64]!r}; use one of {', '.join(known)}")
        wanted = known[name]["parameters"]["required"]
        if not isinstance(arguments, Mapping) or {*cast("Mapping[object, object]", arguments)} != {*wanted}:
            raise SkillError(f"{name} takes exactly the arguments {wanted}")
        try:
            with self._lock:
                return getattr(self, name)(**arguments)
        except ServiceError as error:
            self.failure = error
            raise

    def read_state(self) -> str:
        """Time of the episode [s], newest sensor and command fields with their units, and what was judged."""
        seconds = round(self._steps * self._step_dt, DIGITS) if self.session else 0.0
        state = {"time_s": seconds, **self._now, "goals_judged": self.judged, "goals_met": self.succeeded}
        return json.dumps(state | {"episode_over": self._over})

    def act(self, targets: object, seconds: object) -> str:
        """Holds joint targets, in the order of the task's action terms [rad, m, N·m or N], for a time [s].

        Raises:
            SkillError: a value is missing or out of its bounds, or the episode is over.
            ServiceError: the service cannot be reached.
        """
        terms = self._task.contract.action.terms
        lower, upper = (np.concatenate([getattr(term, bound) for term in terms]) for bound in ("lower", "upper"))
        held = _numbers("targets", targets, lower, upper)
        return self._play(np.tile(held, (self._count(seconds), 1)))

    def move_to(self, pose: object, seconds: object) -> str:
        """Moves the end effector to a pose, position [m] and quaternion wxyz in the base frame, within a time [s].

        Raises:
            SkillError: the pose is invalid or out of reach, the time too short, or the episode is over.
            ServiceError: the service cannot be reached.
        """
        if self._reach is None:
            raise SkillError("this task has no end effector to move; use act")
        count = self._count(seconds)
        goal = _numbers("pose", pose, np.array([-10.0] * 3 + [-1.0] * 4), np.array([10.0] * 3 + [1.0] * 4))
        length = float(np.linalg.norm(goal[3:]))
        if not abs(length - 1.0) <= 0.01:
            raise SkillError(f"the quaternion's length is {length:.3f}; send a unit quaternion w, x, y, z")
        goal[3:] /= length
        start = self._joints
        end = self._reach.solve(goal, start)
        if end is None:
            raise SkillError("no joint positions near the present ones reach this pose; try one that is closer")
        speeds = [joint.velocity_limit or DEFAULT_SPEED for joint in self._task.contract.robot.joints]
        # A half: what the task's own action terms allow, so that the servos do not saturate.
        least = float((np.abs(end - start) / (0.5 * np.array(speeds))).max()) / MOVING
        if count * self._step_dt < least:
            raise SkillError(f"the way takes at least {math.ceil(least * 10) / 10:.1f} s; send more seconds")
        shares = np.minimum(np.arange(1, count + 1) / (MOVING * count), 1.0)
        return self._play(start + shares[:, None] * (end - start))

    def close(self) -> None:
        """Closes the session; `reset` opens another."""
        if self.session is not None:
            self._closing()
        self.session = None
        self._over = True

    def _reset(self) -> dict[str, npt.NDArray[Any]]:
        if self.session is None:
            self.session = self._create()
            # Frameworks drop their environments without a word.
            self._closing = weakref.finalize(self, self.session.close)
            self._start = self.session.snapshot()
        # An episode depends on the seed and on the number of episodes before it.
        self.session.restore(self._start)
        return self.session.reset(self._seed)

    @property
    def _step_dt(self) -> float:
        return self.session.description["step_dt"] if self.session is not None else math.nan

    def _targets_text(self) -> str:
        units = {joint.name: "m" if joint.kind == "prismatic" else "rad" for joint in self._task.contract.robot.joints}
        efforts = {"rad": "N*m", "m": "N"}
        bounds: list[str] = []
        for term in self._task.contract.action.terms:
            for joint, lower, upper in zip(term.joints, term.lower, term.upper, strict=True):
                unit = units[joint] if term.target_name == "joint_pos_target" else efforts[units[joint]]
                bounds.append(f"{joint} {lower:.4g} to {upper:.4g} {unit}")
        return ", ".join(bounds)

    def _count(self, seconds: object) -> int:
        (value,) = _numbers("seconds", [seconds], np.zeros(1), np.full(1, MAX_S))
        if self._over:
            raise SkillError("the episode is over; end your answer, or call reset if you have it")
        return max(1, round(float(value) / self._step_dt))

    def _play(self, rows: Vector) -> str:
        """Plays targets, one row per step, and notes what happened until the episode's end."""
        assert self.session is not None  # `_count` refused if there is none
        names: dict[str, Vector] = {}
        column = 0
        for term in self._task.contract.action.terms:
            names[term.target_name] = rows[:, None, column : column + len(term.joints)]
            column += len(term.joints)
        reply = self.session.steps(names)
        done = (reply.terminated | reply.truncated)[:, 0]
        self._over = bool(done.any())
        last = int(done.argmax()) if self._over else len(rows) - 1
        self._steps += last + 1
        self.judged += int(reply.judged[: last + 1].sum())
        self.succeeded += int(reply.succeeded[: last + 1].sum())
        self._see(reply.final[last] if self._over else reply.observations)
        return self.read_state()

    def _see(self, observations: Mapping[str, npt.NDArray[Any]]) -> None:
        contract = self._task.contract
        units = {field.name: field.unit for field in (*contract.robot.sensors, *contract.command.fields)}
        self._joints = observations["joint_pos"][0].astype(np.float64)
        self._now = {
            # JSON has no NaN, which a sensor gives without a sample.
            f"{name} [{units[name]}]": [round(x, DIGITS) if math.isfinite(x) else None for x in value[0].tolist()]
            for name, value in observations.items()
        }


@cache
def _task(name: str, preset: str | None) -> tuple[Task, Reach | None]:
    task = load_task(name, preset=preset)
    return task, Reach.of(task.contract)


def _numbers(label: str, value: object, lower: Vector, upper: Vector) -> Vector:
    """A model's list of numbers as an array within bounds.

    Raises:
        SkillError: it has another length, or an element is no number within its bounds.
    """
    given = cast("list[object]", value) if isinstance(value, list | tuple) else None
    if given is None or len(given) != len(lower):
        raise SkillError(f"{label} must be a list of {len(lower)} numbers")
    numbers: list[float] = []
    for index, (x, low, high) in enumerate(zip(given, lower.tolist(), upper.tolist(), strict=True)):
        if isinstance(x, bool) or not isinstance(x, int | float) or not low <= x <= high:
            raise SkillError(f"{label}[{index}] is {x!r:.40}, allowed are {low:.4g} to {high:.4g}")
        numbers.append(float(x))
    return np.array(numbers)
