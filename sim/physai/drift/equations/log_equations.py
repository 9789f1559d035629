"""Equations of motion of a robot along a recording: what the twin leaves unexplained, and what changes would do."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.drift.equations.changes import LAG_S
from physai.drift.equations.frame import Frame
from physai.drift.equations.motion import Kernel, half_width, motion_at
from physai.drift.equations.regressor import PUSH, MotionSamples
from physai.twin.calibration.replay.drive import DriveSignal, commanded_effort, responses_of, servo_gain_factors
from physai.twin.logs import RobotLog
from physai.twin.parameters.parameters import OFFSET_STD, Drive

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

UNEXPLAINED = 3.0
"""Factor on the errors of the twin that its file states, beyond which a block is of something else."""
ACCELERATION = 4.47
"""Constant error of an acceleration per root mean square error of a replay and squared length: √20."""
EFFORT_SHARE, ANSWER_SHARE = 0.05, 0.05
"""Errors of an equation, and of a motor's answer to commands, as a share of the effort."""
GROUND_M = 0.015
"""Height above its lowest points below which a foot may touch the ground [m]."""
GROUND_SAMPLES = 2000
"""Number of samples of a recording that tell the heights of its feet."""
LOWEST = 0.05
"""Quantile of a foot's heights that is taken for the ground."""
LAG_STEP_S = LAG_S
"""Step of the derivative by the lag [s]: that of the change, as short commands change too fast for a shorter one."""
LAG_STD: dict[Drive, float] = {"effort": 1.0, "command": 0.25}
"""Standard deviation of the age of a joint's effort or command in a sample, in sampling periods."""


@dataclass(frozen=True)
class Rows:
    """Equations of T moments with C channels: efforts on degrees of freedom, then responses of motors."""

    time_s: Array
    """Shape (T,)."""
    residual: Array
    """Effort that the twin does not explain [N·m or N], shape (T, C)."""
    changes: Array
    """Residual by a change of 1 of each of D changes, shape (T, C, D)."""
    posterior: Array
    """Residual by standard deviations of the twin's posterior, shape (T, C, P)."""
    zeros: Array
    """Residual by standard deviations of encoder zeros between recordings in general, shape (T, C, J)."""
    own: Array
    """Residual by standard deviations of what else differs between recordings of the twin's robot, shape (T, C, Q)."""
    known: npt.NDArray[np.bool_]
    """Whether an equation holds, shape (T, C): a joint at rest may stick."""
    contact: Array
    """Efforts by unknown forces at the feet that may touch the ground, shape (T, C, 4·K), else 0."""
    applied: Array
    """Root mean square of the applied efforts, shape (C,)."""
    floor: Array
    """Least noise of each equation, by the sensors [N·m or N], shape (C,)."""


class LogEquations:
    """Equations of one recording."""

    def __init__(self, frame: Frame, log: RobotLog) -> None:
        self._frame, self._log = frame, log
        drive = frame.drive
        half_s = half_width(log)
        assert half_s is not None
        self.half_s, self._kernel = half_s, Kernel.of(half_s)
        self._signal = DriveSignal(log, drive)
        gains = servo_gain_factors(frame.robot, (log,), drive)
        self._servo_gain = 1.0 if gains is None else float(gains[0])
        self._delay_s = float(frame.delay_s + frame.delay_periods * float(np.median(np.diff(log.time))))
        self._floor = frame.floor(self.half_s, float(np.median(np.diff(log.time))))
        self._lag_std_s = LAG_STD[drive] * float(np.median(np.diff(log.time)))
        # Of a few thousand samples, as a robot at work is on the ground again and again.
        some = np.arange(0, len(log.time), max(1, len(log.time) // GROUND_SAMPLES))
        self._ground = np.quantile(frame.inverse.heights(self._poses(some)), LOWEST, axis=0)
        self._answers = commanded_effort(log, responses_of(frame.twin, log)) if frame.motors else None

    def rows(self, samples: Indices) -> Rows:
        """Return the equations at samples, which must be at least `half_s` from the ends, shape (T,)."""
        frame, log = self._frame, self._log
        motion = motion_at(frame.robot, log, samples, self.half_s)
        motion.qpos[:, frame.qpos] -= frame.zero
        dynamics = frame.inverse.of(motion)
        time = log.time[samples]
        servo, applied, slope = self._applied(motion, time)
        parts = frame.parts(motion, self._kernel, applied)
        rigid = np.einsum("tdbn,bn->td", dynamics.efforts, frame.numbers)
        residual = -(rigid + parts.passive + parts.friction)
        residual[:, frame.dofs] += applied + frame.effort_bias
        count = len(samples)
        width = frame.nv + (len(frame.dofs) if frame.motors else 0)
        ground = dynamics.height < self._ground + GROUND_M
        contact = np.zeros((count, width, PUSH * len(frame.inverse.feet)))
        contact[:, : frame.nv] = (
            (dynamics.contact * ground[:, :, None, None]).reshape(count, -1, frame.nv).swapaxes(1, 2)
        )
        zeros = frame.by_zeros(motion, dynamics, residual, ground)
        columns = frame.columns(dynamics, parts, applied, slope, zeros)
        spread = frame.posterior.columns(dynamics.efforts, parts, servo, applied, slope)
        full, unexplained = np.zeros((count, width, len(frame.changes))), np.zeros((count, width))
        own = np.concatenate([zeros * frame.zero_std, np.zeros_like(zeros), frame.carried(dynamics)], axis=2)
        own[:, frame.dofs, len(frame.dofs) + np.arange(len(frame.dofs))] = slope * self._lag_std_s
        spreads = np.zeros((count, width, spread.shape[2]))
        full[:, : frame.nv], unexplained[:, : frame.nv], spreads[:, : frame.nv] = columns, residual, spread
        owns, free = np.zeros((count, width, own.shape[2])), np.zeros((count, width, len(frame.dofs)))
        owns[:, : frame.nv], free[:, : frame.nv] = own, zeros * np.where(frame.zero_fitted, OFFSET_STD, 0.0)
        known = np.ones((count, width), bool)
        known[:, frame.dofs] = parts.moving
        known &= self._steady(samples)[:, None]
        power = np.zeros(width)
        power[: frame.nv] = np.sqrt((rigid**2).mean(axis=0))
        power[frame.dofs] = np.maximum(power[frame.dofs], np.sqrt((applied**2).mean(axis=0)))
        if frame.motors:
            self._answer_rows(time, motion, full, unexplained, power)
            known[:, frame.nv :] = frame.answering
        return Rows(time, unexplained, full, spreads, free, owns, known, contact, power, self._floor)

    def _poses(self, samples: Indices) -> Array:
        """Return measured positions in the coordinates of the model, shape (n, nq)."""
        frame, log = self._frame, self._log
        qpos = np.tile(np.array(frame.model.qpos0, np.float64), (len(samples), 1))
        qpos[:, frame.qpos] = log.joint_pos[samples] - frame.zero
        if log.base is not None and len(frame.inverse.feet):
            qpos[:, :3], qpos[:, 3:7] = log.base.position[samples], log.base.quat[samples]
        return qpos

    def _steady(self, samples: Indices) -> npt.NDArray[np.bool_]:
        """Return at which samples no foot leaves or meets the ground within the parabolas, shape (T,)."""
        frame, log = self._frame, self._log
        if not len(frame.inverse.feet):
            return np.ones(len(samples), bool)
        reach = int(self.half_s / float(np.median(np.diff(log.time)))) + 1
        around = np.arange(max(0, samples[0] - reach), min(len(log.time), samples[-1] + reach + 1))
        low = frame.inverse.heights(self._poses(around)) < self._ground + GROUND_M
        changes = np.concatenate([[0], np.cumsum((low[1:] != low[:-1]).any(axis=1))])
        first = np.clip(samples - reach - around[0], 0, len(around) - 1)
        last = np.clip(samples + reach - around[0], 0, len(around) - 1)
        return np.asarray(changes[last] == changes[first], np.bool_)

    def _applied(self, motion: MotionSamples, time: Array) -> tuple[Array, Array, Array]:
        """Return positions errors of servos, applied efforts, and their derivative by the lag [N·m/s], shape (T, J)."""
        frame = self._frame

        def efforts(delay_s: float) -> tuple[Array, Array]:
            given = self._signal_at(time, delay_s)
            if not frame.servo.any():
                return given, self._kernel.mean(given * frame.gain)
            offset = self._kernel.offset_s[:, None]
            place = motion.qpos[:, None, frame.qpos] + offset * motion.qvel[:, None, frame.dofs]
            place = place + 0.5 * offset**2 * motion.qacc[:, None, frame.dofs]
            speed = motion.qvel[:, None, frame.dofs] + (offset + 0.5 * frame.step_s) * motion.qacc[:, None, frame.dofs]
            error = given - place - frame.zero
            wanted = self._servo_gain * frame.kp * error - frame.kd * speed
            return error * self._servo_gain, self._kernel.mean(np.clip(wanted, frame.lowest, frame.highest))

        error, now = efforts(self._delay_s)
        slope = (efforts(self._delay_s + LAG_STEP_S)[1] - now) / LAG_STEP_S
        return self._kernel.mean(error), now, slope

    def _signal_at(self, time: Array, delay_s: float) -> Array:
        """Return the recorded input at the offsets of each moment, shape (T, OFFSETS, J)."""
        step = self._frame.step_s
        parts = [
            self._signal.means((time + offset - delay_s)[:, None] + np.array([0.0, step]))
            for offset in self._kernel.offset_s.tolist()
        ]
        return np.concatenate(parts, axis=1)

    def _answer_rows(self, time: Array, motion: MotionSamples, full: Array, residual: Array, power: Array) -> None:
        """Write the rows that compare measured efforts with those that motors make of their commands."""
        frame = self._frame
        assert self._answers is not None
        when, answer = self._answers
        measured = self._kernel.mean(self._signal_at(time, 0.0))
        middle = time[:, None] + self._kernel.offset_s + 0.5 * frame.step_s

        def expected(delay_s: float) -> Array:
            made: list[Array] = [np.interp(middle - delay_s, when, column) for column in answer.T]
            return self._kernel.mean(np.stack(made, axis=-1))

        made = expected(0.0)
        residual[:, frame.nv :] = measured - made + frame.missing * motion.qacc[:, frame.dofs]
        power[frame.nv :] = np.sqrt((made**2).mean(axis=0))
        slope = (expected(LAG_STEP_S) - made) / LAG_STEP_S
        for number, change in enumerate(frame.changes):
            if change.kind == "drive gain":
                joint = frame.joints.index(change.owner)
                full[:, frame.nv + joint, number] = made[:, joint]
            elif change.kind == "lag":
                full[:, frame.nv :, number] = change.size * slope

    def limits(self, rows: Rows) -> Array:
        """Return the effort per channel that may stay unexplained in a block [N·m or N], shape (C,)."""
        frame = self._frame
        model, residuals = 0.0 * frame.inertia, frame.twin.residuals
        if residuals is not None:
            errors = np.array([error.value for error in residuals.twin])
            if frame.nv > len(frame.dofs):
                errors = np.concatenate([np.repeat(errors[:2], 3), errors[2:]])
            model = frame.inertia * ACCELERATION * errors / residuals.window_s**2
        parts = [rows.floor, np.zeros_like(rows.floor), EFFORT_SHARE * rows.applied]
        parts[1][: frame.nv] = model
        if frame.motors:
            parts[2][frame.nv :] = ANSWER_SHARE * rows.applied[frame.nv :]
        return UNEXPLAINED * np.sqrt(np.square(parts).sum(axis=0))
