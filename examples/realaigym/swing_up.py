"""The cheapest swing-up of a pole or of several, by direct multiple shooting (Bock and Plitt 1984) and IPOPT.

First with coarse steps, whose length is an unknown, from several random guesses; the best of them is the guess for the
control period's steps, which are the twin's own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from realaigym.dynamics import casadi, runge_kutta
from realaigym.errors import DesignError, TrajectoryError
from realaigym.tracking import FloatArray, Trajectory

COARSE_STEPS, COARSE_HOLD = 100, 50
"""Numbers of coarse steps until up, and from there to rest at the top."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Costs of a trajectory, as CasADi expressions."""

    time: Any
    """Time until up [s]."""
    energy: Any
    """Σ |effort · Δq| [J]."""
    effort: Any
    """Σ effort² Δt [N²·m²·s]."""
    rate: Any
    """Σ (effort's change)² / Δt [N²·m²/s]."""
    velocity: Any
    """Σ v² Δt over all joints [rad²/s]."""


@dataclass(frozen=True, kw_only=True)
class SwingUp:
    """A swing-up to be optimised."""

    model: Any
    """Compiled MjModel of hinges and slides."""
    driven: int
    """Index of the joint with the motor."""
    top: Sequence[float]
    """Joint positions at the end, at rest, shape (nv,) [rad or m]."""
    step_s: float
    """Control period [s]."""
    effort_limit: float
    """Greatest effort [N·m or N]."""
    rate_limit: float
    """Greatest change of the effort [N·m/s or N/s]."""
    is_up: Callable[[Any], Any]
    """From joint positions to a number that is positive where the pole is up."""
    cost: Callable[[Totals], Any]
    """What is minimised."""
    start: Sequence[float] | None = None
    """Joint positions at the start, at rest, shape (nv,) [rad or m]; zero unless given."""
    longest_s: float = 3.0
    """Longest time until up, and from there to rest at the top [s]."""
    velocity_limit: float = 20.0
    """Greatest joint speed [rad/s or m/s]."""


def optimised_swing_up(
    problem: SwingUp,
    *,
    guesses: int = 6,
    iterations: int = 600,
    seed: int = 0,
    progress: Callable[[str], object] | None = None,
) -> Trajectory:
    """The cheapest trajectory found from random guesses.

    Args:
        problem: what to optimise.
        guesses: number of guesses.
        iterations: after which a guess that has not converged is given up.
        seed: of the guesses.
        progress: gets a line for each guess.

    Raises:
        DesignError: the numbers of the problem or of guesses are not finite or not positive, or the
            model is not of hinges and slides.
        TrajectoryError: the optimiser found none from any guess.
    """
    _check(problem)
    if guesses < 1 or iterations < 1:
        raise DesignError(f"guesses is {guesses} and iterations {iterations}; both must be at least 1")
    random = np.random.default_rng(seed)
    coarse: list[_Found] = []
    for guess in range(guesses):
        found = _coarse(problem, random, iterations)
        if progress is not None:
            progress(f"guess {guess + 1} of {guesses}: " + ("none found" if found is None else f"cost {found[0]:.4f}"))
        if found is not None:
            coarse.append(found)
    if not coarse:
        raise TrajectoryError(
            f"no swing-up within {problem.longest_s:g} s and an effort of {problem.effort_limit:g} "
            f"from {guesses} guesses; give more time, effort or guesses"
        )
    for _, states, efforts, ends in sorted(coarse, key=lambda found: found[0]):
        fine = _fine(problem, states, efforts, ends)
        if fine is not None:
            return fine
    raise TrajectoryError("coarse swing-ups were found, but none with steps of the control period; try other guesses")


def _check(problem: SwingUp) -> None:
    if not 0 <= problem.driven < int(problem.model.nv):
        raise DesignError(f"driven is joint {problem.driven}; the model has {int(problem.model.nv)}")
    for name, pose in (("top", problem.top), ("start", _start(problem))):
        if len(pose) != int(problem.model.nv) or not np.isfinite(pose).all():
            raise DesignError(f"{name} is {tuple(pose)}; expected {int(problem.model.nv)} finite joint positions")
    for name in ("step_s", "effort_limit", "rate_limit", "longest_s", "velocity_limit"):
        value = float(getattr(problem, name))
        if not (math.isfinite(value) and value > 0.0):
            raise DesignError(f"{name} is {value}; it must be finite and positive")


def _start(problem: SwingUp) -> FloatArray:
    nv = int(problem.model.nv)
    return np.zeros(nv) if problem.start is None else np.asarray(problem.start, dtype=np.float64)


_Found = tuple[float, FloatArray, FloatArray, tuple[float, float]]


def _coarse(problem: SwingUp, random: Any, iterations: int) -> _Found | None:
    """Cost, states, efforts and the times of being up and of the end [s]."""
    solver = _Shooting(problem, COARSE_STEPS, COARSE_HOLD, iterations, fixed=False)
    count = COARSE_STEPS + COARSE_HOLD
    ramp = np.minimum(1.0, np.arange(count + 1) / COARSE_STEPS)[:, None]
    nv = int(problem.model.nv)
    waves = np.sin(2.0 * np.pi * ramp * random.uniform(1.0, 4.0) + random.uniform(0.0, 6.0, nv)) * (1.0 - ramp)
    begin = _start(problem)
    positions = begin + ramp * (np.asarray(problem.top) - begin) + random.uniform(0.3, 1.5) * waves
    states = np.hstack([positions, np.gradient(positions, axis=0) / 0.015])
    states[0] = np.r_[begin, np.zeros(nv)]
    steps = problem.longest_s * random.uniform(0.3, 0.8) / COARSE_STEPS, 0.01
    return solver.solve(states, np.zeros((count, 1)), steps)


def _fine(problem: SwingUp, states: FloatArray, efforts: FloatArray, ends: tuple[float, float]) -> Trajectory | None:
    """The coarse trajectory again in steps of the control period."""
    up, end = (math.ceil(value / problem.step_s) for value in ends)
    solver = _Shooting(problem, up, end - up, 600, fixed=True)
    knots = np.concatenate([np.linspace(0.0, up, COARSE_STEPS + 1), np.linspace(up, end, COARSE_HOLD + 1)[1:]])
    dense: list[FloatArray] = [np.interp(np.arange(end + 1), knots, column) for column in states.T]
    held = np.interp(np.arange(end) + 0.5, 0.5 * (knots[1:] + knots[:-1]), efforts[:, 0])[:, None]
    found = solver.solve(np.stack(dense, axis=1), held, (problem.step_s, problem.step_s))
    return None if found is None else Trajectory(found[1], found[2], up, found[0])


class _Shooting:
    """The nonlinear program of `steps` steps until up and `hold` steps to rest.

    A knot holds (qpos, qvel, last effort, energy, effort², rate², velocity², length of a step until up and after it).
    What is summed or the same in all steps is carried from knot to knot, so that every derivative stays banded.
    """

    def __init__(self, problem: SwingUp, steps: int, hold: int, iterations: int, *, fixed: bool) -> None:
        """Builds the program; with `fixed` the lengths of the steps are the control period."""
        self.problem, self.steps, self.hold, self.fixed = problem, steps, hold, fixed
        self.nv = int(problem.model.nv)
        count = steps + hold
        width = 2 * self.nv + 7
        knots, efforts = casadi.MX.sym("knots", width, count + 1), casadi.MX.sym("efforts", 1, count)
        later = casadi.DM(np.arange(count) >= steps).T
        advance, bounded, up = self._one_step(width)
        self.advance = advance
        carried = width - 2 if fixed else width  # known lengths need no equation
        program = {
            "x": casadi.vertcat(casadi.vec(knots), casadi.vec(efforts)),
            "f": problem.cost(self._totals(knots)),
            "g": casadi.vertcat(
                casadi.vec((knots[:, 1:] - advance.map(count)(knots[:, :-1], efforts, later))[:carried, :]),
                casadi.vec(bounded.map(count)(knots[:, :-1], efforts, later)),
                casadi.vec(up.map(hold + 1)(knots[:, steps:])),
            ),
        }
        self._lower = np.r_[np.zeros(carried * count), np.full(count, -1.0), np.zeros(hold + 1)]
        self._upper = np.r_[np.zeros(carried * count), np.full(count, 1.0), np.full(hold + 1, np.inf)]
        quiet = {"print_level": 0, "sb": "yes", "max_iter": iterations, "tol": 1e-6}
        self._solver = casadi.nlpsol(
            "swing_up", "ipopt", program, {"ipopt": quiet, "print_time": False, "show_eval_warnings": False}
        )

    def _one_step(self, width: int) -> tuple[Any, Any, Any]:
        """Three functions: the next knot, the effort's rate as a share of its limit, and how far up a knot is.

        The first two are of (knot, effort, 1 after the pole is up), the third of a knot.
        """
        problem, nv = self.problem, self.nv
        knot, effort, later = casadi.SX.sym("knot", width), casadi.SX.sym("effort"), casadi.SX.sym("later")
        before, sums, lengths = knot[2 * nv], knot[2 * nv + 1 : 2 * nv + 5], knot[2 * nv + 5 :]
        step = casadi.if_else(later > 0.5, lengths[1], lengths[0])
        driven = np.zeros(nv)
        driven[problem.driven] = 1.0
        moved = runge_kutta(problem.model)(knot[: 2 * nv], casadi.DM(driven) * effort, step)
        work = effort * (moved[problem.driven] - knot[problem.driven])
        rate = (effort - before) / step
        cost = casadi.vertcat(
            casadi.sqrt(work**2 + (0.005 * step) ** 2),  # |work| with its corner rounded at 0.005 W
            effort**2 * step,
            rate**2 * step / problem.rate_limit**2,
            casadi.sumsqr(knot[nv : 2 * nv]) * step,
        )
        after = casadi.vertcat(moved, effort, sums + cost, lengths)
        return (
            casadi.Function("advance", [knot, effort, later], [after]),
            casadi.Function("bounded", [knot, effort, later], [rate / problem.rate_limit]),
            casadi.Function("up", [knot], [problem.is_up(knot[:nv])]),
        )

    def _totals(self, knots: Any) -> Totals:
        last = knots[2 * self.nv + 1 :, -1]
        return Totals(
            time=self.steps * last[4],
            energy=last[0],
            effort=last[1],
            rate=last[2] * self.problem.rate_limit**2,
            velocity=last[3],
        )

    def solve(self, states: FloatArray, efforts: FloatArray, lengths: tuple[float, float]) -> _Found | None:
        """Solves from a guess; None where the optimiser does not converge."""
        count, split = self.steps + self.hold, (2 * self.nv + 7) * (self.steps + self.hold + 1)
        low, high = self._bounds(lengths)
        limit = np.full(count, self.problem.effort_limit)
        found = self._solver(
            x0=np.r_[self._guess(states, efforts, lengths).ravel(), efforts.ravel()],
            lbx=np.r_[low.ravel(), -limit],
            ubx=np.r_[high.ravel(), limit],
            lbg=self._lower,
            ubg=self._upper,
        )
        if not self._solver.stats()["success"]:
            return None
        values = np.array(found["x"]).ravel()
        knots = values[:split].reshape(count + 1, -1)
        up = self.steps * knots[0, -2]
        ends = float(up), float(up + self.hold * knots[0, -1])
        return float(found["f"]), knots[:, : 2 * self.nv], values[split:, None], ends

    def _guess(self, states: FloatArray, efforts: FloatArray, lengths: tuple[float, float]) -> FloatArray:
        """Knots of guessed states, with the sums that they and the efforts make."""
        count = self.steps + self.hold
        rest = np.zeros((count + 1, 7))
        rest[1:, 0] = efforts[:, 0]
        rest[:, 5:] = lengths
        knots = np.hstack([states, rest])
        sums = slice(2 * self.nv + 1, 2 * self.nv + 5)
        for k in range(count):
            after = np.array(self.advance(knots[k], efforts[k], float(k >= self.steps))).ravel()
            knots[k + 1, sums] = after[sums]
        return knots

    def _bounds(self, lengths: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
        """Least and greatest knots: from rest to rest at the top, within the limits of position and speed."""
        problem, nv = self.problem, self.nv
        high = np.full((self.steps + self.hold + 1, 2 * nv + 7), np.inf)
        high[:, nv : 2 * nv] = problem.velocity_limit
        low = -high
        for joint in np.flatnonzero(problem.model.jnt_limited):
            low[:, joint], high[:, joint] = problem.model.jnt_range[joint]
        low[:, 2 * nv + 1 : 2 * nv + 5] = 0.0  # a cost may take the root of a sum
        low[0, : 2 * nv + 5] = high[0, : 2 * nv + 5] = np.r_[_start(problem), np.zeros(nv + 5)]
        low[-1, : 2 * nv] = high[-1, : 2 * nv] = np.r_[np.asarray(problem.top, dtype=np.float64), np.zeros(nv)]
        longest = np.array([problem.longest_s / self.steps, problem.longest_s / self.hold])
        low[:, -2:] = lengths if self.fixed else 0.2 * problem.step_s
        high[:, -2:] = lengths if self.fixed else longest
        return low, high
