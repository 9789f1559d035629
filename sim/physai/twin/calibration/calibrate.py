"""Split recordings, fit a twin to them, and score it on held-out ones."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.process.software import running_software
from physai.sim.robots import Robot
from physai.twin.calibration.alternatives import command_alternatives, model_alternatives
from physai.twin.calibration.fit.fit import BUDGET_STEPS, Fit, FitProgress
from physai.twin.calibration.fit.friction_choice import AUTO, Search, fit_friction
from physai.twin.calibration.fit.links import outside_links
from physai.twin.calibration.measured import (
    at_two_rates,
    error_floors,
    held_out_lag,
    measured_actuators,
    measured_noise,
    measured_readings,
    measured_timing,
)
from physai.twin.calibration.replay.drive import choose_drive, servo_saturation
from physai.twin.calibration.replay.replay import (
    WINDOW_MAX_S,
    WINDOW_MIN_S,
    WINDOW_S,
    ReplayScore,
    replay,
    require_logs_of,
    windows_of,
)
from physai.twin.calibration.replay.sample import replay_sample
from physai.twin.calibration.replay.windows import Windows
from physai.twin.calibration.split import LAG_OF, untested
from physai.twin.claims.spot_check import MOTION_MIN
from physai.twin.logs import LogError, RobotLog
from physai.twin.logs.comparison.overlap import overlapping
from physai.twin.logs.comparison.same_motion import same_motion
from physai.twin.model.credibility import lag_doubt
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Alternative, FittedParameter, Interval, LogRecord, Logs, Residuals
from physai.twin.parameters.models import calibration_model, installed_version, model_fingerprint, robot_reference
from physai.twin.parameters.parameters import Parameter, catalogue

Array = npt.NDArray[np.float64]

MAX_BUDGET_STEPS = 10**12


class _Limits(TypedDict):
    budget_steps: int
    deadline_s: float


FIT_TIME_SHARE = 0.85
"""Share of a time budget after which all fits have ended; the rest is for the scores."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A twin with its fit and scores."""

    twin: Twin
    fit: Fit
    train: ReplayScore
    train_nominal: ReplayScore
    held_out: ReplayScore | None
    held_out_nominal: ReplayScore | None
    commanded: ReplayScore | None = None
    """Held-out recordings replayed from commands, if the twin knows how its motors follow them."""
    commanded_nominal: ReplayScore | None = None
    file: Path | None = None
    """Twin file that was written."""
    report: Path | None = None
    """Page of the report that was written."""


def fit_twin(
    robot: Robot,
    train: Sequence[RobotLog],
    held_out: Sequence[RobotLog] = (),
    *,
    window_s: float = WINDOW_S,
    budget_steps: int = BUDGET_STEPS,
    time_budget_s: float | None = None,
    seed: int = 0,
    num_threads: int = 0,
    ray: str | None = None,
    still: Sequence[RobotLog] = (),
    only: Sequence[str] = (),
    friction: str = AUTO,
    folder: Path | None = None,
    report: Callable[[FitProgress], None] = lambda step: None,
) -> Calibration:
    """Fit the twin of a robot to recordings and score it on others.

    Args:
        robot: the nominal robot.
        train: recordings to fit.
        held_out: recordings for the score; without any the twin is not credible.
        window_s: length of the windows [s].
        budget_steps: number of physics steps after which the search ends with the best result so far.
        time_budget_s: all fits end after 85 % of this time, too [s]; the result then depends on the computer. None for
            no limit.
        seed: seed of the bootstrap.
        num_threads: threads; 0 for one per available processor.
        ray: cluster that replays the alternatives to the twin, see `model_alternatives`; None for this process.
        still: recordings of the robot at rest, for its sensor noise.
        only: parameters to fit; all of them by default. The twin has the others, too, as not constrained: a verdict
            must not take for known what was never fitted. The intervals of the fitted ones are those at nominal values
            of the others.
        friction: friction model of the joints, a key of `physai.sim.friction.MODELS`; by default Coulomb friction where
            that is enough, else the terms of all that recordings left out of fits do not exclude, see `fit_friction`.
        folder: folder of the twin file, to which the path of the robot's file is relative. The current one by default.
        report: called after every evaluation.

    Raises:
        LogError: the recordings are of another robot, too short, or without motion.
        UnknownNameError: `only` names a parameter that the robot does not have, or there is no such friction model.
    """
    logs = (*train, *held_out)
    _check(robot, train, held_out, window_s)
    limits = _limits(budget_steps, time_budget_s)
    drive = choose_drive(robot, logs)
    windows = windows_of(robot, train, window_s, stride_s=0.5 * window_s)
    _require_motion(windows)
    threads = num_threads or len(os.sched_getaffinity(0))
    two_rates = bool(robot.model.nu) and at_two_rates(train)
    every = partial(catalogue, robot, drive, saturation=servo_saturation(robot, train), two_rates=two_rates)
    search = Search(
        robot=robot,
        catalogue=lambda model: _select(every(model), only),
        windows=windows,
        drive=drive,
        **limits,
        num_threads=threads,
        report=report,
    )
    chosen = "coulomb" if only and friction == AUTO else friction
    parameters, fitted = fit_friction(search, chosen)
    twin = _measured_twin(robot, train, held_out, still, motors=drive == "effort", folder=folder)
    twin = replace(_with_fit(twin, parameters, fitted, robot.model), seed=seed)
    if only:
        twin = _with_left_out(twin, every(chosen))
    score = partial(replay, robot=robot, window_s=window_s, seed=seed, num_threads=threads)

    def told(stage: str) -> None:
        rmse = np.array(fitted.history[-1] if fitted.history else ())
        report(FitProgress(stage=stage, evaluations=0, rmse=rmse, parameters=len(fitted.chosen), share=1.0))

    return _judged(twin, fitted, robot, train, held_out, score, told, num_threads=threads, ray=ray)


def _measured_twin(
    robot: Robot,
    train: Sequence[RobotLog],
    held_out: Sequence[RobotLog],
    still: Sequence[RobotLog],
    *,
    motors: bool,
    folder: Path | None,
) -> Twin:
    """Return the nominal robot with what recordings show without a fit; `motors` make their effort of commands."""
    logs, home = (*train, *held_out), (folder or Path.cwd()).resolve()
    return Twin(
        robot=robot_reference(robot, home),
        model_sha256=model_fingerprint(robot),
        joint_names=robot.spec.joint_names,
        noise=measured_noise((*logs, *still)),
        sensors=measured_readings(logs),
        timing=measured_timing(train, held_out),
        actuators=measured_actuators(train) if motors else (),
        physai_version=installed_version(),
        software=running_software(),
        folder=str(home),
    )


def _judged(
    twin: Twin,
    fitted: Fit,
    robot: Robot,
    train: Sequence[RobotLog],
    held_out: Sequence[RobotLog],
    score: Callable[..., ReplayScore],
    told: Callable[[str], None],
    *,
    num_threads: int,
    ray: str | None,
) -> Calibration:
    """Score a fitted twin, the nominal robot and the alternatives; `score` replays recordings in a twin or a model."""

    # A replay silences the model that it gets, so every replay gets its own.
    def nominal() -> Any:
        return calibration_model(robot)

    told("scores of the fitted recordings")
    train_score, train_nominal = score(twin, logs=train), score(nominal(), logs=train)
    told("scores of the held-out recordings")
    held = score(twin, logs=held_out) if held_out else None
    held_nominal = score(nominal(), logs=held_out) if held_out else None
    commanded = commanded_nominal = None
    if held is not None and held_nominal is not None:
        told("scores of the changed twins")
        others = model_alternatives(robot, twin, twin.model(), held, num_threads=num_threads, ray=ray)
        lag = held_out_lag(train, held_out)
        twin = replace(
            twin,
            residuals=residuals(held, held_nominal, command_lag=lag, alternatives=others),
            sample=replay_sample(twin, robot, held),
        )
        sent = with_commands(twin, held_out)
        if sent:
            told("scores from commands")
            commanded = score(twin, logs=sent, drive="command")
            commanded_nominal = score(nominal(), logs=sent, drive="command")
            driven = twin.model()
            twin.add_motor_inertia(driven)
            others = command_alternatives(robot, twin, driven, commanded, num_threads=num_threads, ray=ray)
            twin = replace(twin, command_residuals=residuals(commanded, commanded_nominal, alternatives=others))
    known = lag_doubt(twin) == (0.0, 0.0)
    left_out = [what for what in untested(train, held_out) if not (known and what.startswith(LAG_OF))]
    if left_out:
        note = f"shown by fitted recordings alone, and so not tested: {', '.join(left_out)}"
        twin = replace(twin, notes=(*twin.notes, note[:500]))
    twin = replace(twin, logs=Logs(train=_records(train_score), held_out=() if held is None else _records(held)))
    return Calibration(
        twin=twin,
        fit=fitted,
        train=train_score,
        train_nominal=train_nominal,
        held_out=held,
        held_out_nominal=held_nominal,
        commanded=commanded,
        commanded_nominal=commanded_nominal,
    )


def with_commands(twin: Twin, logs: Sequence[RobotLog]) -> tuple[RobotLog, ...]:
    """Return the recordings that can be replayed from commands through the twin's motors."""
    if not twin.actuators:
        return ()
    return tuple(log for log in logs if log.command_kind == "joint_effort" and log.joint_effort is not None)


def residuals(
    twin: ReplayScore,
    nominal: ReplayScore,
    *,
    command_lag: Interval | None = None,
    alternatives: tuple[Alternative, ...] = (),
) -> Residuals:
    """Summarise two scores on the same windows, the command lag in them, and the alternatives, for the twin file."""
    return Residuals(
        window_s=twin.windows.window_s,
        joint_names=twin.joint_names,
        twin=twin.rmse,
        nominal=nominal.rmse,
        gain=twin.gain_over(nominal),
        at_zero=tuple(float(x) for x in twin.rmse_at_zero),
        gain_at_zero=twin.at_zero().gain_over(nominal.at_zero()),
        motion=tuple(float(x) for x in twin.windows.motion()),
        floor=error_floors(twin.windows.logs),
        command_lag=command_lag,
        alternatives=alternatives,
    )


def _check(robot: Robot, train: Sequence[RobotLog], held_out: Sequence[RobotLog], window_s: float) -> None:
    require_logs_of(robot, train)
    if held_out:
        require_logs_of(robot, held_out)
    # By content, because the same recording may have two names or formats.
    shared = {log.sha256 for log in train} & {log.sha256 for log in held_out}
    for log in train:
        if log.sha256 in shared:
            raise LogError(f"log {log.name} is to be fitted and held out; a held-out recording must not be fitted")
    both = (*train, *held_out)
    for found, what in ((overlapping, "samples"), (same_motion, "motion")):
        for one, other, share in found(both):
            names = f"logs {both[one].name} and {both[other].name}"
            common = f"{names} have {share:.0%} of the shorter one's {what} in common"
            if one < len(train) <= other:
                raise LogError(f"{common}; a held-out recording must not be fitted")
            if one >= len(train):
                raise LogError(f"{common}; hold out different recordings, as a copy is no second one")
    names = {log.sha256: log.name for log in held_out}
    for log in held_out:
        if names[log.sha256] != log.name:
            raise LogError(f"logs {log.name} and {names[log.sha256]} are the same; hold out different recordings")
    if not WINDOW_MIN_S <= window_s <= WINDOW_MAX_S:
        raise PhysaiError(f"`window_s` must lie in {WINDOW_MIN_S:g} … {WINDOW_MAX_S:g} s, got {window_s:g}")


def _limits(budget_steps: int, time_budget_s: float | None) -> _Limits:
    if time_budget_s is not None and not 1.0 <= time_budget_s <= 1e6:
        raise PhysaiError(f"the time budget must be in 1 … 1 000 000 s, got {time_budget_s:g}")
    if not 1 <= budget_steps <= MAX_BUDGET_STEPS:
        raise PhysaiError(f"the budget must be 1 to {MAX_BUDGET_STEPS:g} physics steps, got {budget_steps:g}")
    limit_s = math.inf if time_budget_s is None else FIT_TIME_SHARE * time_budget_s
    return {"budget_steps": budget_steps, "deadline_s": time.monotonic() + limit_s}


def _select(parameters: Sequence[Parameter], only: Sequence[str]) -> tuple[Parameter, ...]:
    known = {parameter.name: parameter for parameter in parameters}
    for name in only:
        if name not in known:
            raise unknown_name("parameter", name, known)
    return tuple(parameter for parameter in parameters if not only or parameter.name in only)


def _require_motion(windows: Windows) -> None:
    moved = windows.motion()
    if not float(moved.max()) >= MOTION_MIN:
        raise LogError(
            f"nothing moves enough in these recordings: within {windows.window_s:g} s the most active joint moves by "
            f"{moved.max():.2g} (root mean square), a fit needs {MOTION_MIN:g} rad or m; record the robot swinging or "
            "tracking a trajectory through its range"
        )


def _fitted_parameters(parameters: Sequence[Parameter], result: Fit) -> tuple[FittedParameter, ...]:
    chosen = set(result.chosen.tolist())
    # The covariance is in prior units; `prior_std` converts it below.
    spread = np.sqrt(np.diag(result.covariance))
    return tuple(
        FittedParameter(
            **asdict(parameter),
            # The solver keeps the bounds up to rounding only.
            value=float(np.clip(result.values[number], parameter.lower, parameter.upper)),
            std=float(spread[number] * parameter.prior_std),
            identified=number in chosen,
        )
        for number, parameter in enumerate(parameters)
    )


def _with_fit(twin: Twin, parameters: Sequence[Parameter], result: Fit, model: Any) -> Twin:
    """Return the twin with fitted parameters, their covariance in the parameters' units, and the fit's remarks."""
    fitted = _fitted_parameters(parameters, result)
    return replace(
        twin,
        parameters=fitted,
        covariance=_in_units(parameters, result),
        notes=(*result.notes, *outside_links(fitted, model)),
    )


def _with_left_out(twin: Twin, every: Sequence[Parameter]) -> Twin:
    """Return the twin with the parameters that were not to be fitted, at their priors and with their uncertainty."""
    names = {parameter.name for parameter in twin.parameters}
    rest = tuple(
        FittedParameter(**asdict(parameter), value=parameter.prior, std=parameter.prior_std, identified=False)
        for parameter in every
        if parameter.name not in names
    )
    count = len(twin.parameters)
    covariance = np.diag([0.0] * count + [parameter.prior_std**2 for parameter in rest])
    covariance[:count, :count] = twin.covariance
    return replace(twin, parameters=(*twin.parameters, *rest), covariance=covariance)


def _in_units(parameters: Sequence[Parameter], result: Fit) -> Array:
    """Convert the covariance from prior units to the parameters' units."""
    units = np.array([parameter.prior_std for parameter in parameters])
    return result.covariance * np.outer(units, units)


def _records(score: ReplayScore) -> tuple[LogRecord, ...]:
    return tuple(
        LogRecord(
            name=log.name,
            sha256=log.sha256,
            origin=log.origin,
            duration_s=float(log.duration_s),
            joint_pos_offset=tuple(float(x) for x in offsets),
            joint_pos_offset_std=tuple(float(x) for x in std),
        )
        for log, offsets, std in zip(score.windows.logs, score.offsets, score.offset_std, strict=True)
    )
