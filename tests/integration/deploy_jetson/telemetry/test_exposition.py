"""What Prometheus is told, read back as Prometheus reads it, and who may ask."""

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from tests.support.patience import PATIENCE_S

from physai.deploy_jetson.telemetry import metrics_server
from physai.deploy_jetson.telemetry.exposition import BOUNDS_NS, CONTENT_TYPE, exposition
from physai.deploy_jetson.telemetry.meter import Meter
from physai.deploy_jetson.telemetry.metrics_server import MetricsError, MetricsServer
from physai.deploy_jetson.ticks.tick_ring import TickRing, Ticks
from physai.sdk.safety import GuardState, Reason

MakeTicks = Callable[..., Ticks]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

STATUS = {
    "lifecycle": "active",
    "guard": "HOLD",
    "transport": "dds",
    "version": 3,
    "slot": "b",
    "contract": 'odd "name"\\with\nall',
    "rate_hz": 100.0,
    "ticks": 7,
    "missed": 2,
    "swaps": 1,
}

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parsed(text: str) -> tuple[Samples, dict[str, str]]:
    """Samples, and type by family, by the grammar of the format; anything else fails."""
    samples: Samples = {}
    types: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            assert word in ("HELP", "TYPE")
            if word == "TYPE":
                assert name not in types
                types[name] = rest
            continue
        match = _SAMPLE.fullmatch(line)
        assert match is not None, line
        found = {
            key: re.sub(r'\\[\\"n]', lambda m: _ESCAPED[m[0]], value) for key, value in _LABEL.findall(match[2] or "")
        }
        key = (match[1], frozenset(found.items()))
        assert key not in samples, line
        samples[key] = float(match[3])
    return samples, types


def of(samples: Samples, metric: str, **labels: str) -> float:
    return samples[metric, frozenset(labels.items())]


def measured(ticks: Ticks) -> Meter:
    ring, meter = TickRing(100), Meter(5_000_000)
    for tick in ticks:
        ring.push(tick.tolist())
    meter.read(ring)
    return meter


@pytest.fixture
def samples(make_ticks: MakeTicks) -> Samples:
    ticks = make_ticks(
        3,
        guard_ns=[5000, 70_000, 10**9],
        state=[GuardState.RUN, GuardState.HOLD, GuardState.HOLD],
        reasons=int(Reason.SENSOR_STALE),
    )
    return parsed(exposition(measured(ticks), STATUS, steal_s=0.25))[0]


def test_counters_and_states(samples: Samples) -> None:
    assert of(samples, "physai_ticks_total") == 7
    assert of(samples, "physai_deadlines_missed_total") == 2
    assert of(samples, "physai_policy_swaps_total") == 1
    assert of(samples, "physai_tick_reasons_total", reason="sensor_stale") == 3
    assert of(samples, "physai_guard_changes_total", state="HOLD") == 1
    assert of(samples, "physai_machine_steal_seconds_total") == 0.25
    guard = {state.name: of(samples, "physai_guard_state", state=state.name) for state in GuardState}
    assert guard == {"RUN": 0, "STANDSTILL": 0, "HOLD": 1, "DAMP": 0, "PROTECTIVE_STOP": 0}
    assert of(samples, "physai_lifecycle_state", state="active") == 1
    assert of(samples, "physai_policy_version") == 3


def test_a_label_may_hold_anything(samples: Samples) -> None:
    labels = {key: str(STATUS[key]) for key in ("version", "slot", "contract", "transport")}
    assert of(samples, "physai_policy_info", **labels) == 1


def test_a_stage_is_a_histogram_in_seconds(samples: Samples) -> None:
    name = "physai_tick_stage_seconds"
    assert of(samples, f"{name}_count", stage="guard") == 3
    assert of(samples, f"{name}_sum", stage="guard") == pytest.approx(1.000075)
    assert of(samples, f"{name}_bucket", stage="guard", le="4.096e-06") == 0
    assert of(samples, f"{name}_bucket", stage="guard", le="6.144e-06") == 1
    assert of(samples, f"{name}_bucket", stage="guard", le="0.402653184") == 2
    assert of(samples, f"{name}_bucket", stage="guard", le="+Inf") == 3
    assert of(samples, "physai_tick_stage_max_seconds", stage="guard") == 1.0


def test_buckets_ascend_and_end_with_all(samples: Samples) -> None:
    for stage in ("sensor_age", "wake_up", "inference", "guard", "send", "whole"):
        counts = sorted(
            (float(dict(labels)["le"]), value)
            for (name, labels), value in samples.items()
            if name.endswith("_bucket") and ("stage", stage) in labels
        )
        assert len(counts) == len(BOUNDS_NS) + 1
        values = [value for _, value in counts]
        assert values == sorted(values)
        assert values[-1] == of(samples, "physai_tick_stage_seconds_count", stage=stage)


def test_names_and_types_follow_the_conventions() -> None:
    samples, types = parsed(exposition(Meter(0), STATUS, steal_s=None))
    for name, kind in types.items():
        assert name.startswith("physai_")
        assert name.endswith("_total") == (kind == "counter")
    families = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in samples}
    assert families == set(types)


def test_before_a_policy_is_loaded() -> None:
    samples, _ = parsed(exposition(Meter(0), {"lifecycle": "unconfigured"}, steal_s=None))
    assert of(samples, "physai_lifecycle_state", state="unconfigured") == 1


def serving() -> Iterator[MetricsServer]:
    made = MetricsServer(0, lambda: "physai_ticks_total 1\n")
    made.start()
    yield made
    made.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsServer]:
    """Waits for callers that a busy machine keeps from saying what they want."""
    monkeypatch.setattr(metrics_server, "TIMEOUT_S", PATIENCE_S)
    yield from serving()


@pytest.fixture
def hasty_server() -> Iterator[MetricsServer]:
    yield from serving()


def test_it_answers_on_this_machine_only(server: MetricsServer) -> None:
    assert server.address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(server.address, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"] == CONTENT_TYPE
        assert answer.read() == b"physai_ticks_total 1\n"


@pytest.mark.parametrize("path", ["/", "/metrics/../etc/passwd", "/metricsx"])
def test_nothing_else_is_served(server: MetricsServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(server.address.replace("/metrics", path), timeout=PATIENCE_S)


def test_who_says_nothing_does_not_keep_the_others_waiting_for_ever(hasty_server: MetricsServer) -> None:
    address = hasty_server.address
    port = int(address.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port)), urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        assert answer.status == 200


def test_a_port_that_is_taken(server: MetricsServer) -> None:
    port = int(server.address.split(":")[2].split("/")[0])
    with pytest.raises(MetricsError, match=f"127.0.0.1:{port}: no metrics can be served there: Address already in use"):
        MetricsServer(port, str)


@pytest.mark.parametrize("port", [-1, 65536])
def test_no_port(port: int) -> None:
    with pytest.raises(MetricsError, match=rf"0 … 65535, got {port}"):
        MetricsServer(port, str)
