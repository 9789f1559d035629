"""What the control loop does with a word: commands are cut, a policy that takes over is judged in its first tick."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.harness.fixtures.sample import ROBOT
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.io.sensor_input import SensorInput
from physai.deploy_jetson.runtime.revocation.status_watch import StatusWatch
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.deploy_jetson.update.revocation.kept_words import accept_and_keep
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.signing.status.status_document import (
    NarrowedCommand,
    NarrowedConditions,
    NarrowedVerdict,
    RevokedVerdict,
    StatusPredicate,
    sign_status,
)
from physai.sdk.transport.protocol import empty_sample

REACH = Path(__file__).parents[3] / "data" / "policies" / "reach" / POLICY_FILE
SINCE = "2026-11-29T12:00:00Z"
NARROWED, REVOKED, SOUND = "a" * 64, "b" * 64, "c" * 64


def loaded(bundle_id: str) -> Any:
    return SimpleNamespace(candidate=SimpleNamespace(version=1, bundle_sha256="0" * 64, bundle_id=bundle_id))


@pytest.fixture
def senses() -> SensorInput:
    engine = OnnxEngine(REACH.read_bytes(), source="policy.onnx")
    sample = empty_sample(engine.header.contract)
    for values in sample.fields.values():
        values[:] = 0.0
    return SensorInput(engine.header.contract, sample, BoundPolicy.engine(engine).inputs)


def test_a_word_follows_the_policy_that_drives(site: Site, senses: SensorInput) -> None:
    contract, sample, inputs = senses._contract, senses._sample, senses._inputs  # pyright: ignore[reportPrivateUsage]
    (field, *_) = contract.command.fields
    middle = tuple(0.5 * (low + high) for low, high in zip(field.lower, field.upper, strict=True))
    half = NarrowedConditions(commands={field.name: NarrowedCommand(lower=field.lower, upper=middle)})
    word = StatusPredicate(
        robot=ROBOT,
        serial=1,
        issued=SINCE,
        revoked=(RevokedVerdict(bundle=REVOKED, reason="worn", since=SINCE),),
        narrowed=(NarrowedVerdict(bundle=NARROWED, reason="worn", since=SINCE, conditions=half),),
    )
    accept_and_keep(
        site.agent.root, sign_status([site.workshop.validator], word), trust=site.agent.config.trust(), robot=ROBOT
    )
    commands, said = CommandQueue(), list[str]()
    watch = StatusWatch(RunOptions(root=site.agent.root), commands, said.append)
    loop: Any = SimpleNamespace(loaded=loaded(NARROWED))
    watch.attach(loop, cast("Any", SimpleNamespace(senses=senses, state=0)), contract)

    def read() -> list[float]:
        sample.fields[field.name][:] = field.upper
        assert senses.read() in (0, RuntimeFault.COMMAND_CUT)
        return inputs.named[field.name][0].tolist()

    watch.check()
    assert read() == np.array(middle, np.float32).tolist()
    assert (commands.barred, commands.hold) == ("", 0)
    # A policy that takes over between two ticks is judged in its first one.
    loop.loaded = loaded(REVOKED)
    watch.check()
    assert "the verdict on version 1 is revoked since 2026-11-29T12:00:00Z: worn" in commands.barred
    pressed = commands.hold
    assert pressed
    watch.check()
    assert commands.hold == pressed
    loop.loaded = loaded(SOUND)
    watch.check()
    assert commands.barred == ""
    assert read() == np.array(field.upper, np.float32).tolist()
