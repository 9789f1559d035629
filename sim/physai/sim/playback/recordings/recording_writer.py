"""Writes the moments of a player to an MCAP file, from which they can be replayed exactly."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from physai.sdk.base.files import oserror_as
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.evidence import recording_channels as channels
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.recording_channels import (
    ORIGIN_METADATA_KEY,
    ChannelWriter,
    joint_state,
    numbers,
    stamp,
    vector,
)
from physai.sim.engines.protocol import Array
from physai.sim.playback.closing import Closing
from physai.sim.playback.markers import pose_fields
from physai.sim.playback.moment import Moment, finite_or_none
from physai.sim.playback.recordings import recording_format as form
from physai.sim.playback.recordings.recording_format import RecordingError
from physai.sim.robots.spec import joint_columns
from physai.sim.tasks.task import Task


class RecordingWriter(Closing):
    """Appends moments to a recording; use it as a context manager.

    If the process is killed, readers reject the file as truncated.
    """

    def __init__(self, path: str | Path, task: Task, *, origin: dict[str, str] | None = None) -> None:
        """Opens the file and writes its head.

        Args:
            path: file to write.
            task: task that is played.
            origin: additional metadata, such as policy, seed and versions.

        Raises:
            RecordingError: the file cannot be written.
        """
        with oserror_as(RecordingError, f"{path}: cannot write the recording"):
            self._file = Path(path).open("wb")  # noqa: SIM115 (closed by `close`)
        self._contract = task.contract
        self._poses = {field.name for field in pose_fields(task.contract)}
        self._period_ns = round(task.contract.timing.control_dt * channels.NANOSECONDS)
        self._joints = joint_columns(task.model, task.contract.robot)
        head = {
            ORIGIN_METADATA_KEY: Origin(kind="stand-in", robot=task.contract.robot.name).mark,
            **(origin or {}),
            "format": form.FORMAT_VERSION,
            "task": task.name,
            "contract": canonical_json(task.contract).decode(),
            "fingerprint": task.contract.fingerprint,
        }
        with self._writing():
            self._writer = ChannelWriter(self._file)
            self._writer.add_metadata(form.METADATA, head)

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Converts OSError, such as a full disk, to RecordingError and closes the file."""
        try:
            with oserror_as(RecordingError, f"{self._file.name}: cannot write the recording"):
                yield
        except RecordingError:
            with suppress(OSError):
                self._file.close()
            raise

    def add(self, moment: Moment) -> None:
        """Appends the messages of one moment.

        Raises:
            RecordingError: the disk is full.
        """
        with self._writing():
            self._add(moment)

    def _add(self, moment: Moment) -> None:
        # One control period of distance keeps an episode's end and the next one's start apart.
        now = round((moment.start_s + moment.time_s) * channels.NANOSECONDS) + moment.episode * self._period_ns
        when = stamp(now)
        event = {"timestamp": when, "episode": moment.episode, "seed": str(moment.seed)}
        if moment.reward is None:
            self._writer.add(form.EPISODE_TOPIC, form.EPISODE, now, {**event, "event": "start"})
        else:
            reward = {"timestamp": when, "reward": finite_or_none(moment.reward)}
            self._writer.add(form.REWARD_TOPIC, form.REWARD, now, reward)
        state = {"timestamp": when, "qpos": numbers(moment.qpos), "qvel": numbers(moment.qvel)}
        self._writer.add(form.STATE_TOPIC, form.STATE, now, state)
        self._write_joints(moment, now)
        if moment.verdict is not None:
            metrics = {name: finite_or_none(value) for name, value in moment.verdict.metrics.items()}
            verdict = {"succeeded": moment.verdict.succeeded, "metrics": metrics}
            self._writer.add(form.EPISODE_TOPIC, form.EPISODE, now, {**event, "event": "judged", **verdict})
        if moment.outcome is not None:
            self._writer.add(
                form.EPISODE_TOPIC, form.EPISODE, now, {**event, "event": "end", **moment.outcome.as_json()}
            )
        else:
            self._write_decision(moment, now)

    def _write_joints(self, moment: Moment, now: int) -> None:
        """The true joint state."""
        position, velocity = self._joints
        joints = self._contract.robot.joint_names
        message = joint_state(now, joints, position=moment.qpos[position], velocity=moment.qvel[velocity])
        self._writer.add(channels.JOINTS_TOPIC, channels.JOINT_STATE, now, message)

    def _write_decision(self, moment: Moment, now: int) -> None:
        """The policy's inputs and joint commands."""
        fields = {sensor.name: sensor for sensor in self._contract.robot.sensors}
        for name, values in moment.sensors.items():
            message = vector(now, fields[name].unit, fields[name].frame, values)
            self._writer.add(channels.SENSOR_TOPIC + name, channels.VECTOR, now, message)
        for field in self._contract.command.fields:
            values = moment.commands[field.name]
            message = vector(now, field.unit, field.frame, values)
            self._writer.add(channels.COMMAND_TOPIC + field.name, channels.VECTOR, now, message)
            if field.name in self._poses:
                self._writer.add(form.POSE_TOPIC + field.name, form.POSE, now, _pose(now, field.frame, values))
        for term in self._contract.action.terms:
            kind = "position" if term.target_name == "joint_pos_target" else "effort"
            message = joint_state(now, term.joints, **{kind: moment.targets[term.target_name]})
            self._writer.add(channels.TARGET_TOPIC + term.target_name, channels.JOINT_STATE, now, message)

    def close(self) -> None:
        """Writes the index and closes the file; further calls do nothing.

        Raises:
            RecordingError: the disk is full.
        """
        if not self._file.closed:
            with self._writing():
                self._writer.finish()
                self._file.close()


def _pose(now: int, frame: str, values: Array) -> dict[str, Any]:
    x, y, z, qw, qx, qy, qz = numbers(values)
    position, orientation = {"x": x, "y": y, "z": z}, {"x": qx, "y": qy, "z": qz, "w": qw}
    return {"timestamp": stamp(now), "frame_id": frame, "pose": {"position": position, "orientation": orientation}}
