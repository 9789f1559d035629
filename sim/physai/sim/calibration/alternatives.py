"""Replay the twin with one thing changed, on the recordings that it was not fitted to.

An error below a bound does not make a twin right: where everything errs little, a model with masses 10 % off may stay
below the bound, too. So the held-out recordings choose between the twin and others that differ from it by as much as
would matter to a policy. If they prefer another, the twin is not the model of this robot.
"""

import copy
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sim.calibration.replay.drive import Responses, responses_of
from physai.sim.calibration.replay.replay import ReplayScore, score_windows
from physai.sim.robots import Robot
from physai.sim.twin.changes import delay_changes, model_changes, plausible_amounts, response_changes
from physai.sim.twin.parameters import DELAY, channel
from physai.sim.twin.record import ActuatorResponse, Alternative
from physai.sim.twin.twin import Twin

Array = npt.NDArray[np.float64]


def model_alternatives(
    robot: Robot, twin: Twin, fitted: Any, score: ReplayScore, *, num_threads: int
) -> tuple[Alternative, ...]:
    """Return what replays the windows of a score with another model, or with another delay of a servo's targets.

    Args:
        robot: the recorded robot.
        twin: gives biases and delays.
        fitted: compiled model of the twin.
        score: the replay in it.
        num_threads: threads of the simulation.
    """
    names = [parameter.name for parameter in twin.parameters]
    values = twin.values[None]
    if DELAY not in names:
        names, values = [*names, DELAY], np.append(values, [[0.0]], axis=1)
    joints = robot.spec.joint_names
    found: list[Alternative] = []

    def add(name: str, model: Any, values: Array) -> None:
        through = channel(joints, names, values)
        other = score_windows(
            model, through, robot, score.windows, seed=score.seed, num_threads=num_threads, like=score
        )
        found.append(Alternative(name=name, ratio=other.ratio_to(score)))

    for name, change in model_changes(fitted, plausible_amounts(robot)):
        model = copy.copy(fitted)
        change(model)
        mujoco.mj_setConst(model, mujoco.MjData(model))
        add(name, model, values)
    for name, delay_s in delay_changes(twin, fitted):
        moved = values.copy()
        moved[0, names.index(DELAY)] = delay_s
        add(name, copy.copy(fitted), moved)
    return tuple(found)


def command_alternatives(
    robot: Robot, twin: Twin, fitted: Any, score: ReplayScore, *, num_threads: int
) -> tuple[Alternative, ...]:
    """Return what replays the windows of a score from commands with another response of the motors; see above."""
    through = channel(robot.spec.joint_names, [parameter.name for parameter in twin.parameters], twin.values[None])
    responses = [responses_of(twin, log) for log in score.windows.logs]
    found: list[Alternative] = []
    for name, change in response_changes():
        other = score_windows(
            copy.copy(fitted),
            through,
            robot,
            score.windows,
            seed=score.seed,
            num_threads=num_threads,
            responses=[_each(change, one) for one in responses],
            like=score,
        )
        found.append(Alternative(name=name, ratio=other.ratio_to(score)))
    return tuple(found)


def _each(change: Callable[[ActuatorResponse], ActuatorResponse], responses: Responses) -> Responses:
    return [None if one is None else change(one) for one in responses]
