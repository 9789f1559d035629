"""Offset of the encoders in each recorded run, estimated from the run under every draw of a twin's parameters."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sim.engines.mujoco import quiet_model
from physai.sim.tasks.task import SensorModel, Task
from physai.twin.calibration.replay.drive import choose_drive
from physai.twin.calibration.replay.random_effects import RandomEffects
from physai.twin.calibration.replay.replay import OFFSET_WINDOWS, OFFSET_WINDOWS_EACH, STARTS, WINDOW_S, windows_of
from physai.twin.calibration.replay.simulate import Simulator
from physai.twin.calibration.replay.windows import Windows
from physai.twin.logs import LogError, RobotLog
from physai.twin.model.conditions import conditions, task_under
from physai.twin.model.twin import Twin
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import DELAY, OFFSET_STD, Drive, LogChannel, channel
from physai.twin.parameters.servo import is_servo

Array = npt.NDArray[np.float64]

OFFSET_STREAM = 0x5EED_0FF5E7
"""Seed of the draws of offsets."""


@dataclass(frozen=True)
class RunOffsets:
    """Offsets of L runs of a robot with J joints under K draws of a twin's parameters, measured minus true."""

    mean: Array
    """Most likely offset of each run under each draw [rad or m], shape (K, L, J)."""
    covariance: Array
    """Of each run's offset given the parameters, shape (L, J, J)."""

    def drawn(self, seed: int) -> Array:
        """Return offsets within their errors, shape (K · L, J), all runs of a draw one after another."""
        rng = np.random.default_rng([seed, OFFSET_STREAM])
        square, turn = np.linalg.eigh(self.covariance)
        root = turn * np.sqrt(np.maximum(square, 0.0))[:, None]
        noise = rng.standard_normal(self.mean.shape)
        return (self.mean + np.einsum("lij,klj->kli", root, noise)).reshape(-1, self.mean.shape[2])

    @property
    def std(self) -> Array:
        """Standard deviation of each run's offset given the parameters [rad or m], shape (L, J)."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))


def run_offsets(
    twin: Twin,
    task: Task,
    logs: Sequence[RobotLog],
    values: Array,
    tell: Callable[[float], None] = lambda share: None,
) -> RunOffsets | None:
    """Estimate the encoders' offset in each run; None where an episode of the twin has none, or servos are commanded.

    A run's offset b has the prior that episodes of the twin draw it from, N(m, S). Replayed in short windows under a
    draw of the parameters, the run adds to it what gravity shows: the errors have the information I about b and are
    least at b'. The most likely offset is m + C·I·(b' - m), with the covariance C = S·(1 + I·S)^-1. A run that cannot
    be replayed keeps the prior.

    Args:
        twin: the twin.
        task: the policy's task.
        logs: recordings of L runs.
        values: draws of the twin's parameters, shape (K, P).
        tell: called with the share that is done, from 0 to 1.
    """
    model: Any = task.model
    if any(is_servo(model, actuator) for actuator in range(int(model.nu))):
        # A servo's target has its encoder's offset, too, which an episode does not give it.
        return None
    mean, spread = prior_offset(task, twin)
    if not (mean.any() or spread.any()):
        return None
    prior = np.diag(spread**2)
    runs, joints = len(logs), len(mean)
    found = RunOffsets(np.tile(mean, (len(values), runs, 1)), np.tile(prior, (runs, 1, 1)))
    replayed = _replayed(twin, task, logs) if spread.any() else []
    if not replayed:
        return found
    shown, information = _shown([logs[run] for run in replayed], twin, task, values, tell)
    covariance = np.linalg.solve(
        (np.eye(joints) + information @ prior).swapaxes(1, 2), np.broadcast_to(prior, information.shape)
    ).swapaxes(1, 2)
    found.covariance[replayed] = covariance
    found.mean[:, replayed] += np.einsum("lij,klj->kli", covariance, shown - information @ mean)
    return found


def prior_offset(task: Task, twin: Twin) -> tuple[Array, Array]:
    """Return mean and standard deviation of the offsets that episodes of a task in a twin draw, shape (J,) each."""
    sensors = task_under(task, twin, conditions(task, twin)["calibrated"]).sensors
    own, joints = sensors.get("joint_pos", SensorModel()), len(task.contract.robot.joints)
    mean, reach = (np.array(np.broadcast_to(np.asarray(one, np.float64), joints)) for one in (own.bias_mean, own.bias))
    # Uniform within ±reach.
    return mean, reach / np.sqrt(3.0)


def _replayed(twin: Twin, task: Task, logs: Sequence[RobotLog]) -> list[int]:
    """Return the runs that can be replayed: those with usable windows, of a robot whose input they contain."""
    usable: list[int] = []
    for number, log in enumerate(logs):
        try:
            _windows(task, [log])
            choose_drive(task.robot, [log])
        except LogError:
            continue
        usable.append(number)
    return usable


def _windows(task: Task, logs: Sequence[RobotLog]) -> Windows:
    return windows_of(task.robot, logs, WINDOW_S, stride_s=WINDOW_S / STARTS)


def _shown(
    logs: Sequence[RobotLog], twin: Twin, task: Task, values: Array, tell: Callable[[float], None]
) -> tuple[Array, Array]:
    """Return I·b' under each draw, shape (K, L, J), and I, shape (L, J, J); see `run_offsets`."""
    windows = _windows(task, logs).thinned(max(OFFSET_WINDOWS, OFFSET_WINDOWS_EACH * len(logs)))
    drive = choose_drive(task.robot, logs)
    effects = RandomEffects(partial(_errors, twin, task, drive, twin.values), windows)
    information = effects.offsets.information
    precision = information + np.eye(information.shape[1])
    estimates = np.zeros((len(values), *information.shape[:2]))
    for number, row in enumerate(values):
        estimates[number] = effects.of_errors(partial(_errors, twin, task, drive, row)).estimate() / OFFSET_STD
        tell((number + 1) / len(values))
    # Its estimates have the prior N(0, 1) in units of OFFSET_STD.
    return np.einsum("lij,klj->kli", precision, estimates) / OFFSET_STD, information / OFFSET_STD**2


def _errors(twin: Twin, task: Task, drive: Drive, row: Array, windows: Windows) -> Array:
    """Return replayed minus measured positions of windows with parameters of the twin, shape (W, M, J)."""
    model = calibration_model(task.robot)
    through = channel(task.robot.spec.joint_names, [parameter.name for parameter in twin.parameters], row[None])
    if drive == "effort":
        twin.apply(model, row)
    else:
        twin.apply_commanded(model, row)
        through = _delayed(twin, through)
    threads = len(os.sched_getaffinity(0))
    simulator = Simulator(quiet_model(model), windows, drive, num_threads=threads)
    return simulator.positions({}, through)[0] - windows.target


def _delayed(twin: Twin, through: LogChannel) -> LogChannel:
    """Return the channel with the measured lag of commands, of a twin that was fitted to measured efforts."""
    lag_s = twin.timing.command_lag_mean_s
    if lag_s is None or any(parameter.name == DELAY for parameter in twin.parameters):
        return through
    return replace(through, delay_s=np.full_like(through.delay_s, lag_s))
