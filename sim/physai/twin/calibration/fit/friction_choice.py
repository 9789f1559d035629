"""Choose the friction terms of a twin by the errors on recordings that are left out of its fits."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import unknown_name
from physai.sim.friction import MODELS
from physai.sim.robots import Robot
from physai.twin.calibration.fit.fit import Fit, FitProgress, fit, refit
from physai.twin.calibration.fit.problem import Problem
from physai.twin.calibration.measured import error_floors
from physai.twin.calibration.replay.windows import Windows
from physai.twin.logs.comparison.trajectories import by_trajectory
from physai.twin.model.credibility import ERROR_FLOOR_MAX, ERROR_SHARE
from physai.twin.parameters.parameters import Drive, Parameter

Array = npt.NDArray[np.float64]

AUTO = "auto"
PLAIN = "coulomb"
CANDIDATES = (PLAIN, "stribeck", "load", "stribeck-load")
"""Models that are compared, from the fewest terms to the most. Recordings of one load rarely constrain more."""
_SIMPLER = {PLAIN: "", "stribeck": PLAIN, "load": PLAIN, "stribeck-load": "load"}
STRUCTURE_SHARE = 0.5
"""Share of the credible error above which the errors of Coulomb and viscous friction ask for a richer model."""
MARGIN = 1.05
"""A model is not excluded if its error is at most this multiple of the smallest."""
FOLDS = 3
"""Maximum number of parts that are left out in turn."""
WINDOWS = 40
"""Number of windows of a comparison's fits and scores."""
BUDGET_SHARE = 0.1
"""Budget of one of these fits, as a share of that of the whole fit."""

Catalogue = Callable[[str], tuple[Parameter, ...]]
"""Parameters to fit with a friction model."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Inputs that all fits of a choice share."""

    robot: Robot
    catalogue: Catalogue
    windows: Windows
    drive: Drive
    budget_steps: int
    deadline_s: float
    """Time of `time.monotonic` at which all fits have ended [s]."""
    num_threads: int
    report: Callable[[FitProgress], None]

    def left_s(self, share: float = 1.0) -> float:
        """Return a share of the time until the deadline [s]."""
        return max(0.0, share * (self.deadline_s - time.monotonic()))

    def fit(self, model: str, share: float = 1.0) -> Fit:
        """Fit with a friction model, in a share of the time that is left."""
        return fit(
            self.robot,
            self.catalogue(model),
            self.windows,
            self.drive,
            budget_steps=self.budget_steps,
            time_budget_s=self.left_s(share),
            num_threads=self.num_threads,
            report=self.report,
        )

    def problem(self, model: str, chosen: npt.NDArray[np.int64]) -> Problem:
        """Return the errors of some of the windows."""
        part = self.windows.subset(chosen).thinned(WINDOWS)
        return Problem(self.robot, self.catalogue(model), part, self.drive, num_threads=self.num_threads)


def fit_friction(search: Search, friction: str) -> tuple[tuple[Parameter, ...], Fit]:
    """Fit with a friction model, or with the one that is chosen by cross-validation; its notes say what was compared.

    Args:
        search: robot, windows and budget. A comparison takes at most `FOLDS` · 4 · `BUDGET_SHARE` of the budget more,
            and the fit of a richer model the budget once more.
        friction: a key of `physai.sim.friction.MODELS`, or `AUTO`.

    Returns:
        The fitted parameters and the fit.

    Raises:
        UnknownNameError: there is no such friction model.
    """
    if friction not in (AUTO, *MODELS):
        raise unknown_name("friction model", friction, (AUTO, *MODELS))
    if friction != AUTO:
        return search.catalogue(friction), search.fit(friction)
    # A richer model needs time, too.
    plain, parameters = search.fit(PLAIN, 0.5), search.catalogue(PLAIN)
    reason = _enough(search, parameters, plain)
    if reason:
        return parameters, replace(plain, notes=(*plain.notes, f"friction model {PLAIN}: {reason}"))
    if search.left_s() <= 0.0:
        return parameters, plain
    errors = compare(search, dict(zip((p.name for p in parameters), plain.values.tolist(), strict=True)))
    chosen = covering(errors)
    listed = ", ".join(f"{model} {error:.3g}" for model, error in errors.items())
    note = (
        f"friction model {chosen}, with the terms of all that recordings left out of the fit do not exclude by their "
        f"errors, relative to the motion: {listed}"
    )
    if chosen != PLAIN and search.left_s() <= 0.0:
        # A fit without time would return the nominal values.
        chosen, note = PLAIN, f"{note}; there was no time to fit it"
    best = plain if chosen == PLAIN else search.fit(chosen)
    return search.catalogue(chosen), replace(best, notes=(*best.notes, note))


def covering(errors: Mapping[str, float]) -> str:
    """Return the model with the fewest terms that has those of every model whose error is within `MARGIN` of the least.

    The posterior of its terms contains the simpler models, so that a verdict does not hang on a choice which the
    recordings do not make. It is `PLAIN` if all models err alike, as fits without time do, and the first of the models
    within `MARGIN` if none of them has all the terms.
    """
    least = min(errors.values())
    survivors = [model for model, error in errors.items() if error <= MARGIN * least]
    if len(errors) > 1 and math.isclose(max(errors.values()), least, rel_tol=1e-6):
        return PLAIN
    kept = {term for model in survivors for term in MODELS[model]}
    return next((model for model in survivors if kept <= set(MODELS[model])), survivors[0])


def _enough(search: Search, parameters: Sequence[Parameter], plain: Fit) -> str:
    """Return why richer models are not tried; empty if they are."""
    if len(np.unique(search.windows.log_index)) < 2:
        return "one recording does not tell friction models apart; give at least two"
    if not any(parameter.name.endswith(".friction") for parameter in parameters):
        return "no friction is fitted"
    problem = Problem(search.robot, parameters, search.windows, search.drive, num_threads=search.num_threads)
    squared = (np.nan_to_num(problem.errors(plain.values[None])[0], nan=np.inf) ** 2).mean(axis=(0, 1))
    rmse = np.sqrt(search.windows.by_channel(squared))
    credible = np.maximum(_floors(search.windows), ERROR_SHARE * search.windows.motion())
    if (rmse <= STRUCTURE_SHARE * credible).all():
        return f"it replays the fitted recordings within {STRUCTURE_SHARE:.0%} of the credible error"
    return ""


def _floors(windows: Windows) -> Array:
    """Return what the sensors explain of the errors [rad or m]."""
    return np.minimum(error_floors(windows.logs), ERROR_FLOOR_MAX)


def compare(search: Search, start: Mapping[str, float]) -> dict[str, float]:
    """Return the error of every candidate on recordings left out of its fits, relative to the joints' motion.

    Args:
        search: robot, windows and budget.
        start: values of `PLAIN`'s parameters from which its fits start.
    """
    motion, floors = search.windows.motion(), _floors(search.windows)
    # A joint at rest shows only noise, which must not outweigh the joints that move.
    motion = np.where(motion > floors, motion, floors / ERROR_SHARE)
    motion = np.maximum(motion, np.finfo(np.float64).tiny)
    squared: dict[str, list[float]] = {model: [] for model in CANDIDATES}
    for left_out in _folds(search.windows):
        fitted = {"": dict(start)}
        for model in CANDIDATES:
            # Each fit starts where that of a simpler model ended, so that a budget suffices for a richer one, too.
            values = _fit_without(search, model, left_out, fitted[_SIMPLER[model]])
            fitted[model] = dict(zip((p.name for p in search.catalogue(model)), values.tolist(), strict=True))
            found = search.problem(model, np.flatnonzero(left_out)).errors(values[None])[0]
            relative = search.windows.by_channel(found**2) / motion**2
            squared[model].append(float(np.nan_to_num(relative, nan=100.0**2).mean()))
        # Coulomb friction that is not worse where the first part is left out needs no further comparison, unless the
        # others constrain nothing: then all err alike.
        first = [errors[0] for errors in squared.values()]
        if len(squared[PLAIN]) == 1 < len(set(first)) and squared[PLAIN][0] <= MARGIN**2 * min(first):
            break
    return {model: math.sqrt(sum(errors) / len(errors)) for model, errors in squared.items()}


def _fit_without(search: Search, model: str, left_out: npt.NDArray[np.bool_], start: Mapping[str, float]) -> Array:
    problem = search.problem(model, np.flatnonzero(~left_out))
    values = np.array([start.get(parameter.name, parameter.prior) for parameter in search.catalogue(model)])
    budget = round(BUDGET_SHARE * search.budget_steps)
    return refit(
        f"friction {model}",
        problem,
        values,
        budget_steps=budget,
        time_budget_s=search.left_s(BUDGET_SHARE),
        report=search.report,
    )


def _folds(windows: Windows) -> list[npt.NDArray[np.bool_]]:
    """Return masks of the windows that are left out together: whole trajectories if there are several."""
    used: list[int] = np.unique(windows.log_index).tolist()
    groups = [[used[place] for place in group] for group in by_trajectory([windows.logs[number] for number in used])]
    if len(groups) < 2:
        groups = [[number] for number in used]
    parts = min(FOLDS, len(groups))
    merged = [[number for group in groups[part::parts] for number in group] for part in range(parts)]
    return [np.isin(windows.log_index, members) for members in merged]
