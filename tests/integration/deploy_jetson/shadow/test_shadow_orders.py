"""In random orders of shadow on and off, changes of policies, stops and kills, nothing of a shadow is ever sent."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.harness.fixtures.sample import SampleSigners, sample_policy
from tests.harness.fixtures.site import Site
from tests.integration.deploy_jetson.shadow.test_shadow import Driven, shadow_process
from tests.support.patience import nap

from physai.deploy_jetson.runtime.commands.control_socket import ControlError
from physai.sdk.base.errors import PhysaiError
from physai.sdk.onnx.session import open_session
from physai.sdk.policy.header import POLICY_FILE

SHADOW_SEED = 77
STEPS = 25
SEEDS = range(3)


def efforts(seed: int, angles: list[float]) -> np.ndarray:
    session, _ = open_session(sample_policy(seed=seed)[POLICY_FILE], source="sample")
    return session.run(None, {"joint_pos": np.array(angles, np.float32)[:, None]})[0][:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_of_a_shadow_is_ever_sent(site: Site, folder: Path, workshop: SampleSigners, seed: int) -> None:
    shadow = folder / "shadow.physai"
    shadow.write_bytes(workshop.published(sample_policy(seed=SHADOW_SEED), version=9))
    site.run(1)
    driven = Driven(site, folder)
    rng = random.Random(seed)
    active = 1

    def swap() -> None:
        nonlocal active
        wanted = active % 4 + 1
        if wanted > active:
            site.agent.install(site.bundles[wanted])
            site.agent.activate()
            site.agent.commit("healthy")
            active = wanted

    def kill(number: signal.Signals) -> None:
        with suppress(AssertionError, ProcessLookupError):
            os.kill(shadow_process(driven), number)

    def drive() -> None:
        for word in ("activate", "reset", "start"):
            with suppress(ControlError):
                driven.tell(word)

    events: dict[str, Callable[[], object]] = {
        "on": lambda: driven.tell(f"shadow {shadow}"),
        "on again": lambda: driven.tell(f"shadow {shadow}"),
        "off": lambda: driven.tell("shadow off"),
        "swap": swap,
        "stop": lambda: driven.tell("stop"),
        "hold": lambda: driven.tell("hold"),
        "deactivate": lambda: driven.tell("deactivate"),
        "kill": lambda: kill(signal.SIGKILL),
        "hang": lambda: kill(signal.SIGSTOP),
        "record": lambda: driven.tell("record"),
        "drive": drive,
        "go on driving": drive,
    }
    done: list[str] = []
    shadowed = 0
    try:
        driven.tell(f"shadow {shadow}")
        shadowed = driven.wait(10)["ticks"]
        for _ in range(STEPS):
            name = rng.choice(list(events))
            done.append(name)
            with suppress(ControlError, PhysaiError):
                events[name]()
            for _ in range(rng.randrange(1, 8)):
                nap()
    finally:
        driven.end()
    assert shadowed >= 10
    angles, sent = zip(*driven.robot.log, strict=True)
    given = np.array(sent)
    theirs = efforts(SHADOW_SEED, list(angles))
    own = [efforts(number, list(angles)) for number in range(1, active + 1)]
    told_apart = np.all([np.abs(theirs - one) > 1e-2 for one in own], axis=0)
    assert told_apart.sum() > 10
    from_shadow = told_apart & (np.abs(given - theirs) < 1e-6)
    assert not from_shadow.any(), f"{np.flatnonzero(from_shadow)} after {done}"
    assert any((np.abs(given - one) < 1e-5)[told_apart].any() for one in own), "a policy drove"
