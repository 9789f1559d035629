"""Replay the twin with one thing changed, on the recordings that it was not fitted to.

An error below a bound does not make a twin right: where everything errs little, a model with masses 10 % off may stay
below the bound, too. So the held-out recordings choose between the twin and others that differ from it by as much as
would matter to a policy. If they prefer another, the twin is not the model of this robot.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import mujoco
import numpy as np

from physai.compute.pool import InProcess, Workers, compute_all
from physai.compute.ray.ray_pool import RayWorkers
from physai.sdk.base.errors import PhysaiError
from physai.sim.robots import Robot
from physai.twin.calibration.replay.drive import Responses, responses_of
from physai.twin.calibration.replay.replay import ReplayScore, score_windows
from physai.twin.claims.changes import Change, delay_changes, model_changes, plausible_amounts, response_changes
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import ActuatorResponse, Alternative
from physai.twin.parameters.parameters import DELAY, channel


@dataclass(frozen=True)
class Replays:
    """Inputs that all alternatives of a twin share; picklable for workers."""

    robot: Robot
    twin: Twin
    fitted: Any
    """Compiled model of the twin."""
    score: ReplayScore
    """The replay in it."""
    num_threads: int

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the robot's editable model, which MuJoCo cannot pickle and no replay needs."""
        robot = {field.name: getattr(self.robot, field.name) for field in fields(Robot) if field.name != "model_spec"}
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "robot": robot}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what `__getstate__` returned, with an empty editable model."""
        self.__dict__.update(state, robot=Robot(**state["robot"], model_spec=mujoco.MjSpec()))

    def alternative(
        self, name: str, model: Any, *, delay_s: float | None = None, responses: Sequence[Responses] | None = None
    ) -> Alternative:
        """Replay the windows with another model, another delay of the commands or other responses of the motors."""
        names = [parameter.name for parameter in self.twin.parameters]
        values = self.twin.values[None].copy()
        if delay_s is not None and DELAY not in names:
            names, values = [*names, DELAY], np.append(values, [[0.0]], axis=1)
        if delay_s is not None:
            values[0, names.index(DELAY)] = delay_s
        through = channel(self.robot.spec.joint_names, names, values)
        other = score_windows(
            model,
            through,
            self.robot,
            self.score.windows,
            seed=self.score.seed,
            num_threads=self.num_threads,
            responses=responses,
            like=self.score,
        )
        return Alternative(name=name, ratio=other.ratio_to(self.score))


def model_alternatives(
    robot: Robot, twin: Twin, fitted: Any, score: ReplayScore, *, num_threads: int, ray: str | None = None
) -> tuple[Alternative, ...]:
    """Return what replays the windows of a score with another model, or with another delay of a servo's targets.

    Args:
        robot: the recorded robot.
        twin: gives biases and delays.
        fitted: compiled model of the twin.
        score: the replay in it.
        num_threads: threads of the simulation, without Ray.
        ray: cluster that replays, an alternative per processor, see `physai.compute.ray.cluster.connected`; None to
            replay in this process. The result is the same.
    """
    replays = Replays(robot, twin, fitted, score, num_threads if ray is None else 1)
    count = len(_model_changes(replays)) + len(_delays(replays))
    return _replayed(model_alternative, replays, count, ray)


def _model_changes(replays: Replays) -> list[tuple[str, Change]]:
    return list(model_changes(replays.fitted, plausible_amounts(replays.robot)))


def _delays(replays: Replays) -> list[tuple[str, float]]:
    return list(delay_changes(replays.twin, replays.fitted))


def model_alternative(replays: Replays, number: int) -> Alternative:
    """Alternative of that number: the changed models, then the changed delays."""
    changes = _model_changes(replays)
    model = copy.copy(replays.fitted)
    if number >= len(changes):
        name, delay_s = _delays(replays)[number - len(changes)]
        return replays.alternative(name, model, delay_s=delay_s)
    name, change = changes[number]
    change(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return replays.alternative(name, model)


def command_alternatives(
    robot: Robot, twin: Twin, fitted: Any, score: ReplayScore, *, num_threads: int, ray: str | None = None
) -> tuple[Alternative, ...]:
    """Return what replays the windows of a score from commands with another response of the motors; see above."""
    replays = Replays(robot, twin, fitted, score, num_threads if ray is None else 1)
    return _replayed(command_alternative, replays, len(list(response_changes())), ray)


def command_alternative(replays: Replays, number: int) -> Alternative:
    """Alternative of that number: another response of the motors."""
    name, change = list(response_changes())[number]
    responses = [_each(change, responses_of(replays.twin, log)) for log in replays.score.windows.logs]
    return replays.alternative(name, copy.copy(replays.fitted), responses=responses)


def _replayed(
    work: Callable[[Replays, int], Alternative], replays: Replays, count: int, ray: str | None
) -> tuple[Alternative, ...]:
    """All alternatives, in their order."""
    if ray is None:
        workers: Workers[int, Alternative] = InProcess(work, replays)
    else:
        workers = RayWorkers(work, replays, ray, most=max(1, count))
    found: dict[int, Alternative] = {}
    for number, result in compute_all(workers, range(count)) if count else ():
        if isinstance(result, PhysaiError):
            raise result
        found[number] = result
    return tuple(found[number] for number in range(count))


def _each(change: Callable[[ActuatorResponse], ActuatorResponse], responses: Responses) -> Responses:
    return [None if one is None else change(one) for one in responses]
