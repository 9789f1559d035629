"""Design commands whose recording constrains parameters that the recordings of a twin left open.

The design is optimal among random candidates: each is played in the twin, and the information that its recording would
contain is added to the twin's posterior (Bayesian D-optimality: Chaloner and Verdinelli, Statistical Science 10, 1995).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.files import write_atomic
from physai.sim.robots import Robot
from physai.twin.calibration.fit.identifiability import SHRINKAGE
from physai.twin.calibration.fit.problem import Problem
from physai.twin.calibration.replay.drive import choose_drive
from physai.twin.calibration.replay.replay import WINDOW_S
from physai.twin.calibration.replay.windows import cut
from physai.twin.calibration.stand_in.synthetic_robot import StandIn, SyntheticRecording, excite
from physai.twin.logs import LogError, RobotLog
from physai.twin.logs.readers.csv_file import read_csv
from physai.twin.model.twin import Twin
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import Parameter

Array = npt.NDArray[np.float64]

CANDIDATES = 12
MAX_CANDIDATES = 1000
STEPS = (0.0, 0.1, 0.25)
"""Sizes of the random steps in the candidates' commands, as a share of the effort limit."""


@dataclass(frozen=True, kw_only=True)
class Excitation:
    """Commands, and what their recording would tell."""

    recording: SyntheticRecording
    """The commands, and the twin's motion under them."""
    before: dict[str, float]
    """Standard deviation of the parameters that it was designed for, in their units."""
    after: dict[str, float]
    """The same with a recording of these commands in addition."""
    prior: dict[str, float]
    """The same without any recording."""

    @property
    def constrained(self) -> tuple[str, ...]:
        """Parameters that the recording would constrain: it at least halves the prior's standard deviation."""
        return tuple(name for name, std in self.after.items() if std <= SHRINKAGE * self.prior[name])


def design_excitation(
    twin: Twin,
    names: Sequence[str] = (),
    *,
    duration_s: float = 10.0,
    rate_hz: float = 250.0,
    candidates: int = CANDIDATES,
    seed: int = 0,
    num_threads: int = 1,
    tell: Callable[[float], None] = lambda done: None,
) -> Excitation:
    """Choose the candidate after which the named parameters are known best.

    Args:
        twin: the twin.
        names: parameters to constrain; by default those that its recordings do not.
        duration_s: length of the commands [s].
        rate_hz: commands per second.
        candidates: number of random candidates.
        seed: seed of the candidates.
        num_threads: threads of the simulation.
        tell: called with the completed share, 0 to 1.

    Raises:
        UnknownNameError: the twin has no such parameter.
        PhysaiError: it has none that its recordings leave open, its robot has a floating base, or every candidate
            exceeds the robot's limits.
        TwinError: the twin's robot cannot be loaded, or has changed.
    """
    known = [parameter.name for parameter in twin.parameters]
    for name in names:
        if name not in known:
            raise unknown_name("parameter", name, known)
    wanted = [known.index(name) for name in (names or twin.unconstrained)]
    if not wanted:
        raise PhysaiError(
            "the recordings of this twin constrain every parameter; name those to know better with `parameters`"
        )
    if not 1 <= candidates <= MAX_CANDIDATES:
        raise PhysaiError(f"`candidates` must be in 1 … {MAX_CANDIDATES}, got {candidates}")
    robot = twin.nominal()
    if robot.spec.base == "floating":
        raise PhysaiError(
            f"robot {robot.name} has a floating base, and commands are designed for fixed ones; record other motions, "
            "or suspend the robot and calibrate a model with a fixed base"
        )
    # The parameters' own posterior, in prior units, as information that a recording adds to.
    units = np.array([parameter.prior_std for parameter in twin.parameters])
    precision = np.linalg.pinv(twin.covariance / np.outer(units, units))
    best: tuple[float, SyntheticRecording, Array] | None = None
    failure: PhysaiError | None = None
    for number in range(candidates):
        tell(number / candidates)
        try:
            made = _candidate(twin, robot, number, duration_s, rate_hz, seed)
            information = _information(twin, robot, made, num_threads)
        except PhysaiError as error:
            failure = error
            continue
        spread = np.sqrt(np.diag(np.linalg.pinv(precision + information)))
        score = float(np.log(np.maximum(spread[wanted], 1e-12)).sum())
        if best is None or score < best[0]:
            best = score, made, spread
    if best is None:
        raise PhysaiError(f"none of {candidates} candidates can be played: {failure}")
    _, made, spread = best
    before = np.sqrt(np.diag(twin.covariance))
    return Excitation(
        recording=made,
        before={known[i]: float(before[i]) for i in wanted},
        after={known[i]: float(spread[i] * units[i]) for i in wanted},
        prior={known[i]: float(units[i]) for i in wanted},
    )


def _candidate(
    twin: Twin, robot: Robot, number: int, duration_s: float, rate_hz: float, seed: int
) -> SyntheticRecording:
    """Play random commands in the twin, gentle enough for the robot's speed limits."""
    model = calibration_model(robot)
    twin.apply_commanded(model, twin.values)
    lag_s = twin.timing.command_lag_mean_s or 0.0
    stand_in = StandIn(robot=robot, model=model, hidden={}, delay_s=lag_s, seed=seed)
    return excite(stand_in, duration_s=duration_s, rate_hz=rate_hz, seed=number, steps=STEPS[number % len(STEPS)])


def _information(twin: Twin, robot: Robot, made: SyntheticRecording, num_threads: int) -> Array:
    """Return what a recording tells about the twin's parameters, J'·J in prior units, shape (P, P)."""
    log = as_log(made, robot)
    drive = choose_drive(robot, [log])
    windows = cut([log], WINDOW_S, stride_s=0.5 * WINDOW_S)
    parameters = [
        Parameter(name=p.name, unit=p.unit, prior=p.prior, prior_std=p.prior_std, lower=p.lower, upper=p.upper)
        for p in twin.parameters
    ]
    problem = Problem(robot, parameters, windows, drive, num_threads=num_threads)
    problem.measure_spread(twin.values)
    information = problem.linearise(twin.values).information
    if twin.residuals is None:
        return information
    # The twin's own errors on real recordings, not the noise of a simulation, limit what a recording tells.
    errors = np.array([error.value for error in twin.residuals.twin])
    return information * float(np.minimum(1.0, problem.spread / errors).min()) ** 2


def as_log(made: SyntheticRecording, robot: Robot) -> RobotLog:
    """Return a synthetic recording as a log."""
    servos = any(joint.stiffness > 0.0 for joint in robot.spec.joints)
    return RobotLog(
        name="excitation",
        joint_names=robot.spec.joint_names,
        time=made.time,
        joint_pos=made.joint_pos,
        joint_vel=made.joint_vel,
        joint_effort=None if servos else made.joint_effort,
        command=made.command,
        command_kind="joint_pos" if servos else "joint_effort",
        source="excitation",
        sha256="0" * 64,
    )


def write_commands(excitation: Excitation, robot: Robot, path: Path) -> None:
    """Write the commands as CSV: `time` [s] and one column `JOINT.command` per joint, in its unit.

    Raises:
        OSError: the file cannot be written.
    """
    made = excitation.recording
    header = ",".join(["time", *(f"{name}.command" for name in robot.spec.joint_names)])
    rows = [",".join(f"{value:.9g}" for value in row) for row in np.hstack([made.time[:, None], made.command]).tolist()]
    write_atomic(path, ("\n".join([header, *rows]) + "\n").encode())


def read_commands(path: Path, robot: Robot) -> tuple[Array, float]:
    """Read what `write_commands` wrote; return the commands, shape (n, J), and their rate [1/s].

    Raises:
        LogError: the file cannot be read, or is not of this robot's joints.
    """
    (stream,) = read_csv(path).streams
    wanted = ["time", *(f"{name}.command" for name in robot.spec.joint_names)]
    missing = [name for name in wanted if name not in stream.columns]
    if missing:
        raise LogError(
            f"{path}: has the columns {', '.join(stream.columns)}; commands for {robot.name} need "
            f"{', '.join(missing)}, too"
        )
    time, *columns = (stream.columns[name] for name in wanted)
    command = np.stack(columns, axis=1)
    if not (np.isfinite(command).all() and np.isfinite(time).all()):
        raise LogError(f"{path}: needs a number in every cell")
    period_s = float(np.median(np.diff(time)))
    # The file's nine digits round a time by at most this much.
    if not (period_s > 0.0 and np.abs(np.diff(time) - period_s).max() <= 1e-3 * period_s):
        raise LogError(f"{path}: commands must be evenly spaced in time, in ascending order")
    return command, 1.0 / period_s


def envelope(excitation: Excitation, robot: Robot) -> Iterator[tuple[str, float, float, float, float]]:
    """Return how each joint moves in the twin: name, least and greatest position, greatest speed and command."""
    made: Any = excitation.recording
    for number, name in enumerate(robot.spec.joint_names):
        position, speed, command = (values[:, number] for values in (made.joint_pos, made.joint_vel, made.command))
        yield (
            name,
            float(position.min()),
            float(position.max()),
            float(np.abs(speed).max()),
            float(np.abs(command).max()),
        )
