"""The replay error as a function of the parameters, for a least-squares solver."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from mujoco import minimize

from physai.sim.calibration.fit.identifiability import Indices, Linearisation
from physai.sim.calibration.replay.drive import servo_gain_factors
from physai.sim.calibration.replay.simulate import Simulator, quiet_model
from physai.sim.calibration.replay.windows import Windows
from physai.sim.robots import Robot
from physai.sim.twin.models import calibration_model
from physai.sim.twin.parameters import Drive, Parameter, channel, model_fields

Array = npt.NDArray[np.float64]

STEP = 1e-3
"""Step of finite differences, in prior standard deviations."""
START_STEP = 1e-4
"""Step of finite differences of start states [rad and rad/s, or m and m/s]."""
START_DOUBT = 4.0
"""Start states may be off by so many of their typical errors: these follow the motion, window after window, and would
not average out as independent ones do."""
WEIGHINGS = 6
"""Times the errors are divided among starts and the rest; settles within a few."""
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
    """Replay errors of some windows under values of all P parameters.

    A window starts at a measured state, and what a wrong start does to it is no fault of the parameters: a speed that
    is off by 0.02 rad/s costs 5 mrad after a quarter of a second, many times a sensor's noise, and where friction turns
    a joint round, smoothing errs to one side always. Start states are therefore random effects of the windows (Laird
    and Ware, Biometrics 38, 1982): errors = S·d + e, S from finite differences, the size of d from the smoothing that
    estimated the starts, that of e from the errors where `measure_spread` was called; residuals are errors whitened by
    that. Where starts are what errs most, they are taken out of the residuals altogether; where the model is, nearly
    nothing is. Scores of a twin take out nothing.
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
        self._joints = robot.spec.joint_names
        self._model: Any = quiet_model(calibration_model(robot))
        factors = servo_gain_factors(robot, windows.logs, drive)
        gains = None if factors is None else factors[windows.log_index]
        self._simulator = Simulator(self._model, windows, drive, num_threads=num_threads, gains=gains)
        self._starts: Array | None = None
        """Orthonormal basis of what start states do to the residuals of a window, shape (W, M·J, 2·J)."""
        self._share = np.zeros((len(windows), 2 * len(self._joints)))
        """Share of the residuals along each of them that is taken out, shape (W, 2·J)."""
        self.spread = np.ones(len(self._joints))
        """Unit of each joint's residuals [rad or m]; see `measure_spread`."""

    def errors(self, values: Array, *, position: Array | float = 0.0, speed: Array | float = 0.0) -> Array:
        """Twin minus recording, (K, P) to (K, W, M, J); NaN where a world diverged.

        Args:
            values: parameter values.
            position: added to the position every window starts in, shape (J,).
            speed: added to its speed, shape (J,).
        """
        fields = model_fields(self._model, self.names, values)
        windows = self.windows
        self._simulator.windows = replace(
            windows, joint_pos=windows.joint_pos + position, joint_vel=windows.joint_vel + speed
        )
        positions = self._simulator.positions(fields, channel(self._joints, self.names, values))
        return positions - windows.target[None]

    def measure_spread(self, values: Array) -> Array:
        """Measures, under these values, shape (P,), what start states do and how large the other errors are.

        The spread of the latter becomes the unit of residuals. Returns the root mean square of all errors, shape (J,).
        """
        errors = self.errors(values[None])[0]
        total = _rmse(errors)
        known = np.nan_to_num(errors)
        count, samples, joints = known.shape
        effects = self._start_effects(values, errors) * START_DOUBT * self.windows.start_std[:, None, None]
        flat, left = effects.reshape(count, samples * joints, -1), known
        for _ in range(WEIGHINGS):
            self.spread = np.maximum(np.sqrt((left**2).mean(axis=(0, 1))), SPREAD_MIN)
            noise = np.tile(self.spread * np.sqrt(samples / _independent(left)), samples)
            self._starts, singular, turn = np.linalg.svd(flat / noise[:, None], full_matrices=False)
            # The starts' most likely values under both sizes; what they leave is the other errors.
            along = np.einsum("wsi,ws->wi", self._starts, known.reshape(count, -1) / noise)
            starts = np.einsum("wij,wi->wj", turn, along * singular / (1.0 + singular**2))
            left = known - (flat @ starts[..., None]).reshape(known.shape)
            self._share = 1.0 - 1.0 / np.sqrt(1.0 + singular**2)
        return total

    def _start_effects(self, values: Array, errors: Array) -> Array:
        """Derivatives of the errors by the positions and speeds that windows start with, shape (W, M, J, 2·J)."""
        count = len(self.spread)
        found: list[Array] = []
        for column in range(2 * count):
            shift = np.zeros(2 * count)
            shift[column] = START_STEP
            moved = self.errors(values[None], position=shift[:count], speed=shift[count:])[0]
            found.append((moved - errors) / START_STEP)
        return np.nan_to_num(np.stack(found, axis=-1))

    def residuals(self, errors: Array) -> Array:
        """Errors in units of the spread, so that each window and joint counts once; (K, W, M, J) to (K, W, M·J).

        Less the share of what other start states would explain, once that is measured.
        """
        count, windows, samples, _ = errors.shape
        scaled = np.nan_to_num(errors / (self.spread * np.sqrt(samples)), nan=LARGE).reshape(count, windows, -1)
        if self._starts is None:
            return scaled
        along = np.einsum("wsi,kws->kwi", self._starts, scaled)
        return scaled - np.einsum("wsi,kwi->kws", self._starts, self._share * along)

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

        A distance of one standard deviation from a prior costs as much as one window's usual error: nothing where
        recordings say much, and a hold where they say little, such as a motor's gain against all masses together.

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
            found = np.hstack([self.residuals(errors).reshape(len(full), -1), points.T])
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


def _independent(errors: Array) -> Array:
    """How many of the samples of a window say something of their own, per joint, (W, M, J) to (J,).

    M·(1 - r)/(1 + r) for neighbours that correlate by r: all of them where sensors are what errs, one where a model is.
    """
    samples = errors.shape[1]
    together = (errors[:, 1:] * errors[:, :-1]).sum(axis=(0, 1))
    alone = np.maximum((errors**2).sum(axis=(0, 1)), 1e-300)
    correlation = np.clip(together / alone, 0.0, 1.0)
    return np.maximum(1.0, samples * (1.0 - correlation) / (1.0 + correlation))


def _rmse(errors: Array) -> Array:
    """Root mean square per joint, (W, M, J) to (J,); a diverged world counts as `LARGE`."""
    return np.sqrt((np.nan_to_num(errors, nan=LARGE) ** 2).mean(axis=(0, 1)))
