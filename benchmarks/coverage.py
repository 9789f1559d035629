"""`python -m benchmarks coverage`: how often 95 % intervals of a twin contain what they are of.

Random arms are recorded as stand-ins with hidden parameters: as the model describes them, and with a cable, drag or
Stribeck friction, of which the model knows nothing. Each arm is calibrated from two splits of
its recordings, too.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.twins import DURATION_S, RATE_HZ, STEPS, random_chain
from physai.sim.robots import Robot
from physai.twin.calibration.calibrate import Calibration, fit_twin
from physai.twin.calibration.stand_in.synthetic_robot import excite, stand_in, write_columns, write_recording
from physai.twin.logs import RobotLog, read_logs

Array = npt.NDArray[np.float64]
Efforts = Callable[[Array, Array], Array]
"""Efforts of positions and speeds, shape (J,) each."""

ROBOTS, QUICK_ROBOTS = 8, 1
RECORDINGS, TRAINED = 5, 3
BUDGET_STEPS = 3_000_000
NORMAL_95 = 1.96
AGREE = 3.0
"""Two calibrations agree if no parameter differs by more standard deviations of the difference."""


def unmodelled(kind: str, limit: Array) -> Efforts | None:
    """Return what a stand-in has and its model lacks: some per cent of the effort limits, shape (J,)."""
    if kind == "cable":
        return lambda q, v: -0.02 * limit * np.sin(q - 0.5)
    if kind == "drag":
        return lambda q, v: -0.0005 * limit * v * np.abs(v)
    if kind == "stribeck":
        return lambda q, v: -0.02 * limit * np.exp(-((v / 0.5) ** 2)) * np.tanh(v / 0.05)
    return None


KINDS: tuple[str, ...] = ("right", "cable", "drag", "stribeck")


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Fits twins of random arms, and counts the hidden values that lie in the intervals."""
    inside, total, agreeing = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0), 0
    robots = QUICK_ROBOTS if options.quick else ROBOTS
    for seed in range(robots):
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder:
                robot, logs, hidden = recorded(seed, kind, Path(folder))
                fitted = fit(robot, logs[:TRAINED], logs[TRAINED:])
                found = covered(fitted, hidden)
                inside[kind], total[kind] = inside[kind] + sum(found), total[kind] + len(found)
                report(f"robot {seed}, {kind}: {sum(found)} of {len(found)} hidden values in their intervals")
                if kind == "right":
                    agreeing += agree(fitted, fit(robot, logs[-TRAINED:], logs[:-TRAINED]))
    wrong = [kind for kind in KINDS if kind != "right"]
    if not all(total.values()):
        raise WorkloadError("no parameter was fitted")
    share = sum(inside[kind] for kind in wrong) / sum(total[kind] for kind in wrong)
    return [
        BenchmarkResult(name="coverage.right", unit="1", runs=(inside["right"] / total["right"],)),
        BenchmarkResult(name="coverage.wrong_model", unit="1", runs=(share,)),
        *(BenchmarkResult(name=f"coverage.{kind}", unit="1", runs=(inside[kind] / total[kind],)) for kind in wrong),
        BenchmarkResult(name="splits_agree", unit="1", runs=(float(agreeing),)),
        BenchmarkResult(name="splits_total", unit="1", runs=(float(robots),)),
    ]


def recorded(seed: int, kind: str, folder: Path) -> tuple[Robot, Sequence[RobotLog], dict[str, float]]:
    """Record a random arm; return it with its hidden values."""
    robot = random_chain(seed, folder)
    place = folder / "recordings"
    place.mkdir()
    write_columns(robot, place)
    limit = np.array([joint.effort_limit or 1.0 for joint in robot.spec.joints])
    truth = replace(stand_in(robot, seed), unmodelled=unmodelled(kind, limit))
    for number in range(RECORDINGS):
        made = excite(truth, duration_s=DURATION_S, rate_hz=RATE_HZ, seed=number, steps=STEPS)
        write_recording(made, robot, place / f"{number}.csv")
    return robot, read_logs(sorted(place.glob("*.csv")), robot.spec), truth.hidden


def fit(robot: Robot, train: Sequence[RobotLog], held_out: Sequence[RobotLog]) -> Calibration:
    """Calibrate with Coulomb and viscous friction."""
    return fit_twin(robot, train, held_out, friction="coulomb", budget_steps=BUDGET_STEPS)


def covered(fitted: Calibration, hidden: dict[str, float]) -> list[bool]:
    """Whether each constrained parameter's interval contains the hidden value."""
    return [
        abs(parameter.value - hidden[parameter.name]) <= NORMAL_95 * parameter.std
        for parameter in fitted.twin.parameters
        if parameter.identified and parameter.name in hidden
    ]


def agree(one: Calibration, other: Calibration) -> bool:
    """Whether two calibrations of one robot have the same parameters, as far as their intervals tell."""
    pairs = zip(one.twin.parameters, other.twin.parameters, strict=True)
    return all(abs(a.value - b.value) <= AGREE * np.hypot(a.std, b.std) for a, b in pairs)
