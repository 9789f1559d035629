"""Kinds of jobs: what each may be told, and the command line of physai that carries it out.

A specification names built-in tasks, numbers, and stored files by hash; never a path, a module or an option.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from physai.sdk.evidence.verdict import Sha256

OUTPUT = "output"
"""Folder, in that of the job, whose files become its artefacts."""
INPUT = "input"
MOTION = "motion.mcap"
"""Artefact of a `play` job."""
THEN = ";"
"""Argument between two command lines; the second one follows if the first one succeeds."""
ROBOT_FILE = "robot.zip"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
# Pydantic's schema gives the pattern of keys, but allows others.
_ONLY_NAMES: dict[str, JsonValue] = {"additionalProperties": False}
Seed = Annotated[int, Field(ge=0, le=2**20 - 1)]
Budget = Annotated[float, Field(gt=0.0, le=86400.0, allow_inf_nan=False)]


class JobSpec(BaseModel):
    """What a job is told; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]

    @abstractmethod
    def inputs(self) -> dict[str, str]:
        """Stored files that the job reads: hash by file name in its input folder."""

    @abstractmethod
    def arguments(self, folder: Path) -> list[str]:
        """Arguments of `physai`, run in the job's folder."""


class ValidateSpec(JobSpec):
    """Runs the ten gates on a policy in a twin."""

    kind: ClassVar[str] = "validate"

    policy: Sha256
    golden: Sha256 | None = None
    """The policy's `golden.npz`."""
    twin: Sha256 | None = None
    """The calibrated `twin.json`; without it no policy passes."""
    gates: Sha256 | None = None
    task: Name | None = None
    robot: Sha256 | None = None
    """A registered robot that replaces the task's own."""
    seed: Seed = 0
    accept: Annotated[
        str, Field(pattern=r"^(robot|stand-in|computer|unknown)(,(robot|stand-in|computer|unknown))*$")
    ] = "robot"

    def inputs(self) -> dict[str, str]:
        files = {
            "policy.onnx": self.policy,
            "golden.npz": self.golden,
            "twin.json": self.twin,
            "gates.yaml": self.gates,
            ROBOT_FILE: self.robot,
        }
        return {name: sha256 for name, sha256 in files.items() if sha256 is not None}

    def arguments(self, folder: Path) -> list[str]:
        optional = [("--twin", self.twin, "twin.json"), ("--gates", self.gates, "gates.yaml")]
        optional += [("--robot", self.robot, ROBOT_FILE)]
        files = [part for option, given, name in optional if given for part in (option, f"{INPUT}/{name}")]
        task = ["--task", self.task] if self.task else []
        return [
            *("sim", "validate", f"{INPUT}/policy.onnx", "--report", OUTPUT, "--json"),
            *("--seed", str(self.seed), "--accept", self.accept, *files, *task),
        ]


class CalibrateSpec(JobSpec):
    """Fits a twin of a robot to recordings."""

    kind: ClassVar[str] = "calibrate"

    robot: Name
    """Built-in robot."""
    logs: Annotated[dict[Name, Sha256], Field(min_length=1, max_length=256, json_schema_extra=_ONLY_NAMES)]
    """Recordings: hash by file name, whose ending gives the format."""
    held_out: Annotated[dict[Name, Sha256], Field(max_length=256, json_schema_extra=_ONLY_NAMES)] = {}
    recorded_on: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,64}$")] = None
    window_s: Annotated[float, Field(gt=0.0, le=10.0, allow_inf_nan=False)] = 0.25
    time_budget_s: Budget = 180.0
    seed: Seed = 0

    def inputs(self) -> dict[str, str]:
        return {**self.logs, **self.held_out}

    def arguments(self, folder: Path) -> list[str]:
        held_out = ["--held-out", *(f"{INPUT}/{name}" for name in self.held_out)] if self.held_out else []
        recorded_on = ["--recorded-on", self.recorded_on] if self.recorded_on else []
        return [
            *("sim", "calibrate", self.robot, *(f"{INPUT}/{name}" for name in self.logs), *held_out, *recorded_on),
            *("--output", f"{OUTPUT}/twin.json", "--report", OUTPUT, "--json", "--seed", str(self.seed)),
            *("--window", repr(self.window_s), "--time-budget-s", repr(self.time_budget_s)),
        ]


class TrainSpec(JobSpec):
    """Trains a policy for a task and exports it."""

    kind: ClassVar[str] = "train"

    task: Name
    preset: Name | None = None
    robot: Sha256 | None = None
    """A registered robot that replaces the task's own."""
    twin: Sha256 | None = None
    seed: Seed = 0
    iterations: Annotated[int | None, Field(ge=1, le=10**7)] = None
    worlds: Annotated[int | None, Field(ge=1, le=65536)] = None
    time_budget_s: Budget = 3600.0

    def inputs(self) -> dict[str, str]:
        files = {"twin.json": self.twin, ROBOT_FILE: self.robot}
        return {name: sha256 for name, sha256 in files.items() if sha256 is not None}

    def arguments(self, folder: Path) -> list[str]:
        robot = ["--robot", f"{INPUT}/{ROBOT_FILE}"] if self.robot else []
        export = [THEN, "export", OUTPUT, "--json", *robot]
        if (folder / OUTPUT / "checkpoint.pt").exists():
            return ["train", "--resume", OUTPUT, "--json", *robot, *export]
        options = [
            ("--preset", self.preset),
            ("--twin", f"{INPUT}/twin.json" if self.twin else None),
            ("--iterations", self.iterations),
            ("--num-envs", self.worlds),
        ]
        return [
            *("train", self.task, "--out", OUTPUT, "--seed", str(self.seed), "--json"),
            *("--time-budget-s", repr(self.time_budget_s), *robot),
            *(part for option, value in options if value is not None for part in (option, str(value))),
            *export,
        ]


class QuantizeSpec(JobSpec):
    """Writes a policy in lower precision, within its contract's bound."""

    kind: ClassVar[str] = "quantize"

    policy: Sha256
    golden: Sha256 | None = None
    twin: Sha256 | None = None
    task: Name | None = None
    variants: Annotated[list[Annotated[str, Field(pattern="^(int8|fp8|fp16)$")]], Field(min_length=1, max_length=3)] = [
        "int8"
    ]
    seed: Seed = 0

    def inputs(self) -> dict[str, str]:
        files = {"policy.onnx": self.policy, "golden.npz": self.golden, "twin.json": self.twin}
        return {name: sha256 for name, sha256 in files.items() if sha256 is not None}

    def arguments(self, folder: Path) -> list[str]:
        twin = ["--twin", f"{INPUT}/twin.json"] if self.twin else []
        task = ["--task", self.task] if self.task else []
        return [
            *("quantize", f"{INPUT}/policy.onnx", "--out", OUTPUT, "--seed", str(self.seed), "--json"),
            *("--skip-tensorrt", *twin, *task, "--variant", *self.variants),
        ]


class PlaySpec(JobSpec):
    """Records what a policy does, to be looked at."""

    kind: ClassVar[str] = "play"

    policy: Sha256
    task: Name | None = None
    seed: Seed = 0
    """Seed of the episodes; two policies with the same one meet the same worlds and commands."""
    duration_s: Annotated[float, Field(gt=0.0, le=120.0, allow_inf_nan=False)] = 20.0
    """Simulated time [s]."""

    def inputs(self) -> dict[str, str]:
        return {"policy.onnx": self.policy}

    def arguments(self, folder: Path) -> list[str]:
        return [
            *("play", f"{INPUT}/policy.onnx", "--record", f"{OUTPUT}/{MOTION}", "--json"),
            *("--seed", str(self.seed), "--duration-s", repr(self.duration_s)),
            *(["--task", self.task] if self.task else []),
        ]


KINDS: dict[str, type[JobSpec]] = {
    kind.kind: kind for kind in (ValidateSpec, CalibrateSpec, TrainSpec, QuantizeSpec, PlaySpec)
}
"""Job kinds by name."""
