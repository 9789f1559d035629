"""One engine whose worlds hold all robots of a team, and what each robot's environment sees of it."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array, Snapshot
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.teams.team import Team, require_same_field, robot_rows


def drawn_fields(team: Team) -> tuple[str, ...]:
    """Fields of the model that the members' tasks draw for each episode."""
    return tuple(dict.fromkeys(name for task in team.members.values() for name in ParameterDraws.fields(task)))


class SharedWorlds:
    """The worlds of a team: robots hand in commands and starts one by one, `drive` and `reset` apply those of all."""

    def __init__(
        self,
        team: Team,
        num_worlds: int,
        *,
        num_threads: int = 0,
        randomise: bool = True,
        engine: MujocoEngine | None = None,
    ) -> None:
        """Builds the worlds.

        Args:
            team: whose robots they hold.
            num_worlds: how many.
            num_threads: threads of the engine, 0 for one per processor.
            randomise: whether fields that the members' tasks draw may differ between worlds.
            engine: the engine to use, with the `drawn_fields` if `randomise`; one of its own if None.

        Raises:
            TaskError: a task randomises what is not of its robot alone.
        """
        fields = [ParameterDraws.fields(task) if randomise else () for task in team.members.values()]
        names = drawn_fields(team) if randomise else ()
        self.engine = engine or MujocoEngine(team.model, num_worlds, num_threads=num_threads, parameters=names)
        model = self.engine.model
        self.controls: Array = np.zeros((num_worlds, 0, model.nu))
        """Commands of the next `drive`, shape (num_worlds, physics steps, nu)."""
        self.starting = np.zeros(num_worlds, bool)
        """Worlds that the next `reset` resets."""
        # What is of no robot starts as in the model.
        self.qpos: Array = np.tile(model.qpos0, (num_worlds, 1))
        self.qvel: Array = np.zeros((num_worlds, model.nv))
        self.members = {
            name: MemberEngine(self, team, name, group) for name, group in zip(team.members, fields, strict=True)
        }

    def drive(self) -> None:
        """Advances all worlds by the commands that the robots handed in."""
        self.engine.drive(self.controls)

    def reset(self) -> None:
        """Puts the worlds for which the robots handed in starts there."""
        if self.starting.any():
            self.engine.reset(self.starting, self.qpos[self.starting], self.qvel[self.starting])
            self.starting[:] = False


class MemberEngine:
    """An `Engine` of one robot: its part of the shared worlds, under the model that it has alone."""

    def __init__(self, shared: SharedWorlds, team: Team, member: str, fields: tuple[str, ...]) -> None:
        """Finds the robot; `fields` are what its task draws.

        Raises:
            TaskError: a field is not of the robot's bodies, joints, shapes or actuators, or depends on its place.
        """
        task = team.members[member]
        self.xp: ModuleType = shared.engine.xp
        self.model: Any = task.model
        self.num_worlds = shared.engine.num_worlds
        self._shared, self._rows = shared, robot_rows(team, member)
        for field in fields:
            require_same_field(team, member, task, field, self._rows)
        self._parameters: dict[str, Array] = {
            field: np.repeat(np.array(getattr(self.model, field))[None], self.num_worlds, axis=0) for field in fields
        }

    def state(self, name: str) -> Array:
        parts = {"qpos": self._rows.qpos, "qvel": self._rows.qvel, "ctrl": self._rows.ctrl}
        return self._shared.engine.state(name)[:, parts[name]]

    def derived(self, name: str) -> Array:
        raise TaskError(f"a robot of a team has no {name}: what is derived is of the world, in which it has a place")

    def parameter(self, name: str) -> Array:
        return self._parameters[name]

    def parameters_changed(self, mask: Array) -> None:
        if mask.any():
            self._hand_in_parameters(mask)
            self._shared.engine.parameters_changed(mask)

    def _hand_in_parameters(self, mask: Array) -> None:
        worlds = np.flatnonzero(mask)[:, None]
        for field, values in self._parameters.items():
            kind = field.partition("_")[0]
            chosen = values[worlds, self._rows.own[kind]]
            self._shared.engine.parameter(field)[worlds, self._rows.team[kind]] = chosen

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        if mask.any():
            self._hand_in_parameters(mask)
            self._shared.starting |= mask
            self._shared.qpos[mask, self._rows.qpos] = qpos
            self._shared.qvel[mask, self._rows.qvel] = qvel

    def step(self, num_steps: int) -> None:
        self.drive(np.repeat(self.state("ctrl")[:, None], num_steps, axis=1))

    def drive(self, controls: Array) -> None:
        shared = self._shared
        if shared.controls.shape[1] != controls.shape[1]:
            shared.controls = np.repeat(shared.engine.state("ctrl")[:, None], controls.shape[1], axis=1)
        shared.controls[:, :, self._rows.ctrl] = controls

    def diverged(self) -> Array:
        return self._shared.engine.diverged()

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        own = {f"own.{name}": values.copy() for name, values in self._parameters.items()} if parameters else {}
        return {**self._shared.engine.snapshot(parameters=parameters), **own}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        own = {name: array for name, array in snapshot.items() if name.startswith("own.")}
        for name, array in own.items():
            self._parameters[name.removeprefix("own.")][...] = array
        self._shared.engine.restore({name: array for name, array in snapshot.items() if name not in own})
