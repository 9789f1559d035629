"""Commands sent in place of the policy's own: within every limit, relative to the command sent last."""

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
        """Reads the guard's columns.

        Args:
            limits: of the contract.
            sensors: of the newest sample.
            commands: of the policy.
        """
        self._limits, self._sensors, self._commands = limits, sensors, commands
        self._effort_rate = np.where(limits.holds_position, UNLIMITED, limits.rate)

    def command(self, found: SampleFindings, run: Bools, level: Levels, last: Array, step: Array) -> Array:
        """The commands, shape (n, A).

        Args:
            found: what is wrong.
            run: worlds in which the policy's command counts, shape (n,).
            level: states after this decision, shape (n,).
            last: commands sent last, shape (n, A).
            step: their changes from the ones before, shape (n, A).
        """
        limits, free = self._limits, (run & ~found.missing)[:, None]
        positions = last + np.where(free, self._allowed_step(last, step), trajectory.brake(step, limits.change))
        return np.where(limits.holds_position, positions, self._efforts(found, run, level, last))

    def _allowed_step(self, last: Array, step: Array) -> Array:
        """Steps of positions towards the policy's targets, within all limits; meaningless where there are none."""
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
        """Efforts: the policy's within the limits, the last one where it has none, else damping.

        The rate does not delay braking effort from DAMP on: it takes energy out, and must come at once.
        """
        limits = self._limits
        velocity = self._sensors.velocities[:, limits.joints]
        damping = np.where(found.blind[:, None], 0.0, -limits.brake * velocity)
        own = np.where(found.missing[:, None], last, self._commands.command)
        wanted = np.where(run[:, None], own, damping)
        rate = np.where((level >= _DAMP)[:, None], UNLIMITED, self._effort_rate)
        wanted = trajectory.between(wanted, last - rate, last + rate)
        lower = np.where(run[:, None], limits.lower, limits.hard_lower)
        upper = np.where(run[:, None], limits.upper, limits.hard_upper)
        return trajectory.between(wanted, lower, upper)

    def _within_servo_effort(self, target: Array) -> Array:
        """Targets at which kp (target - q) - kd v stays inside the envelope; the limits on changes come first."""
        limits, sensors = self._limits, self._sensors
        joints = limits.joints[limits.servos]
        centre = sensors.positions[:, joints] + limits.damping * sensors.velocities[:, joints] / limits.stiffness
        reach = limits.effort / limits.stiffness
        return trajectory.between(target, centre - reach, centre + reach)
