"""Kinds of jobs: what each may be told, and the command line of physai that carries it out.

A specification names built-in tasks, numbers, and stored files by hash; never a path, a module or an option.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from physai.sdk.evidence.verdict import Sha256

OUTPUT = "output"
"""Folder, in that of the job, whose files become its artefacts."""
INPUT = "input"
MOTION = "motion.mcap"
"""Artefact of a `play` job."""
THEN = ";"
"""Argument between two command lines; the second one follows if the first one succeeds."""
FILES: dict[str, str] = {
    "policy": "policy.onnx",
    "golden": "golden.npz",
    "reference": "reference.onnx",
    "twin": "twin.json",
    "gates": "gates.yaml",
    "latency": "latency.json",
    "exam": "exam.json",
    "trust": "trust.json",
    # No recording's name begins with "_".
    "robot": "_robot.zip",
    "columns": "_columns.yaml",
}
"""Names in the input folder of the stored files that a specification names by these keys."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
# Pydantic's schema gives the pattern of keys, but allows others.
_ONLY_NAMES: dict[str, JsonValue] = {"additionalProperties": False}
_SHA256 = re.compile(r"[0-9a-f]{64}")
Seed = Annotated[int, Field(ge=0, le=2**20 - 1)]
Budget = Annotated[float, Field(gt=0.0, le=86400.0, allow_inf_nan=False)]
Twin = Annotated[Sha256 | None, Field(description="a registered twin; the nominal robot if null")]
Robot = Annotated[
    Sha256 | None, Field(description="a registered robot in place of the task's own; that of the twin if null")
]


class JobSpec(BaseModel):
    """Options of a job; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]
    answers: ClassVar[tuple[int, ...]] = (0, 1)
    """Exit codes of a command that gave an answer, if it also printed a document."""
    takes_device: ClassVar[bool] = False
    """Whether the command takes `--device`, which the operator of the service chooses."""

    def inputs(self) -> dict[str, str]:
        """Stored files that the job reads: hash by file name in its input folder."""
        found = {name: getattr(self, key, None) for key, name in FILES.items()}
        return {name: sha256 for name, sha256 in found.items() if sha256 is not None}

    @property
    def uploaded_robot(self) -> str | None:
        """Hash of the registered robot that the job needs."""
        return getattr(self, "robot", None)

    @abstractmethod
    def arguments(self, folder: Path) -> list[str]:
        """Arguments of `physai`, run in the job's folder."""

    def options(self, *keys: str, **flags: str) -> list[str]:
        """Command-line options for those of these keys that were given; `flags` has those that are not the key."""
        keys = (*keys, *flags)
        given = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
        values = {key: f"{INPUT}/{FILES[key]}" if key in FILES else str(value) for key, value in given.items()}
        return [part for key, value in values.items() for part in (f"--{flags.get(key, key)}", value)]


class ValidateSpec(JobSpec):
    """Runs the ten gates on a policy in a twin."""

    kind: ClassVar[str] = "validate"
    # 2 is the verdict INCONCLUSIVE.
    answers: ClassVar[tuple[int, ...]] = (0, 1, 2)
    takes_device: ClassVar[bool] = True

    policy: Sha256
    golden: Sha256 | None = None
    """The policy's `golden.npz`."""
    reference: Annotated[
        Sha256 | None,
        Field(description="what it was fine-tuned from; without it such a policy does not pass"),
    ] = None
    twin: Twin = None
    """Without it no policy passes."""
    gates: Sha256 | None = None
    latency: Annotated[
        Sha256 | None, Field(description="tick durations measured on the target; without them no policy passes")
    ] = None
    exam: Annotated[Sha256 | None, Field(description="opened exam whose episodes are played, not those of seed")] = None
    trust: Annotated[
        Sha256 | None, Field(description="trust file whose validators may have signed twin and tick times")
    ] = None
    task: Name | None = None
    robot: Robot = None
    seed: Seed = 0
    accept: Annotated[
        str, Field(pattern=r"^(robot|stand-in|computer|unknown)(,(robot|stand-in|computer|unknown))*$")
    ] = "robot"

    def arguments(self, folder: Path) -> list[str]:
        return [
            *("sim", "validate", f"{INPUT}/policy.onnx", "--report", OUTPUT, "--json"),
            *self.options(
                "seed" if self.exam is None else "exam",
                "accept",
                "twin",
                "gates",
                "latency",
                "trust",
                "task",
                "reference",
                robot="model",
            ),
        ]


class CalibrateSpec(JobSpec):
    """Fits a twin of a robot to recordings."""

    kind: ClassVar[str] = "calibrate"

    robot: Name
    """Built-in robot, or hash of a registered one."""
    logs: Annotated[dict[Name, Sha256], Field(min_length=1, max_length=256, json_schema_extra=_ONLY_NAMES)]
    """Recordings: hash by file name, whose ending gives the format."""
    held_out: Annotated[dict[Name, Sha256], Field(max_length=256, json_schema_extra=_ONLY_NAMES)] = {}
    columns: Annotated[Sha256 | None, Field(description="column map of recordings in CSV and similar formats")] = None
    recorded_on: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,64}$")] = None
    window_s: Annotated[float, Field(gt=0.0, le=10.0, allow_inf_nan=False)] = 0.25
    time_budget_s: Budget = 180.0
    seed: Seed = 0

    @model_validator(mode="after")
    def _require_held_out(self) -> Self:
        """A recording that is fitted is not held out, whatever its name; two files of one name overwrite each other."""
        names = {sha256: name for name, sha256 in self.logs.items()}
        for name, sha256 in self.held_out.items():
            fitted = name if name in self.logs else names.get(sha256)
            if fitted is not None:
                same = "of the same name" if name in self.logs else f"with the same content, {fitted!r}"
                raise ValueError(
                    f"held_out {name!r}: logs has a recording {same}; a recording that is fitted is not held out: "
                    "give it in one of the two, and every recording a name of its own"
                )
        return self

    @property
    def uploaded_robot(self) -> str | None:
        return self.robot if _SHA256.fullmatch(self.robot) else None

    def inputs(self) -> dict[str, str]:
        files = {FILES["robot"]: self.uploaded_robot, FILES["columns"]: self.columns}
        return {**self.logs, **self.held_out, **{name: sha256 for name, sha256 in files.items() if sha256}}

    def arguments(self, folder: Path) -> list[str]:
        robot = f"{INPUT}/{FILES['robot']}" if self.uploaded_robot else self.robot
        held_out = ["--held-out", *(f"{INPUT}/{name}" for name in self.held_out)] if self.held_out else []
        recorded_on = ["--recorded-on", self.recorded_on] if self.recorded_on else []
        return [
            *("sim", "calibrate", robot, *(f"{INPUT}/{name}" for name in self.logs), *held_out, *recorded_on),
            *self.options("columns"),
            *("--out", f"{OUTPUT}/twin.json", "--report", OUTPUT, "--json", "--seed", str(self.seed)),
            *("--window-s", repr(self.window_s), "--time-budget-s", repr(self.time_budget_s)),
        ]


class TrainSpec(JobSpec):
    """Trains a policy for a task and exports it."""

    kind: ClassVar[str] = "train"

    task: Name
    preset: Name | None = None
    robot: Robot = None
    twin: Twin = None
    seed: Seed = 0
    iterations: Annotated[int | None, Field(ge=1, le=10**7)] = None
    worlds: Annotated[int | None, Field(ge=1, le=65536)] = None
    time_budget_s: Budget = 3600.0

    def arguments(self, folder: Path) -> list[str]:
        robot = self.options("robot")
        # Time of earlier attempts counts, and the run keeps its number of iterations.
        budget = ["--time-budget-s", repr(self.time_budget_s)]
        export = [THEN, "export", OUTPUT, "--json", *robot]
        if any((folder / OUTPUT / name).exists() for name in ("checkpoint.pt", "team.pt")):
            return ["train", "--resume", OUTPUT, "--json", *budget, *robot, *export]
        return [
            *("train", self.task, "--out", OUTPUT, "--json", *budget),
            *self.options("seed", "preset", "twin", "iterations", "robot"),
            *(["--num-envs", str(self.worlds)] if self.worlds else []),
            *export,
        ]


class QuantizeSpec(JobSpec):
    """Writes a policy in lower precision, within its contract's bound."""

    kind: ClassVar[str] = "quantize"

    policy: Sha256
    golden: Sha256 | None = None
    twin: Twin = None
    task: Name | None = None
    robot: Robot = None
    variants: Annotated[list[Annotated[str, Field(pattern="^(int8|fp8|fp16)$")]], Field(min_length=1, max_length=3)] = [
        "int8"
    ]
    seed: Seed = 0

    def arguments(self, folder: Path) -> list[str]:
        return [
            *("policy", "quantize", f"{INPUT}/policy.onnx", "--out", OUTPUT, "--json", "--skip-tensorrt"),
            *self.options("seed", "twin", "robot", "task"),
            *("--variant", *self.variants),
        ]


class PlaySpec(JobSpec):
    """Records what a policy does, to be looked at."""

    kind: ClassVar[str] = "play"

    policy: Sha256
    task: Name | None = None
    robot: Robot = None
    seed: Seed = 0
    """Seed of the episodes; two policies with the same one meet the same worlds and commands."""
    duration_s: Annotated[float, Field(gt=0.0, le=120.0, allow_inf_nan=False)] = 20.0
    """Simulated time [s]."""

    def arguments(self, folder: Path) -> list[str]:
        return [
            *("play", f"{INPUT}/policy.onnx", "--record", f"{OUTPUT}/{MOTION}", "--json"),
            *("--duration-s", repr(self.duration_s), *self.options("seed", "task", robot="model")),
        ]


KINDS: dict[str, type[JobSpec]] = {
    kind.kind: kind for kind in (ValidateSpec, CalibrateSpec, TrainSpec, QuantizeSpec, PlaySpec)
}
"""Job kinds by name."""
