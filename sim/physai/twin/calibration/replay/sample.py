"""Choose a few held-out windows that go into the twin file, for a validation to replay."""

import numpy as np
import numpy.typing as npt

from physai.sim.robots import Robot
from physai.twin.calibration.replay.drive import choose_drive, servo_gain_factors
from physai.twin.calibration.replay.pose import POSITION
from physai.twin.calibration.replay.replay import ReplayScore
from physai.twin.calibration.replay.simulate import Simulator
from physai.twin.calibration.replay.windows import Windows
from physai.twin.claims.spot_check import MOTION_SHARE, sample_error, sample_size
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import ReplaySample
from physai.twin.parameters.parameters import channel

Array = npt.NDArray[np.float64]


def replay_sample(twin: Twin, robot: Robot, score: ReplayScore) -> ReplaySample | None:
    """Return evenly spaced windows of a score, and the twin's error on them; None if one window is too large."""
    model = twin.model()
    steps = max(1, round(score.windows.window_s / float(model.opt.timestep)))
    count = sample_size(model, score.windows.window_s)
    if not count:
        return None
    windows = moving_windows(score.windows, count)
    drive = choose_drive(robot, windows.logs)
    through = channel(robot.spec.joint_names, [parameter.name for parameter in twin.parameters], twin.values[None])
    simulator = Simulator(model, windows, drive, num_threads=1)
    factors = servo_gain_factors(robot, windows.logs, drive)
    gains = np.ones(len(windows)) if factors is None else factors[windows.log_index]
    start = np.concatenate([simulator.starts(), windows.joint_vel], axis=1)
    # A model without actuators has an empty input, which a row of the file may not be.
    controls = simulator.controls(through).reshape(len(windows), -1) if model.nu else np.zeros((len(windows), steps))
    sample = ReplaySample(
        start=_rows(start),
        controls=_rows(controls),
        sample_s=_rows(windows.sample_s),
        target=_rows(_true_positions(windows).reshape(len(windows), -1)),
        servo_gain=tuple(gains.tolist()),
        rmse=(0.0,) * len(score.joint_names),
    )
    error = sample_error(sample, model)
    return sample.model_copy(update={"rmse": tuple(error.tolist())}) if np.isfinite(error).all() else None


def moving_windows(windows: Windows, count: int) -> Windows:
    """Return evenly spaced windows; for a joint that hardly moves in them, also the one in which it moves most."""
    even = np.unique(np.linspace(0, len(windows) - 1, count).round().astype(np.int64))
    still = np.flatnonzero(~(windows.subset(even).motion() >= MOTION_SHARE * windows.motion()))
    squared = windows.by_channel(((windows.target - windows.joint_pos[:, None]) ** 2).mean(axis=1))
    most = np.unique(squared[:, still].argmax(axis=0))[:count]
    return windows.subset(np.unique([*most.tolist(), *even[: count - len(most)].tolist()]))


def _true_positions(windows: Windows) -> Array:
    """Return what was measured at the compared samples, of a floating base its pose, then the joints without offset."""
    joints = windows.target[..., windows.target.shape[-1] - windows.offset.shape[1] :] - windows.offset[:, None]
    if windows.base is None:
        return joints
    return np.concatenate([windows.target[..., POSITION], windows.base.quat, joints], axis=-1)


def _rows(values: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())
