"""A second policy computes on a running robot's samples; it commands nothing, whatever befalls it."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners, sample_policy
from tests.harness.fixtures.site import Site
from tests.harness.fixtures.swinging_robot import SwingingRobot
from tests.support.patience import PATIENCE_S, nap, until

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.deploy_jetson.update.slots.health import health_path
from physai.deploy_jetson.update.slots.layout import SHADOW_FOLDER
from physai.sdk.evidence.shadow import ShadowEvidence, load_shadow_evidence
from physai.sdk.onnx.session import open_session
from physai.sdk.policy.header import POLICY_FILE


class Driven:
    """A runtime in a thread of this process, with version 1 of the sample policy driving."""

    def __init__(self, site: Site, folder: Path, *, shadow: Path | None = None) -> None:
        self.robot = SwingingRobot()
        self.said: list[str] = []
        self.root = site.agent.root
        self.recordings = folder / "recordings"
        telemetry = Telemetry(TelemetryOptions(flight=FlightOptions(folder=self.recordings, seconds=20.0)))
        options = RunOptions(root=self.root, realtime=Realtime(lock_memory=False), shadow=shadow, watchdog=False)
        self.runtime = Runtime(options, self.robot, telemetry=telemetry, say=self.said.append)
        self.robot.driven = lambda: self.runtime.guard_state == "RUN" and len(self.robot.log) > 10
        self.thread = threading.Thread(target=self.runtime.run)
        self.thread.start()
        until(lambda: self.runtime.state is Lifecycle.ACTIVE, said=lambda: self.said)

    def tell(self, word: str) -> dict[str, Any]:
        return tell(health_path(self.root).with_name(CONTROL_FILE), word, timeout_s=PATIENCE_S)

    def shadow(self) -> dict[str, Any]:
        return self.runtime.status()["shadow"]

    def wait(self, ticks: int = 20) -> dict[str, Any]:
        until(
            lambda: self.shadow().get("ticks", 0) >= ticks, self._restart, said=lambda: f"{self.said} {self.shadow()}"
        )
        return self.shadow()

    def _restart(self) -> None:
        # On a busy machine the guard has taken over.
        if self.runtime.guard_state != "RUN":
            for word in ("reset", "start"):
                with suppress(ControlError):
                    self.tell(word)
        nap()

    def end(self) -> None:
        self.runtime.commands.put(Command.SHUTDOWN)
        self.thread.join()

    def evidence(self) -> list[ShadowEvidence]:
        return [load_shadow_evidence(path) for path in sorted((self.root / SHADOW_FOLDER).glob("*.json"))]


@pytest.fixture
def second(folder: Path, workshop: SampleSigners) -> Path:
    """A published bundle without a verdict."""
    path = folder / "second.physai"
    path.write_bytes(workshop.published(sample_policy(seed=2), version=2))
    return path


@pytest.fixture
def driven(site: Site, folder: Path) -> Iterator[Driven]:
    site.run(1)
    made = Driven(site, folder)
    yield made
    made.end()


def effort(seed: int, angle: float) -> float:
    """Of the sample policy, by onnxruntime itself."""
    session, _ = open_session(sample_policy(seed=seed)[POLICY_FILE], source="sample")
    return float(session.run(None, {"joint_pos": np.array([[angle]], np.float32)})[0][0, 0])


def test_the_shadow_computes_what_its_graph_computes_and_sends_nothing(site: Site, folder: Path, second: Path) -> None:
    site.run(1)
    driven = Driven(site, folder, shadow=second)
    try:
        status = driven.wait(50)
        assert status["state"] == "runs"
        assert status["version"] == 2
    finally:
        driven.end()
    evidence = max(driven.evidence(), key=lambda one: one.ticks)
    told = [(sent, effort(1, angle), effort(2, angle)) for angle, sent in driven.robot.log[:300:3]]
    differ = [one for one in told if abs(one[1] - one[2]) > 1e-2]
    assert len(differ) > 5
    assert any(abs(sent - first) < 1e-5 for sent, first, _ in differ)
    assert not [one for one in differ if abs(one[0] - one[2]) < 1e-5]
    moment = evidence.moments[0]
    angle = moment.fields["joint_pos"][0]
    assert angle is not None
    assert moment.shadow == pytest.approx(effort(2, angle), abs=1e-5)
    assert evidence.divergence[0].greatest == pytest.approx(abs(moment.shadow - moment.sent), rel=1e-6)
    assert evidence.ticks >= 50
    assert evidence.active_bundle_sha256 == site.active.bundle_sha256  # pyright: ignore[reportOptionalMemberAccess]
    assert evidence.command_share == 1.0


def test_it_is_started_and_ended_while_the_robot_runs(driven: Driven, second: Path) -> None:
    assert driven.shadow() == {}
    assert driven.tell("shadow off") == {"shadow": "there is none"}
    driven.tell(f"shadow {second}")
    driven.wait()
    assert driven.tell("shadow off") == {"shadow": "ended"}
    until(lambda: len(driven.evidence()) == 1)
    driven.tell(f"shadow {second}")
    driven.wait()
    driven.tell("shadow off")
    until(lambda: len({one.run for one in driven.evidence()}) == 2)
    assert not [text for text in driven.said if text.startswith("warning: shadow")]


def test_a_bundle_that_is_not_signed_for_this_robot_is_no_shadow(driven: Driven, folder: Path) -> None:
    stranger = folder / "stranger.physai"
    stranger.write_bytes(SampleSigners().published(sample_policy(seed=2), version=2))
    driven.tell(f"shadow {stranger}")
    until(lambda: driven.shadow().get("problem"), said=lambda: driven.said)
    assert "key" in driven.shadow()["problem"]
    assert driven.shadow()["state"] == "off"
    with pytest.raises(ControlError, match="no such bundle to run as a shadow"):
        driven.tell(f"shadow {folder / 'nowhere'}")


def shadow_process(driven: Driven) -> int:
    run = driven.runtime._shadows._shadow._run  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    assert run is not None
    assert run._process is not None  # pyright: ignore[reportPrivateUsage]
    return run._process.pid  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_shadow_that_dies_or_hangs_is_dropped_within_three_periods(
    driven: Driven, second: Path, number: signal.Signals
) -> None:
    driven.tell(f"shadow {second}")
    driven.wait()
    before = driven.runtime.telemetry.meter
    assert before.lost == 0
    pid = shadow_process(driven)
    count = driven.runtime.status()["ticks"]
    os.kill(pid, number)
    until(lambda: driven.shadow()["dropped"] >= 1, said=lambda: driven.said)
    assert driven.runtime.state is Lifecycle.ACTIVE
    until(lambda: any("it is started again" in text for text in driven.said), said=lambda: driven.said)
    warnings = [text for text in driven.said if text.startswith("warning: shadow: ")]
    if number == signal.SIGSTOP:
        assert "dropped, 4 control periods behind" in warnings[0]
        assert "its process hung" in warnings[1]
    else:
        assert "ended with status -9" in warnings[-1]
    until(lambda: driven.runtime.status()["ticks"] > count + 20, said=lambda: driven.said)
    until(lambda: not Path(f"/proc/{pid}").exists())
    # What it had measured is kept.
    until(lambda: len(driven.evidence()) >= 1)


def test_ending_a_shadow_that_hangs_keeps_no_request_waiting(driven: Driven, second: Path) -> None:
    driven.tell(f"shadow {second}")
    driven.wait()
    pid = shadow_process(driven)
    os.kill(pid, signal.SIGSTOP)
    # Well below the three seconds that its process is given to end.
    assert tell(health_path(driven.root).with_name(CONTROL_FILE), "shadow off", timeout_s=2.0)
    assert tell(health_path(driven.root).with_name(CONTROL_FILE), "status", timeout_s=2.0)
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_its_process_has_no_way_to_the_robot(driven: Driven, second: Path) -> None:
    driven.tell(f"shadow {second}")
    driven.wait()
    pid = shadow_process(driven)
    links = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    sockets = {link for link in links if link.startswith("socket:")}
    assert len(sockets) == 1, "the one to the runtime"
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    flight = [line.split()[1] for line in maps if "physai-flight" in line]
    assert flight
    assert not [rights for rights in flight if "w" in rights]
    assert not [line for line in maps if "transport" in line]


def test_the_memory_that_it_reads_cannot_be_mapped_for_writing(driven: Driven) -> None:
    import mmap

    recorder = driven.runtime.telemetry.recorder
    assert recorder is not None
    descriptor = recorder.ring.share()
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 4096)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    finally:
        os.close(descriptor)


def test_a_recording_has_both_policies(driven: Driven, second: Path) -> None:
    from mcap.reader import make_reader

    driven.tell(f"shadow {second}")
    driven.wait(50)
    driven.tell("record")
    found: dict[str, list[Any]] = {}

    def recorded() -> bool:
        # A recording that a fault has opened on a busy machine takes the request in, and is written again later.
        found.clear()
        for file in driven.recordings.glob("*.mcap"):
            with file.open("rb") as stream:
                for _, channel, message in make_reader(stream).iter_messages():
                    found.setdefault(channel.topic, []).append(json.loads(message.data))
        return "/physai/shadow/joint_effort_target" in found

    until(recorded, said=lambda: driven.said)
    shadow = found["/physai/shadow/joint_effort_target"]
    # Fewer than were computed where the first recording was cut while the shadow began.
    assert len(shadow) == len(found["/physai/shadow_tick"]) >= 5
    angles = [message["position"][0] for message in found["/physai/joints"]] if "/physai/joints" in found else []
    efforts = {message["effort"][0] for message in shadow}
    assert efforts
    if angles:
        expected = [effort(2, angle) for angle in angles[-5:]]
        assert any(min(abs(one - two) for two in efforts) < 1e-5 for one in expected)


def test_a_runtime_without_recorder_says_what_a_shadow_needs(site: Site, folder: Path, second: Path) -> None:
    site.run(1)
    options = RunOptions(root=site.agent.root, realtime=Realtime(lock_memory=False), shadow=second, watchdog=False)
    with pytest.raises(Exception, match="--record-s above 0"):
        Runtime(options, LocalRobot(), say=lambda text: None).run()


def test_no_shadow_outlives_a_runtime(site: Site, folder: Path, second: Path) -> None:
    site.run(1)
    driven = Driven(site, folder, shadow=second)
    driven.wait()
    pid = shadow_process(driven)
    started = time.monotonic()
    driven.end()
    assert not Path(f"/proc/{pid}").exists()
    assert time.monotonic() - started < PATIENCE_S
