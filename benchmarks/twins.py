"""`python -m benchmarks twins`: right twins that are accepted, and wrong ones that are blocked.

Random robots are recorded as stand-ins with hidden parameters. The twin fitted to each is the right one. Wrong ones are
the same twin with one thing changed, each scored on the held-out recordings as it would be.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.alternatives import model_alternatives
from physai.twin.calibration.calibrate import fit_twin, residuals
from physai.twin.calibration.replay.replay import WINDOW_S, replay
from physai.twin.calibration.stand_in.synthetic_robot import excite, stand_in, write_columns, write_recording
from physai.twin.claims.claims import contradiction
from physai.twin.logs import LogError, RobotLog, read_logs
from physai.twin.model.credibility import MIN_WINDOW_S, lag_doubt
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Credibility
from physai.twin.parameters.models import calibration_model

ROBOTS, QUICK_ROBOTS = 20, 1
TRAINED, HELD_OUT = 3, 3
DURATION_S, RATE_HZ = 6.0, 250.0
STEPS = 0.1
"""Steps in the commands, as a share of the effort limit; without them no recording shows a lag."""
BUDGET_STEPS = 6_000_000
LAG_S = 0.012

Change = Callable[[Any], None]
"""Changes a compiled model."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A robot, the twin fitted to it, and its recordings."""

    robot: Robot
    twin: Twin
    train: tuple[RobotLog, ...]
    held_out: tuple[RobotLog, ...]


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Fits twins of random robots, and judges each of them and its wrong variants."""
    accepted = blocked = total = untested = copies = 0
    count = QUICK_ROBOTS if options.quick else ROBOTS
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            trial = fitted_trial(seed, Path(folder))
            right = trial.twin.credible()
            differs = contradiction(trial.twin, trial.robot)
            if right.holds and differs:
                right = Credibility(holds=False, reasons=(differs,))
            accepted += right.holds
            escaped = [name for name, holds in wrong_twins(trial) if holds]
            wrong = sum(1 for _ in WRONG)
            untested += states_an_untested_lag(trial, seed, Path(folder))
            copies += sum("copies" in name for name in escaped)
            blocked, total = blocked + wrong - len(escaped), total + wrong
            report(
                f"robot {seed}: {'accepted' if right.holds else '; '.join(right.reasons)}; {wrong - len(escaped)} of "
                f"{wrong} wrong twins blocked{', not ' if escaped else ''}{', '.join(escaped)}"
            )
    if not total:
        raise WorkloadError("no twin was judged")
    return [
        BenchmarkResult(name="right_accepted", unit="1", runs=(float(accepted),)),
        BenchmarkResult(name="right_total", unit="1", runs=(float(count),)),
        BenchmarkResult(name="wrong_blocked", unit="1", runs=(float(blocked),)),
        BenchmarkResult(name="wrong_total", unit="1", runs=(float(total),)),
        BenchmarkResult(name="untested_credible", unit="1", runs=(float(untested),)),
        BenchmarkResult(name="copies_accepted", unit="1", runs=(float(copies),)),
    ]


def random_chain(seed: int, folder: Path) -> Robot:
    """Write the MJCF of a random arm that hangs down: one to three hinges with motors; equal seeds give equal arms."""
    rng = np.random.default_rng(seed)
    joints = int(rng.integers(1, 4))
    length, mass = rng.uniform(0.15, 0.4, joints), rng.uniform(0.3, 2.0, joints)
    outward = np.cumsum((mass * length)[::-1])[::-1]
    body = motors = ""
    for number in reversed(range(joints)):
        effort = 10.0 * float(outward[number])
        inertia = float(mass[number] * length[number] ** 2 / 12.0)
        # As of a geared motor: half of what it moves about its own joint.
        armature = 0.5 * float(mass[number] * length[number] ** 2 / 3.0)
        body = f"""
<body name="link{number}" pos="0 0 {0.0 if number == 0 else -length[number - 1]:.4f}">
  <inertial pos="0 0 {-0.5 * length[number]:.4f}" mass="{mass[number]:.4f}"
    diaginertia="{inertia:.6f} {inertia:.6f} {0.1 * inertia:.6f}"/>
  <joint name="joint{number}" axis="0 1 0" frictionloss="{0.02 * effort:.4f}" damping="{0.005 * effort:.5f}"
    armature="{armature:.6f}"/>
  <geom type="capsule" fromto="0 0 0 0 0 {-length[number]:.4f}" size="0.02" mass="0" contype="0" conaffinity="0"/>
  {body}</body>"""
        motors = (
            f'<motor name="joint{number}" joint="joint{number}" ctrlrange="{-effort:.4f} {effort:.4f}" '
            f'forcerange="{-effort:.4f} {effort:.4f}"/>{motors}'
        )
    path = folder / f"chain{seed}.xml"
    path.write_text(
        f'<mujoco model="chain{seed}"><compiler autolimits="true" angle="radian"/>'
        f'<option timestep="0.001" integrator="implicitfast"/><worldbody>{body}</worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )
    return load_robot(path)


def fitted_trial(seed: int, folder: Path) -> Trial:
    """Record a random robot and fit its twin."""
    robot = random_chain(seed, folder)
    recorded = folder / f"recordings{seed}"
    recorded.mkdir()
    write_columns(robot, recorded)
    truth = stand_in(robot, seed)
    for number in range(TRAINED + HELD_OUT):
        made = excite(truth, duration_s=DURATION_S, rate_hz=RATE_HZ, seed=number, steps=STEPS)
        write_recording(made, robot, recorded / f"{number:02d}.csv")
    logs = read_logs(sorted(recorded.glob("*.csv")), robot.spec)
    train, held_out = logs[:TRAINED], logs[TRAINED:]
    twin = fit_twin(robot, train, held_out, budget_steps=BUDGET_STEPS, folder=folder).twin
    return Trial(robot=robot, twin=twin, train=tuple(train), held_out=tuple(held_out))


def rescored(trial: Trial, change: Change, *, held_out: Sequence[RobotLog] = (), window_s: float = WINDOW_S) -> Twin:
    """Return the twin that claims the fitted parameters, and replays like the changed model."""
    logs = held_out or trial.held_out
    model = trial.twin.model()
    change(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    score = replay(copy.copy(model), trial.robot, logs, window_s=window_s)
    nominal = replay(calibration_model(trial.robot), trial.robot, logs, window_s=window_s)
    before = trial.twin.residuals
    lag = None if before is None else before.command_lag
    others = model_alternatives(trial.robot, trial.twin, model, score, num_threads=0)
    return replace(trial.twin, residuals=residuals(score, nominal, command_lag=lag, alternatives=others))


def scaled(field: str, factor: float, *, last: bool = False) -> Change:
    """Return a change that multiplies a model field, or its last row."""

    def change(model: Any) -> None:
        values = getattr(model, field)
        values[-1 if last else slice(None)] *= factor

    return change


def heavier(factor: float) -> Change:
    """Return a change of mass and inertia of all links."""

    def change(model: Any) -> None:
        model.body_mass *= factor
        model.body_inertia *= factor

    return change


def gain(factor: float) -> Change:
    """Return a change of the effort that the motors make of a command."""

    def change(model: Any) -> None:
        model.actuator_gainprm[:, 0] *= factor

    return change


def longer(model: Any) -> None:
    """Make the first link half as long again, and let nothing rub."""
    model.body_ipos[1] *= 1.5
    if model.nbody > 2:
        model.body_pos[2] *= 1.5
    model.dof_frictionloss[:] = 0.0


def weaker_gravity(model: Any) -> None:
    """Take a tenth of gravity away."""
    model.opt.gravity[2] *= 0.9


def lagging(trial: Trial, lag_s: float) -> Twin:
    """Return the twin with another command lag."""
    timing = trial.twin.timing.model_copy(update={"command_lag_mean_s": lag_s, "command_lag_p99_s": lag_s + 0.001})
    return replace(trial.twin, timing=timing)


def sampled(log: RobotLog, rate_hz: float) -> RobotLog:
    """Return a recording sampled anew."""
    moments = np.arange(0.0, float(log.time[-1]), 1.0 / rate_hz)

    def there(values: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64] | None:
        if values is None:
            return None
        columns: list[npt.NDArray[np.float64]] = [np.interp(moments, log.time, one) for one in values.T]
        return np.stack(columns, axis=1)

    series = {name: there(getattr(log, name)) for name in ("joint_pos", "joint_vel", "joint_effort", "command")}
    return replace(log, time=moments, **series)


def noisier(log: RobotLog) -> RobotLog:
    """Return a recording with noise of 0.1 mrad."""
    noise = 1e-4 * np.random.default_rng(0).standard_normal(log.joint_pos.shape)
    return replace(log, joint_pos=log.joint_pos + noise)


DISGUISES: dict[str, Callable[[RobotLog], RobotLog]] = {
    "noise": noisier,
    "400 Hz": lambda log: sampled(log, 400.0),
    "another zero": lambda log: replace(log, joint_pos=log.joint_pos + 4e-3 / 3.0),
}


def copied(trial: Trial, disguise: Callable[[RobotLog], RobotLog] = lambda log: log) -> Twin | None:
    """Return a twin whose held-out recordings are the fitted ones by other names; None if that is refused."""
    copies = [replace(disguise(log), name=f"copy of {log.name}", sha256=log.sha256[::-1]) for log in trial.train]
    try:
        return fit_twin(trial.robot, trial.train, copies, budget_steps=BUDGET_STEPS).twin
    except LogError:
        return None


def states_an_untested_lag(trial: Trial, seed: int, folder: Path) -> bool:
    """Whether a twin is credible and certain of its lag, although its held-out recordings show none."""
    place = folder / f"smooth{seed}"
    place.mkdir()
    write_columns(trial.robot, place)
    truth = stand_in(trial.robot, seed)
    for number in range(HELD_OUT):
        made = excite(truth, duration_s=DURATION_S, rate_hz=RATE_HZ, seed=100 + number)
        write_recording(made, trial.robot, place / f"{number:02d}.csv")
    smooth = read_logs(sorted(place.glob("*.csv")), trial.robot.spec)
    twin = fit_twin(trial.robot, trial.train, smooth, budget_steps=BUDGET_STEPS).twin
    return twin.credible().holds and lag_doubt(twin) == (0.0, 0.0)


def one_held_out(trial: Trial) -> Twin:
    """Return the twin judged on one recording."""
    records = trial.twin.logs.model_copy(update={"held_out": trial.twin.logs.held_out[:1]})
    return replace(rescored(trial, lambda model: None, held_out=trial.held_out[:1]), logs=records)


def true_lag(trial: Trial) -> float:
    """Return the fitted command lag [s]; 0 without one."""
    return trial.twin.timing.command_lag_mean_s or 0.0


WRONG: dict[str, Callable[[Trial], Twin | None]] = {
    "masses +20 %": lambda trial: rescored(trial, heavier(1.2)),
    "masses +10 %": lambda trial: rescored(trial, heavier(1.1)),
    "masses -10 %": lambda trial: rescored(trial, heavier(0.9)),
    "gain +10 %": lambda trial: rescored(trial, gain(1.1)),
    "gain -10 %": lambda trial: rescored(trial, gain(0.9)),
    "no armature": lambda trial: rescored(trial, scaled("dof_armature", 0.0)),
    "friction x2": lambda trial: rescored(trial, scaled("dof_frictionloss", 2.0)),
    "friction 0": lambda trial: rescored(trial, scaled("dof_frictionloss", 0.0)),
    "link 1 half as long again, no friction": lambda trial: rescored(trial, longer),
    "the same on windows of 50 ms": lambda trial: rescored(trial, longer, window_s=0.25 * MIN_WINDOW_S),
    "gravity 10 % low": lambda trial: rescored(trial, weaker_gravity),
    "lag 0": lambda trial: lagging(trial, 0.0),
    "lag +12 ms": lambda trial: lagging(trial, true_lag(trial) + LAG_S),
    "held-out copies of fitted recordings": copied,
    "one held-out recording": one_held_out,
    **{f"held-out copies, {how}": partial(copied, disguise=disguise) for how, disguise in DISGUISES.items()},
}
"""What each wrong twin has wrong, and how to make it; None if making it is refused."""


def wrong_twins(trial: Trial) -> Iterator[tuple[str, bool]]:
    """Return each wrong twin's name, and whether it was called credible."""
    for name, make in WRONG.items():
        twin = make(trial)
        yield name, twin is not None and twin.credible().holds
