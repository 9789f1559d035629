"""Choose a few held-out windows that go into the twin file, for a validation to replay."""

import numpy as np

from physai.sim.calibration.replay.drive import choose_drive, servo_gain_factors
from physai.sim.calibration.replay.replay import ReplayScore
from physai.sim.calibration.replay.simulate import Simulator
from physai.sim.robots import Robot
from physai.sim.twin.parameters import channel
from physai.sim.twin.record import ReplaySample
from physai.sim.twin.spot_check import sample_error
from physai.sim.twin.twin import Twin

WINDOWS = 8
"""Number of windows."""
MAX_NUMBERS = 50_000
"""Maximum number of control values of all windows; with more per window there are fewer windows."""


def replay_sample(twin: Twin, robot: Robot, score: ReplayScore) -> ReplaySample | None:
    """Return evenly spaced windows of a score, and the twin's error on them; None if one window is too large."""
    model = twin.model()
    steps = max(1, round(score.windows.window_s / float(model.opt.timestep)))
    count = min(WINDOWS, MAX_NUMBERS // max(1, steps * model.nu))
    if not count:
        return None
    windows = score.windows.thinned(count)
    drive = choose_drive(robot, windows.logs)
    through = channel(robot.spec.joint_names, [parameter.name for parameter in twin.parameters], twin.values[None])
    simulator = Simulator(model, windows, drive, num_threads=1)
    factors = servo_gain_factors(robot, windows.logs, drive)
    gains = np.ones(len(windows)) if factors is None else factors[windows.log_index]
    start = np.concatenate([simulator.starts(), windows.joint_vel], axis=1)
    target = windows.target - windows.offset[:, None]
    # A model without actuators has an empty input, which a row of the file may not be.
    controls = simulator.controls(through).reshape(len(windows), -1) if model.nu else np.zeros((len(windows), steps))
    sample = ReplaySample(
        start=_rows(start),
        controls=_rows(controls),
        sample_s=_rows(windows.sample_s),
        target=_rows(target.reshape(len(windows), -1)),
        servo_gain=tuple(gains.tolist()),
        rmse=(0.0,) * len(robot.spec.joint_names),
    )
    error = sample_error(sample, model)
    return sample.model_copy(update={"rmse": tuple(error.tolist())}) if np.isfinite(error).all() else None


def _rows(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())
