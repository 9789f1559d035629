"""Result and progress of a self-test."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from physai.deploy_jetson.update.slots.slot_records import InferenceRuntime, SelfTest

ENGINE_FILE = "engine.plan"
"""File name of a built engine in a slot."""

SelfTestStage = Literal["verify", "write", "reference", "engine", "golden", "latency", "seal"]
Progress = Callable[[SelfTestStage, float], None]
"""Called with the current stage and its progress in [0, 1]."""


@dataclass(frozen=True)
class Tested:
    """Result of a self-test."""

    runtime: InferenceRuntime
    plan: bytes | None
    """The built engine; None if the member itself is loaded."""
    self_test: SelfTest


def no_progress(stage: SelfTestStage, share: float) -> None:
    """Discards progress reports."""
