"""What a self-test shows of a policy, and how it tells what it is doing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from physai.deploy_jetson.slots.records import InferenceRuntime, SelfTest

ENGINE_FILE = "engine.plan"
"""Name of a built engine in a slot."""

SelfTestStage = Literal["verify", "write", "reference", "engine", "golden", "latency", "seal"]
Progress = Callable[[SelfTestStage, float], None]
"""Called with what is being done and the share of it that is done, in [0, 1]."""


@dataclass(frozen=True)
class Tested:
    """What was built and shown."""

    runtime: InferenceRuntime
    plan: bytes | None
    """The built engine; None where the member itself is loaded."""
    self_test: SelfTest


def no_progress(stage: SelfTestStage, share: float) -> None:
    """Tells nobody."""
