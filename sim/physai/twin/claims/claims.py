"""Claims of a twin file about all held-out windows, compared with the few windows in it.

Errors, ratios and motion of all windows need the recordings. Those of the sample follow from the file, and a sample can
contradict a statement: it differs by more than windows differ from each other.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sim.engines.mujoco import quiet_model
from physai.sim.robots import Robot
from physai.sim.robots.spec import has_floating_base
from physai.twin.claims.changes import missing_alternatives, model_changes, plausible_amounts
from physai.twin.claims.consistency import inconsistency
from physai.twin.claims.spot_check import TOLERANCE_FLOOR, sample_size, sample_squares, spot_check, squared_motion
from physai.twin.model.credibility import ALTERNATIVE_RATIO, bounds
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import ReplaySample, Residuals
from physai.twin.parameters.models import calibration_model

Array = npt.NDArray[np.float64]

CONFIDENCE = 0.99
"""Of what a sample shows, one-sided: with 8 windows, 3.0 standard deviations by Student's t."""
DEVIATION_MIN = 0.1
"""Minimum standard deviation of the logarithm of an error: windows of a sample may be alike by chance."""
SHARE_CUT = 0.25
"""Share of a recording that can be replayed at least: no window contains missing samples or a saturated motor."""
EXPONENT_MAX = 600.0
"""Maximum exponent, below that of the greatest number."""
ERROR_MAX = 100.0
"""Error of a diverged window [rad or m]."""
EDITED = "; it was changed after the calibration: calibrate again"


def contradiction(twin: Twin, robot: Robot) -> str:
    """Return what in a twin file its robot, its parameters and its sample of held-out windows contradict, or "".

    Raises:
        TwinError: the twin is of another robot.
    """
    # A spot check ends with a sample that is of this robot, and in which the twin errs as it states.
    first = missing_alternatives(twin, robot) or spot_check(twin, robot)
    if not first and (odd := inconsistency(twin)):
        return f"{odd}{EDITED}"
    if first or twin.sample is None or twin.residuals is None:
        return first
    model: Any = calibration_model(robot)
    twin.apply(model, twin.values)
    own = _squares(twin.sample, model)
    found = (
        *_too_few_windows(twin, model),
        *_errors(twin.residuals, own, _squares(twin.sample, calibration_model(robot))),
        *_motion(twin.sample, twin.residuals, own, floating=has_floating_base(model)),
        *_changes(twin.sample, twin.residuals, own, model, robot),
    )
    return f"{found[0]}{EDITED}" if found else ""


def _squares(sample: ReplaySample, model: Any) -> Array:
    return np.minimum(sample_squares(sample, quiet_model(copy.copy(model))), ERROR_MAX**2)


def log_ratio(one: Array, other: Array) -> tuple[float, float]:
    """Return the logarithm of a ratio of errors and its standard deviation, by leaving out each window in turn.

    The errors are root mean squares over the windows, the ratio is their geometric mean over the joints, see
    `Alternative.ratio`. The standard deviation is the jackknife's (Efron and Stein, Annals of Statistics 9, 1981).

    Args:
        one: mean square errors of W windows, shape (W, S).
        other: those that it is relative to.
    """
    tiny = float(np.finfo(np.float64).tiny)
    count = len(one)

    def of(mean_one: Array, mean_other: Array) -> Array:
        return 0.5 * np.log(np.maximum(mean_one, tiny) / np.maximum(mean_other, tiny)).mean(axis=-1)

    value = float(of(one.mean(axis=0), other.mean(axis=0)))
    if count < 2:
        return value, math.inf
    rest = of((one.sum(axis=0) - one) / (count - 1), (other.sum(axis=0) - other) / (count - 1))
    std = float(np.sqrt((count - 1) / count * ((rest - rest.mean()) ** 2).sum()))
    return value, max(std, DEVIATION_MIN)


def _range(one: Array, other: Array | float) -> tuple[float, float]:
    """Return the least and the most that the ratio of two errors can be, as far as a sample shows."""
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    against = np.full_like(one, other) if np.isscalar(other) else np.asarray(other)
    value, std = log_ratio(one, against)
    reach = std * float(stdtrit(max(1, len(one) - 1), CONFIDENCE))
    return math.exp(max(-EXPONENT_MAX, value - reach)), math.exp(min(EXPONENT_MAX, value + reach))


def _too_few_windows(twin: Twin, model: Any) -> Iterator[str]:
    """Yield whether windows were taken away, so that the rest of them would say what they say less surely."""
    assert twin.sample is not None
    assert twin.residuals is not None
    held, window_s = twin.logs.held_out, twin.residuals.window_s
    # Throws have few windows that touch the ground; of other recordings, nearly all can be cut into windows.
    by_time = sum(int(SHARE_CUT * (log.duration_s or 0.0) / window_s) for log in held)
    least = len(held) if has_floating_base(model) else max(len(held), by_time)
    expected = min(sample_size(model, window_s), least)
    if not len(twin.sample.start) >= expected:
        yield (
            f"it holds {len(twin.sample.start)} windows to replay, calibration keeps {expected} of such held-out "
            "recordings"
        )


def _errors(residuals: Residuals, own: Array, nominal: Array) -> Iterator[str]:
    # Not the other way round: the few windows with the largest errors may not be in the sample.
    for number, name in enumerate(residuals.joint_names):
        mine, other = own[:, [number]], nominal[:, [number]]
        error, least = residuals.twin[number], _range(mine, 1.0)[0]
        if least > max(error.hi, TOLERANCE_FLOOR):
            yield f"{name}: its held-out windows err by {least:.4f} at least, it states up to {error.hi:.4f}"
        # The sample has the twin's offsets, not those of the nominal robot, so that only this direction is evidence.
        if least > TOLERANCE_FLOOR and _range(mine, other)[0] > 1.0 and residuals.gain[number].hi >= 0.0:
            yield f"{name}: it replays its held-out windows worse than the nominal robot, and states that it does not"


def _motion(sample: ReplaySample, residuals: Residuals, own: Array, *, floating: bool) -> Iterator[str]:
    """Yield bounds that rest on motion which the sample does not have."""
    moved = squared_motion(sample, floating=floating)
    for number, name in enumerate(residuals.joint_names):
        motion, error = moved[:, [number]], own[:, [number]]
        here = math.sqrt(float(motion.mean()))
        most = _range(motion, 1.0)[1]
        within = residuals.model_copy(update={"motion": tuple(here for _ in residuals.motion)})
        if most < residuals.motion[number] and _range(error, 1.0)[0] > bounds(within)[name]:
            yield (
                f"{name}: its held-out windows move by {here:.2g} (root mean square) and err by more than a tenth of "
                f"that, it states a motion of {residuals.motion[number]:.2g}"
            )


def _changes(sample: ReplaySample, residuals: Residuals, own: Array, model: Any, robot: Robot) -> Iterator[str]:
    """Yield changed twins that replay the sample better, whatever ratio is stated."""
    stated = {one.name: one.ratio for one in residuals.alternatives}
    for name, change in model_changes(model, plausible_amounts(robot)):
        changed = copy.copy(model)
        change(changed)
        mujoco.mj_setConst(changed, mujoco.MjData(changed))
        other = _squares(sample, changed)
        if _range(other, own)[1] < ALTERNATIVE_RATIO <= stated[name].hi:
            ratio = math.exp(log_ratio(other, own)[0])
            yield (
                f"with {name} it replays its held-out windows better, with {ratio:.2f} times the error, and it states "
                f"{stated[name].value:.2f} ({stated[name].lo:.2f} to {stated[name].hi:.2f})"
            )
