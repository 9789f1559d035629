"""Fallback commands, sent in place of the policy's own: within every limit, relative to the command sent last."""

import numpy as np

from physai.sdk.safety import trajectory
from physai.sdk.safety.limits import UNLIMITED, Array, GuardLimits
from physai.sdk.safety.sample import CommandColumns, SampleFindings, SensorColumns
from physai.sdk.safety.states import GuardState
from physai.sdk.safety.supervisor import Bools, Levels

_DAMP = np.uint8(GuardState.DAMP)


class Fallback:
    """Fallback commands of many worlds, one row each."""

    def __init__(self, limits: GuardLimits, sensors: SensorColumns, commands: CommandColumns) -> None:
        """Use the guard's columns.

        Args:
            limits: limits of the contract.
            sensors: latest sample.
            commands: latest commands of the policy.
        """
        self._limits, self._sensors, self._commands = limits, sensors, commands
        self._effort_rate = np.where(limits.holds_position, UNLIMITED, limits.rate)

    def command(self, found: SampleFindings, run: Bools, level: Levels, last: Array, step: Array) -> Array:
        """Return the commands, shape (n, A).

        Args:
            found: faults of this period.
            run: worlds in which the policy's command is used, shape (n,).
            level: states after this decision, shape (n,).
            last: commands sent last, shape (n, A).
            step: their changes from the ones before, shape (n, A).
        """
        limits, free = self._limits, (run & ~found.missing)[:, None]
        positions = last + np.where(free, self._allowed_step(last, step), trajectory.brake(step, limits.change))
        return np.where(limits.holds_position, positions, self._efforts(found, run, level, last))

    def _allowed_step(self, last: Array, step: Array) -> Array:
        """Return steps towards the policy's position targets, within all limits; undefined without targets."""
        limits = self._limits
        wanted = self._commands.command
        if len(limits.servos):
            wanted = wanted.copy()
            wanted[:, limits.servos] = self._within_servo_effort(wanted[:, limits.servos])
        return trajectory.limited_step(
            wanted - last,
            step,
            last,
            lower=limits.lower,
            upper=limits.upper,
            speed=limits.rate,
            change=limits.change,
        )

    def _efforts(self, found: SampleFindings, run: Bools, level: Levels, last: Array) -> Array:
        """Return efforts: in RUN the policy's within the limits, or the last one if missing, otherwise damping."""
        limits = self._limits
        velocity = self._sensors.velocities[:, limits.joints]
        damping = np.where(found.blind[:, None], 0.0, -limits.brake * velocity)
        own = np.where(found.missing[:, None], last, self._commands.command)
        wanted = np.where(run[:, None], own, damping)
        # From DAMP on the rate does not limit the effort: damping dissipates energy and must act at once.
        rate = np.where((level >= _DAMP)[:, None], UNLIMITED, self._effort_rate)
        wanted = trajectory.between(wanted, last - rate, last + rate)
        lower = np.where(run[:, None], limits.lower, limits.hard_lower)
        upper = np.where(run[:, None], limits.upper, limits.hard_upper)
        return trajectory.between(wanted, lower, upper)

    def _within_servo_effort(self, target: Array) -> Array:
        """Limit targets so that kp (target - q) - kd v stays inside the envelope; rate limits take precedence."""
        limits, sensors = self._limits, self._sensors
        joints = limits.joints[limits.servos]
        centre = sensors.positions[:, joints] + limits.damping * sensors.velocities[:, joints] / limits.stiffness
        reach = limits.effort / limits.stiffness
        return trajectory.between(target, centre - reach, centre + reach)
