"""Replay error as a function of the parameters, for a least-squares solver."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mujoco import minimize

from physai.sim.calibration.fit.identifiability import Indices, Linearisation
from physai.sim.calibration.replay.drive import servo_gain_factors
from physai.sim.calibration.replay.simulate import Simulator
from physai.sim.calibration.replay.windows import Windows
from physai.sim.engines.mujoco import quiet_model
from physai.sim.robots import Robot
from physai.sim.twin.models import calibration_model
from physai.sim.twin.parameters import Drive, Parameter, channel, model_fields

Array = npt.NDArray[np.float64]

STEP = 1e-3
"""Step of finite differences, in prior standard deviations."""
CONTACT_STEP = 0.03
"""The same for motion with impacts: a simulated impact begins with a time step, so errors are rugged on smaller scales
and their slopes there say nothing of the parameter."""
START_STEP = 1e-4
"""Step of finite differences of start states [rad and rad/s, or m and m/s]."""
START_DOUBT = 4.0
"""Factor on the typical errors of start states: they depend on the motion, so they do not average out over windows."""
WEIGHINGS = 6
"""Iterations that divide the errors between start states and the rest; a few converge."""
LARGE = 1e3
"""Residual of a diverged world, in units of the spread."""
SPREAD_MIN = 1e-7
"""Minimum unit of the residuals [rad or m]."""
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
    """Per joint [rad or m], shape (J,)."""


Watch = Callable[[Evaluation], None]
"""Called after every point tried; it may raise to end the search."""


class _SettledError(Exception):
    """The search has converged."""


class Problem:
    """Replay errors of windows as a function of all P parameters.

    Residuals are errors whitened by a model of the errors of the windows' start states, see `measure_spread`.
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
        self._starts: Array | None = None
        """Orthonormal basis of the start states' effects on a window's residuals, shape (W, M·J, 2·J)."""
        count = windows.target.shape[-1]
        self._share = np.zeros((len(windows), 2 * count))
        """Share of the residuals along each basis vector that is removed, shape (W, 2·J)."""
        self.steps = 0
        """Number of physics steps that were simulated."""
        self.spread = np.ones(count)
        """Unit of each joint's residuals [rad or m]; see `measure_spread`."""

    @property
    def steps_per_window(self) -> int:
        """Number of physics steps in a window."""
        return max(1, round(self.windows.window_s / self._model.opt.timestep))

    def errors(self, values: Array, *, position: Array | float = 0.0, speed: Array | float = 0.0) -> Array:
        """Return twin minus recording, (K, P) to (K, W, M, J); NaN for diverged worlds.

        Args:
            values: parameter values.
            position: offset of the windows' start positions, shape (J,).
            speed: offset of the windows' start speeds, shape (J,).
        """
        fields = model_fields(self._model, self.names, values)
        windows = self.windows
        self._simulator.windows = replace(
            windows, joint_pos=windows.joint_pos + position, joint_vel=windows.joint_vel + speed
        )
        self.steps += len(values) * len(windows) * self.steps_per_window
        positions = self._simulator.positions(fields, channel(self._joints, self.names, values))
        return positions - windows.target[None]

    def measure_spread(self, values: Array) -> Array:
        """Estimate the effects of start states and the spread of the other errors at these values, shape (P,).

        That spread becomes the unit of the residuals.

        Returns:
            Root mean square of all errors, shape (J,).
        """
        # A window starts at a measured state, whose error is not caused by the parameters: a speed error of 0.02 rad/s
        # gives 5 mrad after a quarter of a second, many times a sensor's noise, and smoothing is biased where friction
        # reverses a joint. Start states are therefore random effects of the windows (Laird and Ware, Biometrics 38,
        # 1982): errors = S·d + e, with S from finite differences, the size of d from the smoother that estimated the
        # starts, and that of e from the errors here. If start errors dominate, their effect is removed from the
        # residuals; if the model's error dominates, almost nothing is. Scores of a twin remove nothing.
        errors = self.errors(values[None])[0]
        total = self._rmse(errors)
        known = np.nan_to_num(errors)
        count, samples, joints = known.shape
        # Effects of start errors as large as the model of the errors expects them.
        effects = self._start_effects(values, errors) * START_DOUBT * self.windows.start_std[:, None, None]
        flat, left = effects.reshape(count, samples * joints, -1), known
        for _ in range(WEIGHINGS):
            self.spread = np.maximum(np.sqrt((left**2).mean(axis=(0, 1))), SPREAD_MIN)
            noise = np.tile(self.spread * np.sqrt(samples / _independent(left)), samples)
            self._starts, singular, turn = np.linalg.svd(flat / noise[:, None], full_matrices=False)
            # Most likely start errors given both sizes; the remainder is the other errors.
            along = np.einsum("wsi,ws->wi", self._starts, known.reshape(count, -1) / noise)
            starts = np.einsum("wij,wi->wj", turn, along * singular / (1.0 + singular**2))
            left = known - (flat @ starts[..., None]).reshape(known.shape)
            self._share = 1.0 - 1.0 / np.sqrt(1.0 + singular**2)
        return total

    def _rmse(self, errors: Array) -> Array:
        """Return the root mean square per scored error, from (W, M, J); a diverged world counts as `LARGE`."""
        squared = (np.nan_to_num(errors, nan=LARGE) ** 2).mean(axis=(0, 1))
        return np.sqrt(self.windows.by_channel(squared))

    def _start_effects(self, values: Array, errors: Array) -> Array:
        """Return derivatives of the errors by the windows' start positions and speeds, shape (W, M, J, 2·J)."""
        count = len(self.spread)
        columns: list[Array] = []
        for column in range(2 * count):
            shift = np.zeros(2 * count)
            # Impacts need a step that is not small against the errors of the starts, see `CONTACT_STEP`.
            contact = 0.0 if self.windows.base is None else float(np.median(self.windows.start_std[:, column]))
            shift[column] = max(START_STEP, contact)
            moved = self.errors(values[None], position=shift[:count], speed=shift[count:])[0]
            columns.append((moved - errors) / shift[column])
        return np.nan_to_num(np.stack(columns, axis=-1))

    def residuals(self, errors: Array) -> Array:
        """Return errors in units of the spread without the effects of start states, (K, W, M, J) to (K, W, M·J).

        Scaled so that each window and joint counts once.
        """
        count, windows, samples, _ = errors.shape
        scaled = np.nan_to_num(errors / (self.spread * np.sqrt(samples)), nan=LARGE).reshape(count, windows, -1)
        if self._starts is None:
            return scaled
        along = np.einsum("wsi,kws->kwi", self._starts, scaled)
        return scaled - np.einsum("wsi,kwi->kws", self._starts, self._share * along)

    def linearise(self, values: Array, chosen: Indices | None = None) -> Linearisation:
        """Return residuals and derivatives by the chosen parameters, or by all."""
        columns = np.arange(len(values)) if chosen is None else chosen
        steps = self._steps(values, columns)
        points = np.concatenate([values[None], np.repeat(values[None], len(columns), axis=0)])
        # Row 0 is the point itself, row i + 1 has the i-th chosen parameter moved: one batch simulates all of them.
        points[np.arange(1, len(points)), columns] += steps * self.std[columns]
        residuals = self.residuals(self.errors(points))
        jacobian = np.moveaxis((residuals[1:] - residuals[0]) / steps[:, None, None], 0, -1)
        return Linearisation(residuals[0], jacobian, self.windows.log_index, self.windows.start_s)

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
                    values=full[0], cost=0.5 * float(stacked[0] @ stacked[0]), rmse=self._rmse(errors[0])
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


def _independent(errors: Array) -> Array:
    """Return the effective number of independent samples of a window per joint, (W, M, J) to (J,).

    M·(1 - r)/(1 + r) for neighbours with correlation r: all of them for sensor noise, one for model errors.
    """
    samples = errors.shape[1]
    together = (errors[:, 1:] * errors[:, :-1]).sum(axis=(0, 1))
    alone = np.maximum((errors**2).sum(axis=(0, 1)), 1e-300)
    correlation = np.clip(together / alone, 0.0, 1.0)
    return np.maximum(1.0, samples * (1.0 - correlation) / (1.0 + correlation))
