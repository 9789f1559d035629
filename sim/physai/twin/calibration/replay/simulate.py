"""Replay windows in many variants of a robot in parallel."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mujoco.batch import Batch

from physai.sdk.base.errors import ModelError
from physai.sim.engines.mujoco import roll_out
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.twin.calibration.replay.drive import DriveSignal, Responses
from physai.twin.calibration.replay.pose import COORDINATES, pose_columns, simulated_coordinates, start_pose
from physai.twin.calibration.replay.windows import Windows
from physai.twin.parameters.parameters import Drive, LogChannel
from physai.twin.parameters.servo import is_servo

Array = npt.NDArray[np.float64]

MAX_BYTES = 128 * 2**20
"""Memory of the controls and positions of one batch."""


class Simulator:
    """Replays all windows open loop in K variants of the model per call."""

    def __init__(
        self,
        model: Any,
        windows: Windows,
        drive: Drive,
        *,
        num_threads: int,
        gains: Array | None = None,
        responses: Sequence[Responses] | None = None,
    ) -> None:
        """Prepare the simulation.

        Args:
            model: compiled model; variants do not modify it.
            windows: windows to replay.
            drive: input of the replay.
            num_threads: threads of the pool.
            gains: factor on the servo gain kp per window, shape (W,); None for 1.
            responses: of the motors in each recording of `windows`, to replay from commands what was fitted to measured
                efforts; None to replay from `drive`.
        """
        self.model = model
        self.windows = windows
        through = responses or [None] * len(windows.logs)
        # Nothing drives a robot without actuators, and a thrown object has none.
        driven = zip(windows.logs, through, strict=True) if model.nu else ()
        self._signals = [DriveSignal(log, drive, one) for log, one in driven]
        self._periods_s = [float(np.median(np.diff(log.time))) for log in windows.logs]
        self.steps = max(1, round(windows.window_s / float(model.opt.timestep)))
        self._threads = num_threads
        self._gains = gains
        joints = joint_ids(model)
        floating = windows.base is not None
        poses = pose_columns(model, floating)
        self._first_joint = len(poses)
        self._qpos = np.array([*poses, *(int(model.jnt_qposadr[j]) for j in joints)], dtype=np.int64)
        speeds = [*range(COORDINATES if floating else 0), *(int(model.jnt_dofadr[j]) for j in joints)]
        self._dof = np.array(speeds, dtype=np.int64)
        self._actuators = [joint_actuator(model, j) for j in joints]
        self._servo = [a is not None and is_servo(model, a) for a in self._actuators]
        per_variant = len(windows) * self.steps * (model.nu + model.nq) * 8
        self.variants_at_once = max(1, MAX_BYTES // max(1, per_variant))
        self._batches: dict[int, Batch] = {}

    def positions(self, fields: Mapping[str, Array], channel: LogChannel) -> Array:
        """Return the positions that the sensors would have measured at the compared samples.

        Args:
            fields: model fields per variant, shape (K, …) each.
            channel: delays and biases of the K variants.

        Returns:
            Shape (K, W, M, C); NaN for diverged worlds.
        """
        count = len(channel.delay_s)
        parts: list[Array] = []
        for first in range(0, count, self.variants_at_once):
            part = slice(first, min(count, first + self.variants_at_once))
            parts.append(self._positions({name: values[part] for name, values in fields.items()}, channel.part(part)))
        return np.concatenate(parts)

    def _positions(self, fields: Mapping[str, Array], channel: LogChannel) -> Array:
        variants, windows = len(channel.delay_s), self.windows
        batch = self._batch(variants)
        self._write(batch, fields, variants)
        start = np.repeat(self.starts()[None], variants, axis=0)
        # Stage 0: nothing derived is needed before `rollout`, which computes it from the start states.
        batch.reset(stage=0)
        qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
        qpos[:, self._qpos] = start.reshape(-1, len(self._qpos))
        qvel[:, self._dof] = np.tile(windows.joint_vel, (variants, 1))
        controls = self.controls(channel)
        record = roll_out(self.model, batch, controls)[:, :, self._qpos]
        # A diverged world repeats its last state, which must not look like a good fit.
        record[np.asarray(batch.warning[:, :, 1]).any(axis=1)] = np.nan
        record = record.reshape(variants, len(windows), self.steps, -1)
        path = np.concatenate([start[:, :, None], record], axis=2)
        return self._measured(self._at_samples(path))

    def _measured(self, positions: Array) -> Array:
        """Return what the sensors measure of true positions at the compared samples, shape (K, W, M, C)."""
        windows = self.windows
        joints = positions[..., self._first_joint :] + windows.offset[None, :, None]
        if windows.base is None:
            return joints
        pose = simulated_coordinates(windows.base, windows.target, positions[..., : self._first_joint])
        return np.concatenate([pose, joints], axis=-1)

    def _at_samples(self, path: Array) -> Array:
        """Interpolate (K, W, steps + 1, n) linearly at the compared samples."""
        place = np.clip(self.windows.sample_s / float(self.model.opt.timestep), 0.0, self.steps - 1e-9)
        low = place.astype(np.int64)
        share = (place - low)[None, :, :, None]
        rows = np.arange(len(self.windows))[:, None]
        return path[:, rows, low] * (1.0 - share) + path[:, rows, low + 1] * share

    def starts(self) -> Array:
        """Return the true positions at the windows' starts: of a floating base its pose, then the joints."""
        windows = self.windows
        if windows.base is None:
            return windows.joint_pos - windows.offset
        joints = windows.joint_pos[:, COORDINATES:] - windows.offset
        return np.concatenate([start_pose(windows.base, windows.joint_pos[:, :COORDINATES]), joints], axis=1)

    def controls(self, channel: LogChannel) -> Array:
        """Return the actuator inputs, shape (K·W, steps, nu)."""
        if not self.model.nu:
            return np.zeros((len(channel.delay_s) * len(self.windows), self.steps, 0))
        # Most variants of a fit share one delay: build each distinct input only once.
        both = np.stack([channel.delay_s, channel.delay_periods], axis=1)
        delays, which = np.unique(both, axis=0, return_inverse=True)
        signals = [self._drive(float(seconds), float(periods)) for seconds, periods in delays]
        controls = np.zeros((len(which), len(self.windows), self.steps, self.model.nu))
        for variant, number in enumerate(which):
            for joint, actuator in enumerate(self._actuators):
                if actuator is not None:
                    servo, bias = self._servo[joint], channel.effort_bias[variant, joint]
                    # A servo's encoder has the offset, too: its target is in the sensor's zero.
                    shift = -self.windows.offset[:, joint, None] if servo else bias
                    controls[variant, :, :, actuator] = signals[number][:, :, joint] + shift
        return controls.reshape(-1, self.steps, self.model.nu)

    def _drive(self, delay_s: float, periods: float) -> Array:
        """Return the input of each window at each step with a delay, shape (W, steps, J)."""
        offsets = float(self.model.opt.timestep) * np.arange(self.steps + 1) - delay_s
        windows = self.windows
        return np.concatenate(
            [
                signal.means(
                    windows.start_s[windows.log_index == number][:, None] + offsets - periods * self._periods_s[number]
                )
                for number, signal in enumerate(self._signals)
            ]
        )

    def _batch(self, variants: int) -> Batch:
        if variants not in self._batches:
            self._batches[variants] = Batch(self.model, variants * len(self.windows), self._threads)
        return self._batches[variants]

    def _write(self, batch: Batch, fields: Mapping[str, Array], variants: int) -> None:
        names = set(fields)
        if self._gains is not None:
            names |= {"actuator_gainprm", "actuator_biasprm"}
        try:
            for name in sorted(names):
                nominal = np.array(getattr(self.model, name), dtype=np.float64)
                values = fields.get(name, np.repeat(nominal[None], variants, axis=0))
                batch.expand(name)[:] = np.repeat(values, len(self.windows), axis=0)
            if self._gains is not None:
                factor = np.tile(self._gains, variants)
                for joint, actuator in enumerate(self._actuators):
                    if actuator is not None and self._servo[joint]:
                        # A servo's effort is kp·ctrl - kp·pos - kd·vel: the recorded gain scales kp, in both places.
                        batch.expand("actuator_gainprm")[:, actuator, 0] *= factor
                        batch.expand("actuator_biasprm")[:, actuator, 1] *= factor
        except ValueError as error:
            raise ModelError(str(error)) from error
        if names:
            batch.set_const()
