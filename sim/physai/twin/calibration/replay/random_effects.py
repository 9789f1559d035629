"""Errors that parameters of the robot do not cause: start states of windows, and encoder zeros of recordings.

Both are random effects (Laird and Ware, Biometrics 38, 1982): errors = S·d + O·b + e, with the start state errors d of
each window, the offsets b of each recording, and all other errors e. S and O come from finite differences.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from physai.twin.calibration.replay.windows import Windows
from physai.twin.parameters.parameters import OFFSET_STD

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

START_STEP = 1e-4
"""Step of finite differences of start states [rad and rad/s, or m and m/s]; in poses at least their typical error: with
impacts, errors are rugged on smaller scales."""
START_DOUBT = 4.0
"""Factor on the typical errors of start states: they depend on the motion, so they do not average out over windows."""
WEIGHINGS = 6
"""Iterations that divide the errors between start states and the rest; a few converge."""
LARGE = 1e3
"""Residual of a diverged world, in units of the spread."""
SPREAD_MIN = 1e-7
"""Minimum unit of the residuals [rad or m]."""
OFFSET_STEP = 0.05
"""Step of finite differences of offsets, in prior standard deviations."""
CONTACT_OFFSET_STEP = 1.0
"""The same in windows with poses: with impacts, the derivative is that of the errors over a plausible offset."""

ErrorsOf = Callable[[Windows], Array]
"""Replayed minus measured positions of windows, shape (W, M, C); NaN for diverged worlds."""


class RandomEffects:
    """Removes from the errors of windows what start states and encoder zeros explain, linearised at one point.

    A floating base has no encoders: of its windows' C coordinates, see `Windows`, only the J joints have offsets.
    """

    def __init__(self, errors_of: ErrorsOf, windows: Windows, offsets: Array | None = None) -> None:
        """Linearise and weigh.

        Args:
            errors_of: replays windows at the values of the parameters in question.
            windows: of R recordings of a robot with J joints.
            offsets: of the recordings, about which to linearise [rad or m], shape (R, J); 0 by default.
        """
        if offsets is None:
            offsets = np.zeros((len(windows.logs), windows.offset.shape[1]))
        self.windows = replace(windows, offset=offsets[windows.log_index])
        """The windows with the offsets about which the effects are linear."""
        errors = errors_of(self.windows)
        self.rmse = rmse(errors, windows)
        """Root mean square of all errors, one per scored error; see `Windows.by_channel`."""
        known = np.nan_to_num(errors)
        starts = _start_effects(errors_of, self.windows, errors)
        # Effects of start errors as large as the model of the errors expects them.
        self._weigh(known, starts * START_DOUBT * windows.start_std[:, None, None])
        scaled = self._in_spreads(_offset_effects(errors_of, self.windows, errors))
        self._offset_effects = np.moveaxis(self._without_starts(scaled), 0, -1)
        self._at_offsets = self.windows.offset / OFFSET_STD
        self.offsets = OffsetFit.of(self._offset_effects, windows.log_index, len(windows.logs))
        """What the errors say of the recordings' offsets."""
        self._known = known

    def of_errors(self, errors_of: ErrorsOf) -> "RandomEffects":
        """Return the effects for another model's errors on the same windows, with the derivatives of this one.

        Derivatives of similar models differ little, and computing them takes most of the simulations.
        """
        other = copy.copy(self)
        errors = errors_of(self.windows)
        other.rmse, other._known = rmse(errors, self.windows), np.nan_to_num(errors)
        return other

    def _weigh(self, known: Array, effects: Array) -> None:
        """Divide the errors (W, M, C) between start states and the rest, given effects of both, (W, M, C, 2·C)."""
        # A window starts at a measured state, whose error is not caused by the parameters: a speed error of 0.02 rad/s
        # gives 5 mrad after a quarter of a second, many times a sensor's noise, and smoothing is biased where friction
        # reverses a joint. The size of these errors comes from the smoother that estimated the starts, that of the
        # others from the errors here. If start errors dominate, their effect is removed from the residuals; if the
        # model's error dominates, almost nothing is. Scores of a twin remove nothing of them.
        count, samples, width = known.shape
        flat, left = effects.reshape(count, samples * width, -1), known
        for _ in range(WEIGHINGS):
            self.spread = np.maximum(np.sqrt((left**2).mean(axis=(0, 1))), SPREAD_MIN)
            """Unit of each coordinate's residuals [rad or m], shape (C,)."""
            noise = np.tile(self.spread * np.sqrt(samples / _independent(left)), samples)
            self._starts, singular, turn = np.linalg.svd(flat / noise[:, None], full_matrices=False)
            # Most likely start errors given both sizes; the remainder is the other errors.
            along = np.einsum("wsi,ws->wi", self._starts, known.reshape(count, -1) / noise)
            starts = np.einsum("wij,wi->wj", turn, along * singular / (1.0 + singular**2))
            left = known - (flat @ starts[..., None]).reshape(known.shape)
            self._share = 1.0 - 1.0 / np.sqrt(1.0 + singular**2)

    def _in_spreads(self, errors: Array) -> Array:
        """Scale errors so that each window and coordinate counts once, (K, W, M, C) to (K, W, M·C)."""
        count, windows, samples, width = errors.shape
        scaled = np.nan_to_num(errors / (self.spread * np.sqrt(samples)), nan=LARGE)
        return scaled.reshape(count, windows, samples * width)

    def _without_starts(self, scaled: Array) -> Array:
        along = np.einsum("wsi,kws->kwi", self._starts, scaled)
        return scaled - np.einsum("wsi,kwi->kws", self._starts, self._share * along)

    def _without_offset(self, errors: Array) -> Array:
        """Return what the errors would be at offsets of 0, without start states, (K, W, M, C) to (K, W, M·C)."""
        white = self._without_starts(self._in_spreads(errors))
        return white - np.einsum("wsj,wj->ws", self._offset_effects, self._at_offsets)

    def residuals(self, errors: Array) -> Array:
        """Return errors in units of the spread without the effects of both, (K, W, M, C) to (K, W, M·C).

        Their sum of squares is the smallest sum of squares of the errors and of start states and offsets, these in
        standard deviations of their priors: the offsets need not be variables of a search.
        """
        return self.offsets.removed(self._without_offset(errors))

    def shared(self, errors: Array, steps: Array) -> Array:
        """Return the variance of the gradient by parameters that is due to the recordings' offsets, shape (P, P).

        Args:
            errors: at the point, and with each parameter moved in turn, shape (P + 1, W, M, C).
            steps: by which the parameters were moved, shape (P,).
        """
        # The most likely offsets move by K = (E'E + 1)^-1·E'J per parameter, and their own distances from 0, draws of
        # variance 1, move the gradient by K'.
        white = self._without_starts(self._in_spreads(errors))
        pull = self.offsets.estimate_many((white[1:] - white[0]) / steps[:, None, None])
        return np.einsum("kri,lri->kl", pull, pull)

    def estimate(self, by: "OffsetFit | None" = None) -> Array:
        """Return the most likely offsets of the recordings, or of the groups of `by` [rad or m], shape (R, J)."""
        return OFFSET_STD * (by or self.offsets).estimate(self._without_offset(self._known[None])[0])

    def grouped(self, group: Indices, count: int) -> "OffsetFit":
        """Return what the errors say of the offsets of other groups of windows, shape (W,), than the recordings."""
        return OffsetFit.of(self._offset_effects, group, count)


@dataclass(frozen=True)
class OffsetFit:
    """Linear effects of offsets b of groups of windows on whitened residuals x: x + E·b, with b ~ N(0, 1)."""

    effects: Array
    """E: derivatives by the offsets of a window's group in prior standard deviations, shape (W, S, J)."""
    group: Indices
    """Shape (W,)."""
    count: int
    information: Array
    """E'·E of each group, shape (count, J, J)."""

    @classmethod
    def of(cls, effects: Array, group: Indices, count: int) -> "OffsetFit":
        """Sum up the information of each group."""
        information = np.zeros((count, effects.shape[2], effects.shape[2]))
        np.add.at(information, group, np.einsum("wsi,wsj->wij", effects, effects))
        return cls(effects, group, count, information)

    def removed(self, residuals: Array) -> Array:
        """Return (1 + E·E')^-1/2 times the residuals, shape (K, W, S): the offsets integrated out."""
        # With E'E = V·s²·V' the root is 1 - E·V·(1 - (1 + s²)^-1/2)/s²·V'·E'.
        square, turn = np.linalg.eigh(self.information)
        known = square > 1e-9
        share = np.where(
            known, (1.0 - 1.0 / np.sqrt(1.0 + np.maximum(square, 0.0))) / np.where(known, square, 1.0), 0.5
        )
        inner = np.einsum("rij,rj,rkj->rik", turn, share, turn)
        along = np.einsum("rij,rkj->rki", inner, self._along(residuals))
        return residuals - np.einsum("wsj,wkj->kws", self.effects, along[self.group])

    def estimate(self, residuals: Array) -> Array:
        """Return the most likely offsets in prior standard deviations for residuals (W, S), shape (count, J)."""
        return self.estimate_many(residuals[None])[0]

    def estimate_many(self, residuals: Array) -> Array:
        """Return the same for several residuals (K, W, S), shape (K, count, J)."""
        precision = self.information + np.eye(self.information.shape[1])
        solved: Array = np.linalg.solve(precision, self._along(residuals).swapaxes(1, 2)).astype(np.float64)
        return -np.moveaxis(solved, 2, 0)

    @property
    def std(self) -> Array:
        """Standard deviation after the fit in those of the prior, given the parameters, shape (count, J)."""
        precision = self.information + np.eye(self.information.shape[1])
        return np.asarray(np.sqrt(np.diagonal(np.linalg.inv(precision), axis1=1, axis2=2)), np.float64)

    def _along(self, residuals: Array) -> Array:
        """Return E'·x of each group, (K, W, S) to (count, K, J)."""
        result = np.zeros((self.count, len(residuals), self.effects.shape[2]))
        np.add.at(result, self.group, np.einsum("wsj,kws->wkj", self.effects, residuals))
        return result


def rmse(errors: Array, windows: Windows) -> Array:
    """Return the root mean square per scored error, from (W, M, C); a diverged world counts as `LARGE`."""
    return np.sqrt(windows.by_channel((np.nan_to_num(errors, nan=LARGE) ** 2).mean(axis=(0, 1))))


def _start_effects(errors_of: ErrorsOf, windows: Windows, errors: Array) -> Array:
    """Return derivatives of the errors by the windows' start positions and speeds, shape (W, M, C, 2·C)."""
    count = windows.joint_pos.shape[1]
    steps = np.full(2 * count, START_STEP)
    if windows.base is not None:
        steps = np.maximum(steps, np.median(windows.start_std, axis=0))
    columns: list[Array] = []
    for column, step in enumerate(steps.tolist()):
        shift = np.zeros(2 * count)
        shift[column] = step
        position, speed = windows.joint_pos + shift[:count], windows.joint_vel + shift[count:]
        columns.append((errors_of(replace(windows, joint_pos=position, joint_vel=speed)) - errors) / step)
    return np.nan_to_num(np.stack(columns, axis=-1))


def _offset_effects(errors_of: ErrorsOf, windows: Windows, errors: Array) -> Array:
    """Return derivatives of the errors by the offsets in prior standard deviations, shape (J, W, M, C)."""
    # An offset moves only the windows of its own recording, so one replay moves those of all recordings together.
    step = OFFSET_STEP if windows.base is None else CONTACT_OFFSET_STEP
    effects = np.zeros((windows.offset.shape[1], *errors.shape))
    for joint in range(len(effects)):
        offset = windows.offset.copy()
        offset[:, joint] += step * OFFSET_STD
        effects[joint] = (errors_of(replace(windows, offset=offset)) - errors) / step
    return np.nan_to_num(effects)


def _independent(errors: Array) -> Array:
    """Return the effective number of independent samples of a window per coordinate, (W, M, C) to (C,).

    M·(1 - r)/(1 + r) for neighbours with correlation r: all of them for sensor noise, one for model errors.
    """
    samples = errors.shape[1]
    together = (errors[:, 1:] * errors[:, :-1]).sum(axis=(0, 1))
    alone = np.maximum((errors**2).sum(axis=(0, 1)), 1e-300)
    correlation = np.clip(together / alone, 0.0, 1.0)
    return np.maximum(1.0, samples * (1.0 - correlation) / (1.0 + correlation))
