"""Input of a replay: the measured effort or the recorded command."""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sim.logs import LogError, RobotLog, command_lag
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.sim.twin.parameters import Drive

Array = npt.NDArray[np.float64]

SLOW_PERIOD_S = 0.01
"""Sampling period above which the effort between samples is reconstructed from the command [s]."""
FINE_STEP_S = 0.00025
"""Time step of that reconstruction [s]."""

GAIN_NOTE = "kp"
"""Note of a recording with its servo gain, in the servo's own unit."""
GAIN_REFERENCE = "servo_gain_reference"
"""Name of the MJCF `<numeric>` with the value of that note to which the model's kp corresponds."""


def choose_drive(robot: Robot, logs: Sequence[RobotLog]) -> Drive:
    """Choose the input: motors use their measured effort, or the commanded one if not measured; servos their targets.

    Raises:
        LogError: the recordings do not contain the input of the robot's actuators.
    """
    model: Any = robot.model
    actuators = [joint_actuator(model, joint) for joint in joint_ids(model)]
    servos = [is_servo(model, actuator) for actuator in actuators if actuator is not None]
    if any(servos) and not all(servos):
        raise LogError(f"robot {robot.name} has motors and position servos; a replay supports only one kind")
    _require_commands_of_servos(robot, logs, actuators)
    wanted = "joint_pos" if any(servos) else "joint_effort"
    measured = [log.joint_effort is not None for log in logs]
    if not model.nu:
        return "effort"  # nothing is driven, and nothing can be late
    if not any(servos) and all(measured):
        return "effort"
    for log in logs:
        if log.command_kind != wanted:
            kind = "position servos" if any(servos) else "motors"
            effort = "" if any(servos) else " and no measured effort"
            raise LogError(
                f"log {log.name} has {log.command_kind} commands{effort}, but robot {robot.name} has {kind}, which "
                f"take {wanted}; use a model with the actuators of the recorded robot"
            )
    return "command"


def _require_commands_of_servos(robot: Robot, logs: Sequence[RobotLog], actuators: Sequence[int | None]) -> None:
    """Raise LogError for a servo without a recorded target: a replay would hold its joint at 0."""
    for log in logs:
        for joint, actuator, driven in zip(log.joint_names, actuators, log.driven, strict=False):
            if not driven and actuator is not None and is_servo(robot.model, actuator):
                raise LogError(
                    f"log {log.name} has no command for {joint}, but robot {robot.name} has a position servo there; "
                    "map its target in the column map, or import the robot with --drive and the other joints"
                )


def is_servo(model: Any, actuator: int) -> bool:
    """Whether an actuator takes a position instead of an effort, independent of fitted gains."""
    return int(model.actuator_biastype[actuator]) == mujoco.mjtBias.mjBIAS_AFFINE


def servo_gain_factors(robot: Robot, logs: Sequence[RobotLog], drive: Drive) -> Array | None:
    """Return each recording's servo gain relative to the model's, shape (len(logs),); None if they are equal.

    Raises:
        LogError: the recordings have gains, and the model does not define to which of them its kp corresponds.
    """
    gains = [log.notes.get(GAIN_NOTE) for log in logs]
    known = sorted({gain for gain in gains if gain is not None})
    reference = _reference(robot.model)
    if drive != "command" or not known or not any(joint.stiffness > 0.0 for joint in robot.spec.joints):
        return None
    if reference is None:
        if len(known) == 1 and None not in gains:
            return None
        listed = ", ".join(f"{gain:g}" for gain in known)
        raise LogError(
            f"the recordings were made with servo gains {listed}; define to which of them the kp of robot "
            f'{robot.name} corresponds: <custom><numeric name="{GAIN_REFERENCE}" data="{known[0]:g}"/></custom>'
        )
    return np.array([(reference if gain is None else gain) / reference for gain in gains])


def _reference(model: Any) -> float | None:
    for number in range(model.nnumeric):
        if model.numeric(number).name == GAIN_REFERENCE:
            value = float(model.numeric_data[int(model.numeric_adr[number])])
            if not value > 0.0:
                raise LogError(f"numeric {GAIN_REFERENCE} must be above 0, got {value:g}")
            return value
    return None


class DriveSignal:
    """Input of one recording as a function of time, one column per joint."""

    def __init__(self, log: RobotLog, drive: Drive) -> None:
        """Prepare the signal.

        Raises:
            LogError: the recording has no measured effort.
        """
        self.held = drive == "command"
        if self.held:
            self._time, self._values = _integral(log)
        elif log.joint_effort is None:
            raise LogError(f"log {log.name}: has no measured effort")
        else:
            self._time, self._values = _effort(log, log.joint_effort)

    def means(self, edges: Array) -> Array:
        """Return means over the intervals between neighbouring edges [s], shape (W, steps + 1) to (W, steps, J)."""
        if not self.held:
            # The mean of an interpolated signal over a short interval is its value in the middle.
            middle = 0.5 * (edges[:, 1:] + edges[:, :-1])
            values: list[Array] = [np.interp(middle, self._time, column) for column in self._values.T]
            return np.stack(values, axis=-1)
        # The mean of a held command is the difference of its integral, which is smooth in a delay that shifts the
        # edges: the fit needs this for its derivatives.
        totals: list[Array] = [np.interp(edges, self._time, column) for column in self._values.T]
        total = np.stack(totals, axis=-1)
        return np.diff(total, axis=1) / np.diff(edges, axis=1)[..., None]


def _integral(log: RobotLog) -> tuple[Array, Array]:
    """Return the integral of the held command over time; the first and last command extend beyond the ends."""
    steps = log.command[:-1] * np.diff(log.time)[:, None]
    total = np.vstack([np.zeros(log.command.shape[1]), np.cumsum(steps, axis=0)])
    time = np.concatenate([[-1.0], log.time, [log.time[-1] + 1.0]])
    return time, np.vstack([total[0] - log.command[0], total, total[-1] + log.command[-1]])


def _effort(log: RobotLog, measured: Array) -> tuple[Array, Array]:
    """Return the measured effort over time; for a slow recording, the response to the held command.

    The response has the dead time, time constant and gain that `physai.sim.logs.command_lag` identifies in the same
    recording.
    """
    if float(np.median(np.diff(log.time))) < SLOW_PERIOD_S:
        return log.time, measured
    lags = command_lag(log)
    time = np.arange(0.0, log.time[-1] + FINE_STEP_S, FINE_STEP_S)
    columns: list[Array] = []
    for joint, lag in enumerate(lags):
        if lag is None or not lag.identified:
            columns.append(np.interp(time, log.time, measured[:, joint]))
            continue
        sent = np.maximum(np.searchsorted(log.time, time - lag.dead_time_s, side="right") - 1, 0)
        held = log.command[sent, joint]
        if lag.time_constant_s > 0.0:
            # Imported here because it is slow to import and rarely needed.
            from scipy.signal import lfilter

            keep = float(np.exp(-FINE_STEP_S / lag.time_constant_s))
            held = lfilter([0.0, 1.0 - keep], [1.0, -keep], held - held[0]) + held[0]
        columns.append(lag.gain * held)
    return time, np.stack(columns, axis=-1)
