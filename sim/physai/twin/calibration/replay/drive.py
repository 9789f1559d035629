"""Input of a replay: the measured effort or the recorded command."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.twin.logs import LogError, RobotLog
from physai.twin.logs.signals.response import FINE_STEP_S, EffortResponse, effort_response, responding
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import ActuatorResponse, Timing
from physai.twin.parameters.parameters import Drive
from physai.twin.parameters.servo import is_servo

Array = npt.NDArray[np.float64]
Responses = Sequence[ActuatorResponse | None]
"""Of each joint's motor; None where it is not known."""

SLOW_PERIOD_S = 0.01
"""Sampling period above which the effort between samples is reconstructed from the command [s]."""

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


def servo_saturation(robot: Robot, logs: Sequence[RobotLog]) -> float | None:
    """Return the position error at which the only servo gives its full effort, at the gain of the model [rad or m].

    The median of the recordings that have a duty cycle; None without one, or if their gains cannot be compared.
    """
    reference = _reference(robot.model)
    found: list[float] = []
    for log in logs:
        gain = log.notes.get(GAIN_NOTE)
        if log.duty_gain is not None and (gain is None) == (reference is None):
            found.append((gain or 1.0) / (reference or 1.0) / log.duty_gain)
    return float(np.median(found)) if found and len(robot.spec.joints) == 1 else None


def _reference(model: Any) -> float | None:
    for number in range(model.nnumeric):
        if model.numeric(number).name == GAIN_REFERENCE:
            value = float(model.numeric_data[int(model.numeric_adr[number])])
            if not value > 0.0:
                raise LogError(f"numeric {GAIN_REFERENCE} must be above 0, got {value:g}")
            return value
    return None


def responses_of(twin: Twin | None, log: RobotLog) -> Responses:
    """Return the responses of a twin's motors at a recording's rate; ideal motors without a twin.

    Raises:
        LogError: the recording has no effort commands, or no recording showed the twin how a motor follows them.
    """
    if log.command_kind != "joint_effort":
        raise LogError(f"log {log.name} has {log.command_kind} commands; a replay from commands takes joint_effort")
    period_s = float(np.median(np.diff(log.time)))
    if twin is None:
        ideal = ActuatorResponse(
            joint="motor", gain=1.0, gain_std=0.0, dead_time_s=0.0, time_constant_s=0.0, period_s=period_s
        )
        return [ideal] * len(log.joint_names)
    known = {one.joint: _at_period(one, twin.timing, period_s) for one in twin.actuators}
    if not known:
        raise LogError(
            f"the twin of {twin.robot} does not know how its motors follow commands: its recordings have no commands "
            "with steps or noise; record some and calibrate again, or replay from measured efforts"
        )
    return [known.get(name) for name in log.joint_names]


def _at_period(response: ActuatorResponse, timing: Timing, period_s: float) -> ActuatorResponse:
    """Return the response in a loop with another period."""
    slope = 0.0 if timing.command_lag_periods is None else timing.command_lag_periods.value
    dead_s = max(0.0, response.dead_time_s + slope * (period_s - response.period_s))
    return response.model_copy(update={"dead_time_s": dead_s, "period_s": period_s})


def actuator_response(joint: str, found: EffortResponse | None) -> ActuatorResponse | None:
    """Return what a recording shows of a joint's motor as a twin states it; None without a positive gain."""
    if found is None or not found.gain > 0.0:
        return None
    return ActuatorResponse(
        joint=joint,
        gain=found.gain,
        gain_std=found.gain_std,
        dead_time_s=found.lag.dead_time_s,
        time_constant_s=found.lag.time_constant_s,
        inertia=found.inertia,
        effort_max=found.effort_max,
        period_s=found.period_s,
    )


class DriveSignal:
    """Input of one recording as a function of time, one column per joint."""

    def __init__(self, log: RobotLog, drive: Drive, responses: Responses | None = None) -> None:
        """Prepare the signal.

        Args:
            log: the recording.
            drive: what drives the replay.
            responses: of each joint's motor, to compute efforts from commands instead of measuring them; a joint
                without one takes its measured effort.

        Raises:
            LogError: the recording has no measured effort.
        """
        self.held = drive == "command"
        if responses is not None:
            self.held = False
            self._time, self._values = commanded_effort(log, responses)
        elif self.held:
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


def commanded_effort(log: RobotLog, responses: Responses) -> tuple[Array, Array]:
    """Return the effort that motors make of the recorded commands, over time, shapes (m,) and (m, J)."""
    fine = np.arange(0.0, log.time[-1] + FINE_STEP_S, FINE_STEP_S)
    columns: list[Array] = []
    for joint, response in enumerate(responses):
        if response is None:
            measured = log.command if log.joint_effort is None else log.joint_effort
            columns.append(np.interp(fine, log.time, measured[:, joint]))
            continue
        followed = responding(log.time, log.command[:, joint], response.dead_time_s, response.time_constant_s)
        limit = np.inf if response.effort_max is None else response.effort_max
        columns.append(np.clip(response.gain * followed.values, -limit, limit))
    return fine, np.stack(columns, axis=-1)


def _effort(log: RobotLog, measured: Array) -> tuple[Array, Array]:
    """Return the measured effort over time; for a slow recording, the response to the held command.

    That response is the one which `physai.twin.logs.signals.response.effort_response` identifies in the same recording.
    """
    if float(np.median(np.diff(log.time))) < SLOW_PERIOD_S:
        return log.time, measured
    pairs = zip(log.joint_names, effort_response(log), strict=True)
    return commanded_effort(log, [actuator_response(joint, found) for joint, found in pairs])
