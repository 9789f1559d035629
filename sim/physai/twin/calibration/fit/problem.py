"""Replay error as a function of the parameters, for a least-squares solver."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mujoco import minimize

from physai.sim.engines.mujoco import quiet_model
from physai.sim.robots import Robot
from physai.twin.calibration.fit.identifiability import Indices, Linearisation
from physai.twin.calibration.replay.drive import servo_gain_factors
from physai.twin.calibration.replay.random_effects import RandomEffects, rmse
from physai.twin.calibration.replay.simulate import Simulator
from physai.twin.calibration.replay.windows import Windows
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import Drive, Parameter, channel, model_fields

Array = npt.NDArray[np.float64]

STEP = 1e-3
"""Step of finite differences, in prior standard deviations."""
CONTACT_STEP = 0.03
"""The same for motion with impacts: a simulated impact begins with a time step, so errors are rugged on smaller scales
and their slopes there say nothing of the parameter."""
MAX_ITERATIONS = 30
STEP_TOLERANCE = 2e-3
GAIN_TOLERANCE = 1e-4
"""Relative reduction of the cost per iteration below which the search ends."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One point tried by the solver."""

    values: Array
    """Shape (P,)."""
    cost: float
    rmse: Array
    """Per scored error [rad or m]; see `Windows.by_channel`."""


Watch = Callable[[Evaluation], None]
"""Called after every point tried; it may raise to end the search."""


class _SettledError(Exception):
    """The search has converged."""


class Problem:
    """Replay errors of windows as a function of all P parameters.

    Residuals are errors without what start states of windows and encoder zeros of recordings explain, see
    `measure_spread`.
    """

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
        self._step = STEP if windows.base is None else CONTACT_STEP
        self._joints = robot.spec.joint_names
        self._model: Any = quiet_model(calibration_model(robot))
        factors = servo_gain_factors(robot, windows.logs, drive)
        gains = None if factors is None else factors[windows.log_index]
        self._simulator = Simulator(self._model, windows, drive, num_threads=num_threads, gains=gains)
        self._effects: RandomEffects | None = None
        self._offsets = np.zeros((len(windows.logs), len(self._joints)))
        self.steps = 0
        """Number of physics steps that were simulated."""

    @property
    def steps_per_window(self) -> int:
        """Number of physics steps in a window."""
        return max(1, round(self.windows.window_s / self._model.opt.timestep))

    @property
    def effects(self) -> RandomEffects:
        """Effects of start states and encoder zeros at the values last given to `measure_spread`."""
        if self._effects is None:
            self.measure_spread(self.prior)
        assert self._effects is not None
        return self._effects

    @property
    def spread(self) -> Array:
        """Unit of each coordinate's residuals [rad or m], shape (C,)."""
        return self.effects.spread

    def errors(self, values: Array) -> Array:
        """Return twin minus recording at the recordings' offsets, (K, P) to (K, W, M, C); NaN for diverged worlds."""
        return self._errors(values, self.effects.windows)

    def _errors(self, values: Array, windows: Windows) -> Array:
        fields = model_fields(self._model, self.names, values)
        self._simulator.windows = windows
        self.steps += len(values) * len(windows) * self.steps_per_window
        positions = self._simulator.positions(fields, channel(self._joints, self.names, values))
        return positions - windows.target[None]

    def measure_spread(self, values: Array) -> Array:
        """Estimate the effects of start states and encoder zeros, and the spread of the other errors.

        That spread becomes the unit of the residuals. Encoder zeros are estimated, too: the effects are linear about
        those that the previous call has found.

        Args:
            values: of the parameters, shape (P,).

        Returns:
            Root mean square of all errors, one per scored error.
        """
        self._effects = RandomEffects(
            lambda windows: self._errors(values[None], windows)[0], self.windows, self._offsets
        )
        self._offsets = self._effects.estimate()
        return self._effects.rmse

    def residuals(self, errors: Array) -> Array:
        """Return errors in units of the spread without what start states and encoder zeros explain.

        (K, W, M, C) to (K, W, M·C), scaled so that each window and coordinate counts once; see `RandomEffects`.
        """
        return self.effects.residuals(errors)

    def linearise(self, values: Array, chosen: Indices | None = None) -> Linearisation:
        """Return residuals and derivatives by the chosen parameters, or by all."""
        columns = np.arange(len(values)) if chosen is None else chosen
        steps = self._steps(values, columns)
        points = np.concatenate([values[None], np.repeat(values[None], len(columns), axis=0)])
        # Row 0 is the point itself, row i + 1 has the i-th chosen parameter moved: one batch simulates all of them.
        points[np.arange(1, len(points)), columns] += steps * self.std[columns]
        errors = self.errors(points)
        residuals = self.residuals(errors)
        jacobian = np.moveaxis((residuals[1:] - residuals[0]) / steps[:, None, None], 0, -1)
        shared = self.effects.shared(errors, steps)
        return Linearisation(residuals[0], jacobian, self.windows.log_index, self.windows.start_s, shared)

    def _steps(self, values: Array, columns: Indices) -> Array:
        """Return finite difference steps in prior units that stay within the bounds."""
        # Backward at the upper bound: a value beyond it may not be physical.
        step = self._step
        return np.where(values[columns] + step * self.std[columns] > self.upper[columns], -step, step)

    def solve(self, values: Array, chosen: Indices, watch: Watch) -> Array:
        """Fit the chosen parameters within their bounds by regularised least squares, starting at the given values.

        One standard deviation from a prior costs as much as one window's typical error: negligible for informative
        recordings, a constraint for weakly determined directions such as a motor's gain against all masses.

        The solver is `mujoco.minimize.least_squares`: Levenberg-Marquardt with a box-constrained quadratic step.
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
            # The distances from the priors are residuals, too: this is the regularisation.
            stacked = np.hstack([self.residuals(errors).reshape(len(full), -1), points.T])
            if len(full) == 1:  # a step of the solver, not its finite differences
                tried = Evaluation(
                    values=full[0], cost=0.5 * float(stacked[0] @ stacked[0]), rmse=rmse(errors[0], self.windows)
                )
                best[:] = [min([*best, tried], key=lambda one: one.cost)]
                watch(tried)
            return np.ascontiguousarray(stacked.T)

        def settled(trace: Sequence[Any]) -> None:
            if trace[-1].reduction < GAIN_TOLERANCE * trace[-1].objective:
                raise _SettledError

        with contextlib.suppress(_SettledError):
            minimize.least_squares(
                np.clip((values[chosen] - prior) / std, lower, upper),
                residual,
                bounds=[lower, upper],
                eps=self._step,
                xtol=STEP_TOLERANCE,
                gtol=1e-6,
                max_iter=MAX_ITERATIONS,
                verbose=minimize.Verbosity.SILENT,
                iter_callback=settled,
            )
        return best[0].values
