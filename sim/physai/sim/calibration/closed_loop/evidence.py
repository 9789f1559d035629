"""What recorded runs say of a twin's parameters: each run is played in draws that the other runs support."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sim.calibration.closed_loop.offsets import replayable
from physai.sim.calibration.fit.identifiability import Linearisation, gradient_covariance, noise_weights
from physai.sim.calibration.fit.problem import Problem
from physai.sim.calibration.replay.replay import WINDOW_S, windows_of
from physai.sim.logs import RobotLog
from physai.sim.tasks.task import Task
from physai.sim.twin.models import covariance_root
from physai.sim.twin.parameter import Parameter
from physai.sim.twin.twin import REDRAWS, Twin

Array = npt.NDArray[np.float64]

EVIDENCE_STREAM = 0x5EED_E71D
"""Seed of the draws that runs support."""
EVIDENCE_WINDOWS, EVIDENCE_WINDOWS_EACH = 400, 40
"""Number of windows that are replayed, at least so many per run."""
WEIGHINGS = 2
"""Linearisations about the offsets that the one before has found."""


@dataclass(frozen=True)
class RunDraws:
    """K draws of a twin's P parameters for each of L runs."""

    values: Array
    """Shape (K, L, P); of one draw, all runs have nearly the same."""
    runs: int = 0
    """Number of runs whose replays narrowed the parameters for the others; 0 if none did."""

    @property
    def means(self) -> Array:
        """Mean of each draw over its runs, shape (K, P)."""
        return self.values.mean(axis=1)


def run_draws(twin: Twin, task: Task, logs: Sequence[RobotLog], draws: int, seed: int) -> RunDraws:
    """Draw parameters for each run from the twin's posterior, given the other runs' replays from measured efforts.

    The parameters are v = v0 + R·z with z ~ N(0, 1), where v0 are the twin's and R·R' is their covariance. Windows of
    the other runs, replayed from measured efforts, have the gradient g = J'·r and the information H = J'·J about z.
    With the covariance N of g, z is normal with the covariance V = (1 + H·N⁻¹·H)⁻¹ and the mean -V·H·N⁻¹·g.

    What is tested is not used twice: a run's own replay does not count, and a replay from measured efforts says nothing
    of outcome, timing, or how commands become efforts. Fewer than two runs with measured efforts, or a twin without
    uncertainty, leave the posterior as it is.

    Args:
        twin: the twin.
        task: the policy's task.
        logs: recordings of L runs.
        draws: number of draws.
        seed: of the draws.
    """
    replayed = [run for run in replayable(task, logs) if logs[run].joint_effort is not None]
    root = covariance_root(twin.covariance)
    if len(replayed) < 2 or not root.any():
        return RunDraws(np.repeat(twin.draw(draws, seed)[:, None], len(logs), axis=1))
    evidence = _Evidence.of(twin, task, [logs[run] for run in replayed], root)
    posteriors = [evidence.without(replayed.index(run) if run in replayed else None) for run in range(len(logs))]
    lower, upper = (np.array([getattr(p, end) for p in twin.parameters]) for end in ("lower", "upper"))
    rng = np.random.default_rng([seed, EVIDENCE_STREAM])

    def drawn(count: int) -> Array:
        # One z for all runs of a draw, which are those of one robot.
        z = rng.standard_normal((count, root.shape[1]))
        return np.stack([twin.values + (mean + z @ spread) @ root.T for mean, spread in posteriors], axis=1)

    values = drawn(draws)
    for _ in range(REDRAWS):
        outside = np.flatnonzero(((values < lower) | (values > upper)).any(axis=(1, 2)))
        if not len(outside):
            break
        values[outside] = drawn(len(outside))
    return RunDraws(np.clip(values, lower, upper), len(replayed))


@dataclass(frozen=True)
class _Evidence:
    """Gradient and information of L runs' windows about z."""

    linear: Linearisation
    root: Array
    """R in prior standard deviations, shape (P, P)."""
    shared: Array
    """Covariance of the gradient by z that the runs' offsets may cause together."""

    @classmethod
    def of(cls, twin: Twin, task: Task, logs: Sequence[RobotLog], root: Array) -> "_Evidence":
        windows = windows_of(task.robot, logs, WINDOW_S, stride_s=0.5 * WINDOW_S)
        windows = windows.thinned(max(EVIDENCE_WINDOWS, EVIDENCE_WINDOWS_EACH * len(logs)))
        names = ("name", "unit", "prior", "prior_std", "lower", "upper")
        parameters = [Parameter(**{name: getattr(p, name) for name in names}) for p in twin.parameters]
        problem = Problem(task.robot, parameters, windows, "effort", num_threads=len(os.sched_getaffinity(0)))
        for _ in range(WEIGHINGS):
            problem.measure_spread(twin.values)
        linear = problem.linearise(twin.values)
        scaled = root / problem.std[:, None]
        assert linear.shared is not None
        # It is the sum for independent offsets. Those of one robot's encoders may all be alike, which is L times that.
        return cls(linear, scaled, len(logs) * scaled.T @ linear.shared @ scaled)

    def without(self, run: int | None) -> tuple[Array, Array]:
        """Return mean and symmetric root of the covariance of z given all runs but one."""
        chosen = self.linear.log_index != (-1 if run is None else run)
        jacobian = self.linear.jacobian[chosen] @ self.root
        gradients = self.linear.gradients[chosen] @ self.root
        information = np.einsum("wsi,wsj->ij", jacobian, jacobian)
        # Runs of one policy repeat one motion, and a model's errors with it.
        noise = gradient_covariance(gradients, self.linear.start_s[chosen]) + self.shared
        weights = noise_weights(information, noise)
        size, turn = np.linalg.eigh(np.eye(len(information)) + weights @ information)
        mean = -(turn / size) @ (turn.T @ (weights @ gradients.sum(axis=0)))
        return mean, (turn / np.sqrt(size)) @ turn.T
