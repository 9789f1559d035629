"""The replay error as a function of the parameters, for a least-squares solver."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mujoco import minimize

from physai.sim.calibrate.drive import Drive, servo_gain_factors
from physai.sim.calibrate.fitted import calibration_model
from physai.sim.calibrate.identifiability import Indices, Linearisation
from physai.sim.calibrate.parameters import Parameter, channel, model_fields
from physai.sim.calibrate.simulate import Simulator, quiet_model
from physai.sim.calibrate.windows import Windows
from physai.sim.robots import Robot

Array = npt.NDArray[np.float64]

STEP = 1e-3
"""Step of finite differences, in prior standard deviations."""
LARGE = 1e3
"""Residual of a world that diverged, in units of the spread."""
SPREAD_MIN = 1e-7
"""Least spread of residuals that they are measured in [rad or m]."""
MAX_ITERATIONS = 30
STEP_TOLERANCE = 2e-3
GAIN_TOLERANCE = 1e-4
"""The search ends when an iteration lowers the cost by less than this share."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One point the solver tried."""

    values: Array
    """Shape (P,)."""
    cost: float
    rmse: Array
    """Per joint [rad or m], shape (J,)."""


Watch = Callable[[Evaluation], None]
"""Called after every point tried; it may raise to end the search."""


class _SettledError(Exception):
    """Further steps gain nothing."""


class Problem:
    """Replay errors of some windows under values of all P parameters."""

    def __init__(
        self, robot: Robot, parameters: Sequence[Parameter], windows: Windows, drive: Drive, *, num_threads: int
    ) -> None:
        self.parameters = tuple(parameters)
        self.names = tuple(parameter.name for parameter in parameters)
        self.prior = np.array([parameter.prior for parameter in parameters])
        self.std = np.array([parameter.prior_std for parameter in parameters])
        self.lower = np.array([parameter.lower for parameter in parameters])
        self.upper = np.array([parameter.upper for parameter in parameters])
        self.windows = windows
        self._joints = robot.spec.joint_names
        self._model: Any = quiet_model(calibration_model(robot))
        factors = servo_gain_factors(robot, windows.logs, drive)
        gains = None if factors is None else factors[windows.log_index]
        self._simulator = Simulator(self._model, windows, drive, num_threads=num_threads, gains=gains)
        self.spread = np.ones(len(self._joints))
        """Unit of each joint's residuals [rad or m]; see `measure_spread`."""

    def errors(self, values: Array) -> Array:
        """Twin minus recording, (K, P) to (K, W, M, J); NaN where a world diverged."""
        fields = model_fields(self._model, self.names, values)
        positions = self._simulator.positions(fields, channel(self._joints, self.names, values))
        return positions - self.windows.target[None]

    def measure_spread(self, values: Array) -> Array:
        """Takes the errors under these values, shape (P,), as the unit of residuals; returns them, shape (J,)."""
        rmse = _rmse(self.errors(values[None])[0])
        self.spread = np.maximum(rmse, SPREAD_MIN)
        return rmse

    def residuals(self, errors: Array) -> Array:
        """Errors in units of the spread, so that each window and joint counts once; (K, W, M, J) to (K, W, M·J)."""
        count, windows, samples, _ = errors.shape
        scaled = errors / (self.spread * np.sqrt(samples))
        return np.nan_to_num(scaled, nan=LARGE).reshape(count, windows, -1)

    def linearise(self, values: Array, chosen: Indices | None = None) -> Linearisation:
        """Residuals and derivatives by the chosen parameters, or by all."""
        columns = np.arange(len(values)) if chosen is None else chosen
        steps = self._steps(values, columns)
        points = np.concatenate([values[None], np.repeat(values[None], len(columns), axis=0)])
        points[np.arange(1, len(points)), columns] += steps * self.std[columns]
        residuals = self.residuals(self.errors(points))
        jacobian = np.moveaxis((residuals[1:] - residuals[0]) / steps[:, None, None], 0, -1)
        return Linearisation(residuals[0], jacobian, self.windows.log_index, self.windows.start_s)

    def _steps(self, values: Array, columns: Indices) -> Array:
        """Steps in prior units that stay within the bounds."""
        return np.where(values[columns] + STEP * self.std[columns] > self.upper[columns], -STEP, STEP)

    def solve(self, values: Array, chosen: Indices, watch: Watch) -> Array:
        """Least squares over the chosen parameters within their bounds, from the given values.

        `mujoco.minimize.least_squares`: Levenberg-Marquardt with a box-constrained quadratic step.
        """
        if not len(chosen):
            return values
        prior, std = self.prior[chosen], self.std[chosen]
        lower, upper = (self.lower[chosen] - prior) / std, (self.upper[chosen] - prior) / std
        best: list[Evaluation] = []

        def residual(points: Array) -> Array:
            full = np.repeat(values[None], points.shape[1], axis=0)
            full[:, chosen] = prior + points.T * std
            errors = self.errors(full)
            found = self.residuals(errors).reshape(len(full), -1)
            if len(full) == 1:
                tried = Evaluation(values=full[0], cost=0.5 * float(found[0] @ found[0]), rmse=_rmse(errors[0]))
                best[:] = [min([*best, tried], key=lambda one: one.cost)]
                watch(tried)
            return np.ascontiguousarray(found.T)

        def settled(trace: Sequence[Any]) -> None:
            if trace[-1].reduction < GAIN_TOLERANCE * trace[-1].objective:
                raise _SettledError

        with contextlib.suppress(_SettledError):
            minimize.least_squares(
                np.clip((values[chosen] - prior) / std, lower, upper),
                residual,
                bounds=[lower, upper],
                eps=STEP,
                xtol=STEP_TOLERANCE,
                gtol=1e-6,
                max_iter=MAX_ITERATIONS,
                verbose=minimize.Verbosity.SILENT,
                iter_callback=settled,
            )
        return best[0].values


def _rmse(errors: Array) -> Array:
    """Root mean square per joint, (W, M, J) to (J,); a diverged world counts as `LARGE`."""
    return np.sqrt((np.nan_to_num(errors, nan=LARGE) ** 2).mean(axis=(0, 1)))
