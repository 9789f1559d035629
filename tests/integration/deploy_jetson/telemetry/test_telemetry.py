"""A runtime and what it measures of itself."""

import io
import itertools
import json
import math
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners, sample_policy
from tests.harness.fixtures.site import Site
from tests.support.patience import PATIENCE_S, nap, until

from physai.deploy_jetson.cli import top
from physai.deploy_jetson.driving import latency_evidence
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, ControlSocket, tell
from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.telemetry import metrics_server
from physai.deploy_jetson.telemetry.flight.file import FlightFolder, is_scheduled
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.flight.segment_schedule import SegmentLedger, SegmentSchedule
from physai.deploy_jetson.telemetry.metrics_server import MetricsError, MetricsServer
from physai.deploy_jetson.telemetry.run_telemetry import RunTelemetry, make_telemetry
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.deploy_jetson.update.slots.health import health_path
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.evidence.latency import load_evidence, save_evidence
from physai.sdk.evidence.requirements import Requirements, SegmentRules

SLOWER = 20.0


class Meanwhile:
    """Runs a policy, and lets a test talk to the runtime from another thread once it has ticked."""

    def __init__(self, root: Path, options: TelemetryOptions, robot: LocalRobot | None = None) -> None:
        self.said: list[str] = []
        self.path = health_path(root).with_name(CONTROL_FILE)
        self.telemetry = Telemetry(options)
        self.runtime = Runtime(
            RunOptions(root=root, realtime=Realtime(lock_memory=False), hot_swap=False, unsafe_no_verdict=True),
            robot or LocalRobot(),
            telemetry=self.telemetry,
            say=self.said.append,
        )
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.runtime.run()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> "Meanwhile":
        self._thread.start()
        self.wait_for(lambda: self.status().get("ticks", 0) >= 4)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ControlError):  # it may be about to end, and has no socket then
            tell(self.path, "shutdown", timeout_s=PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self.said

    def status(self) -> dict[str, Any]:
        try:
            return tell(self.path, "status", timeout_s=PATIENCE_S)
        except ControlError:
            return {}

    def wait_for(self, condition: Callable[[], object]) -> None:
        until(lambda: condition() or not self._thread.is_alive(), said=lambda: self.said)
        assert condition(), self.said

    def wait_for_policy(self) -> None:
        """Until the policy is asked, which it is not before it was started."""

        def asked() -> bool:
            if "inference" in self.status()["stages_us"]:
                return True
            # On a busy machine the joints' readings may be too old to start it at once.
            tell(self.path, "start", timeout_s=PATIENCE_S)
            return False

        self.wait_for(asked)


@pytest.fixture
def root(site: Site, workshop: SampleSigners) -> Path:
    """With a policy of 5 Hz, for which a busy machine is fast enough."""
    data = workshop.published(sample_policy(slower=SLOWER), version=1)
    site.agent.install(data, unsafe_no_verdict=True)
    site.agent.activate()
    return site.agent.root


def flight(folder: Path) -> TelemetryOptions:
    return TelemetryOptions(flight=FlightOptions(folder=folder, seconds=5.0, after_s=0.1))


def causes(folder: Path) -> list[str]:
    """What the recordings were written for."""
    found: list[str] = []
    for path in FlightFolder(folder).recordings():
        with path.open("rb") as file:
            (metadata,) = make_reader(file).iter_metadata()
        assert metadata.metadata["version"] == "1"
        found += metadata.metadata["causes"].split("; ")
    return found


def test_every_tick_is_in_the_percentiles(root: Path) -> None:
    with Meanwhile(root, TelemetryOptions()) as run:
        run.wait_for(lambda: run.status()["stages_us"])
        assert set(run.status()["stages_us"]["whole"]) == {"p50", "p99", "p99.9", "max"}
    counts, meter = run.runtime.summary().counts, run.telemetry.meter
    assert meter.ticks == counts.ticks == meter.stages["whole"].count
    assert meter.lost == 0


def test_an_operator_may_ask_for_a_recording(root: Path, folder: Path) -> None:
    recordings = folder / "recordings"
    with Meanwhile(root, flight(recordings)) as run:
        assert tell(run.path, "record", timeout_s=PATIENCE_S) == {"record": f"being written to {recordings}"}
        run.wait_for(lambda: run.status()["recorder"]["files"])
    assert "requested" in causes(recordings)
    assert any("the last ticks are in" in line for line in run.said)


def test_without_a_recorder_it_says_so(root: Path) -> None:
    with Meanwhile(root, TelemetryOptions()) as run:
        assert "there is no flight recorder" in tell(run.path, "record", timeout_s=PATIENCE_S)["record"]
        assert "recorder" not in run.status()


def test_when_the_guard_takes_over_there_is_a_recording(root: Path, folder: Path) -> None:
    recordings, stopped = folder / "recordings", threading.Event()
    robot = LocalRobot(wall_ns=lambda: 1 if stopped.is_set() else time.time_ns())
    with Meanwhile(root, flight(recordings), robot) as run:

        def begin() -> None:
            """A HOLD that a busy machine was the cause of is reset; only then can the sensor be the cause."""
            for word in ("reset", "start"):
                with suppress(ControlError):
                    tell(run.path, word, timeout_s=PATIENCE_S)
            nap()

        def silence() -> None:
            stopped.clear()
            until(lambda: run.status()["guard"] == "RUN", begin)
            stopped.set()
            until(lambda: run.status()["guard"] != "RUN")

        # A stamp that has gone back leaves no speed either, where that is estimated.
        wanted = ("HOLD: sensor stale", "HOLD: sensor not finite, sensor stale")
        until(lambda: any(cause in wanted for cause in causes(recordings)), silence, lambda: causes(recordings))


def test_a_runtime_that_crashes_leaves_a_recording(root: Path, folder: Path) -> None:
    doomed = threading.Event()

    def now_ns() -> int:
        if doomed.is_set():
            raise SystemExit("out of luck")
        return time.monotonic_ns()

    with Meanwhile(root, flight(folder / "recordings"), LocalRobot(now_ns=now_ns)) as run:
        doomed.set()
        run._thread.join(PATIENCE_S)  # pyright: ignore[reportPrivateUsage]
    assert isinstance(run._error, SystemExit)  # pyright: ignore[reportPrivateUsage]
    assert causes(folder / "recordings")[-1] == "SystemExit: out of luck"


def test_a_folder_that_cannot_be_written_to_stops_no_robot(root: Path, folder: Path) -> None:
    (folder / "file").touch()
    with Meanwhile(root, flight(folder / "file" / "recordings")) as run:
        tell(run.path, "record", timeout_s=PATIENCE_S)
        run.wait_for(lambda: run.status()["recorder"]["problem"])
        assert run.status()["lifecycle"] == "active"
    assert run.said[0].startswith("warning: flight recorder: ")
    assert "Not a directory" in run.said[0]


def test_prometheus_is_told_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "TIMEOUT_S", PATIENCE_S)
    with Meanwhile(root, TelemetryOptions(metrics_port=0)) as run:
        run.wait_for(lambda: run.status()["stages_us"])
        with urllib.request.urlopen(run.status()["metrics"], timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
    assert 'physai_lifecycle_state{state="active"} 1' in text
    assert "physai_policy_version 1\n" in text
    assert any(line.startswith("metrics at http://127.0.0.1:") for line in run.said)


def _quiet(_: str) -> None:
    pass


def test_a_port_that_is_taken_is_refused_before_anything_moves(root: Path) -> None:
    taken = MetricsServer(0, str)
    port = int(taken.address.split(":")[2].split("/")[0])
    robot = LocalRobot()
    runtime = Runtime(
        RunOptions(root=root, hot_swap=False, unsafe_no_verdict=True),
        robot,
        telemetry=Telemetry(TelemetryOptions(metrics_port=port)),
        say=_quiet,
    )
    with pytest.raises(MetricsError, match="Address already in use"):
        runtime.run()
    taken.close()
    assert robot.sent == 0


def test_evidence_of_the_whole_run(root: Path, folder: Path) -> None:
    with Meanwhile(root, TelemetryOptions(keep_ticks=True)) as run:
        # On a busy machine the first ticks may all be the guard's alone.
        run.wait_for(run.telemetry.tick_seconds)
    measured = latency_evidence(run.runtime)
    assert measured is not None
    save_evidence(measured, folder / "latency.json")
    evidence = load_evidence(folder / "latency.json")
    loaded = run.runtime.loaded
    assert loaded is not None
    assert evidence.policy_sha256 == sha256_hex(loaded.candidate.policy)
    assert evidence.contract_fingerprint == loaded.candidate.fingerprint
    assert "whole ticks of physai robot run over local" in evidence.runtime
    # The ramp at the end is driven by the guard alone, and says nothing of the policy.
    counts = run.runtime.summary().counts
    assert 1 <= len(evidence.tick_s) <= counts.ticks + counts.skipped


def test_options_of_the_command(tmp_path: Path) -> None:
    options = make_telemetry(RunTelemetry(), tmp_path).options
    assert options.flight is not None
    assert (options.flight.folder, options.flight.seconds) == (tmp_path / "recordings", 30.0)
    assert (options.metrics_port, options.keep_ticks) == (None, False)
    assert make_telemetry(RunTelemetry(record_s=0.0), tmp_path).options.flight is None


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, 601.0])
def test_seconds_that_cannot_be_kept(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(PhysaiError, match="`record_s` must lie in 0 … 600"):
        make_telemetry(RunTelemetry(record_s=seconds), tmp_path)


def test_evidence_into_no_folder(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="no folder"):
        make_telemetry(RunTelemetry(latency=tmp_path / "none" / "latency.json"), tmp_path)


def look(root: Path, *words: str) -> int:
    parser = Parser(prog="physai robot top")
    top.top_verb.add_arguments(parser)
    return top.top_verb.run(parser.parse(["--root", str(root), *words]))


def test_top_shows_a_running_policy(
    root: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "ANSWER_S", PATIENCE_S)
    with Meanwhile(root, flight(folder / "recordings")) as run:
        run.wait_for_policy()
        assert look(root, "--once") == 0
        shown = capsys.readouterr().out
        assert look(root, "--once", "--json") == 0
        status = json.loads(capsys.readouterr().out)
    assert "version 1 in slot a over local" in shown
    assert "active, 5 Hz, guard " in shown
    for stage in ("sensor age", "wake-up", "inference", "guard", "send", "whole"):
        assert f"\n{stage} " in shown
    assert "\x1b" not in shown
    assert status["lifecycle"] == "active"


class Looking:
    """`physai robot top` in this thread, and what it has printed so far for the one that ends the runtime."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()

    def until_it_ends(self, root: Path, end: Callable[[], object]) -> None:
        """Looks; the runtime is ended once it was seen twice."""

        def end_it() -> None:
            until(lambda: self.out.getvalue().count("\n") >= 2)
            end()

        ending = threading.Thread(target=end_it)
        ending.start()
        with redirect_stdout(self.out), redirect_stderr(self.err):
            assert look(root, "--every-s", "0.05") == 0
        ending.join()


def test_top_prints_lines_where_there_is_no_terminal(root: Path) -> None:
    looking = Looking()
    with Meanwhile(root, TelemetryOptions()) as run:
        looking.until_it_ends(root, lambda: tell(run.path, "shutdown", timeout_s=PATIENCE_S))
    shown = looking.out.getvalue()
    assert shown.startswith("active, ")
    assert " ticks, " in shown
    assert "the runtime has ended" in looking.err.getvalue()


def test_top_goes_on_where_a_runtime_is_only_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "ANSWER_S", 0.2)
    looking, asked = Looking(), itertools.count()

    def status() -> dict[str, Any]:
        if next(asked) == 1:
            until(lambda: "did not answer within 0.2 s; looking again" in looking.err.getvalue())
        return {"lifecycle": "active"}

    control = ControlSocket(health_path(tmp_path).with_name(CONTROL_FILE), CommandQueue(), status)
    control.start()
    looking.until_it_ends(tmp_path, control.close)
    *late, ended = looking.err.getvalue().splitlines()
    assert late
    assert all(line.endswith("the runtime did not answer within 0.2 s; looking again") for line in late)
    assert ended.startswith("the runtime has ended: ")


def test_top_that_looks_once_does_not_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "ANSWER_S", 0.05)
    control = ControlSocket(health_path(tmp_path).with_name(CONTROL_FILE), CommandQueue(), dict)
    with pytest.raises(ControlError, match=r"the runtime did not answer within 0\.05 s"):
        look(tmp_path, "--once")
    control.close()


def test_top_without_a_runtime(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match=r"no runtime to talk to: .*; start it with `physai robot run`"):
        look(tmp_path, "--once")


@pytest.mark.parametrize("every", ["0", "-1", "61"])
def test_top_is_not_asked_too_often(tmp_path: Path, every: str) -> None:
    with pytest.raises(PhysaiError, match=r"--every-s must lie in 0.05 … 60 s"):
        look(tmp_path, "--every-s", every)


def test_a_page_before_a_policy_is_loaded() -> None:
    assert "unconfigured: no policy is loaded yet" in top.page({"lifecycle": "unconfigured"}, None)
    assert top.line({"lifecycle": "unconfigured"}).startswith("unconfigured")


def test_a_page_cannot_steer_the_terminal() -> None:
    status = {"lifecycle": "active", "guard": "HOLD", "why": "\x1b[2J", "version": 1, "slot": "a", "rate_hz": 100.0}
    assert "\x1b" not in top.page(status, 99.6) + top.line(status)
    assert "100 of 100 Hz" in top.page(status, 99.6)


LONG = SegmentRules(per_hour=3.0, seconds=600.0)
"""A segment that is longer than a test."""


def test_the_settings_of_a_robot_demand_segments(root: Path, folder: Path) -> None:
    (root / "settings.json").write_bytes(Requirements(segments=LONG).encode())
    recordings = folder / "recordings"
    recordings.mkdir()
    seed = bytes(32)
    SegmentLedger(seed=seed.hex(), driven_s=SegmentSchedule(seed, LONG).window(3).start_s).save(recordings)
    with Meanwhile(root, flight(recordings)) as run:
        run.wait_for(lambda: run.status()["recorder"]["segments"])
        assert run.status()["recorder"]["segments"] == {"written": 0, "lost": 0, "lost_ticks": 0, "last": ""}
        assert "segments: 0 written, 0 and 0 ticks lost, last none" in top.page(run.status(), None)
    path = next(path for path in FlightFolder(recordings).recordings() if is_scheduled(path.name))
    with path.open("rb") as file:
        (record,) = make_reader(file).iter_metadata()
    found = record.metadata
    assert (found["segment"], found["version"], found["ended"]) == ("scheduled", "1", "the run ended")
    assert (found["interval"], found["robot"], len(found["bundle_sha256"])) == ("3", "pendulum", 64)
    assert int(found["ticks"]) >= 4


def test_without_a_flight_recorder_segments_are_demanded_in_vain(root: Path) -> None:
    (root / "settings.json").write_bytes(Requirements(segments=LONG).encode())
    with Meanwhile(root, TelemetryOptions()) as run:
        pass
    warning = "warning: no scheduled segments, which the robot's settings demand: there is no flight recorder"
    assert warning in run.said
