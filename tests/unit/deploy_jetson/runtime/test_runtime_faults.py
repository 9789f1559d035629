"""Random faults around the real loop, and whether anything unsafe leaves it."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from physai.deploy_jetson.bench.injection import inject, make_rig
from physai.deploy_jetson.bench.sample import sample_policy
from physai.deploy_jetson.bench.world import Fault, World
from physai.deploy_jetson.runtime.robot_guard import RobotGuard
from physai.deploy_jetson.runtime.senses import Senses
from physai.deploy_jetson.runtime.tick import Tick
from physai.sdk.policy_file import POLICY_FILE
from physai.sdk.safety import GuardResult

POLICIES = Path(__file__).parents[3] / "data" / "policies"


def policy(name: str) -> bytes:
    return sample_policy()[POLICY_FILE] if name == "pendulum" else (POLICIES / name / POLICY_FILE).read_bytes()


@pytest.mark.parametrize(("name", "periods"), [("cartpole-00", 1200), ("reach", 600), ("pendulum", 600)])
def test_no_unsafe_command_leaves(name: str, periods: int, tmp_path: Path) -> None:
    found = inject(policy(name), periods=periods, seed=0, health=tmp_path / "health")
    assert found.unsafe == []
    assert found.longest_silence <= 1
    assert set(found.injected) == set(Fault)
    assert found.sent > 0.9 * (periods - found.injected[Fault.SEND_RAISES])
    assert found.changed > 0.1 * found.sent
    assert found.met_running > 0.25 * sum(found.injected.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole-00", "reach"])
def test_no_unsafe_command_leaves_in_ten_thousand_faults(name: str, tmp_path: Path) -> None:
    found = inject(policy(name), periods=13_000, seed=1, health=tmp_path / "health")
    assert sum(found.injected.values()) > 5000
    assert found.unsafe == []
    assert found.longest_silence <= 1


class Watching(World):
    """A world that looks at the memory of this process now and then."""

    anonymous_kib: list[float]
    said: list[str]

    def wait(self, due_ns: int) -> int:
        if self.findings.periods % 10_000 == 0:
            self.said.clear()
            self.anonymous_kib.append(resident_kib())
        return super().wait(due_ns)


def resident_kib() -> float:
    """Resident memory that belongs to no file [KiB]."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


@pytest.mark.slow
def test_memory_is_constant(tmp_path: Path) -> None:
    """Fifty thousand ticks: 100 s at 500 Hz. Twenty minutes in real time: `physai bench runtime --seconds 1200`."""
    rig = make_rig(
        policy("reach"), periods=60_000, seed=0, health=tmp_path / "health", share=0.01, wind=0.001, world=Watching
    )
    assert isinstance(rig.world, Watching)
    rig.world.anonymous_kib, rig.world.said = [], rig.said
    rig.loop.run()
    rig.counters.close()
    # The first ten thousand fill what is bounded.
    assert rig.world.anonymous_kib[-1] - rig.world.anonymous_kib[1] < 200.0


def without_a_guard(self: RobotGuard, age_s: float, pos: Any, vel: Any, targets: Any, **rest: Any) -> GuardResult:
    result = GUARDED(self, age_s, pos, vel, targets, **rest)
    return result if targets is None else replace(result, targets=dict(targets))


GUARDED = RobotGuard.decide


def test_the_judge_sees_a_missing_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RobotGuard, "decide", without_a_guard)
    found = inject(policy("cartpole-00"), periods=300, seed=0, health=tmp_path / "health")
    assert any("is outside" in text for text in found.unsafe)


def no_age(*_: object) -> int:
    return 0


def test_the_judge_sees_a_sample_that_looks_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Senses, "age_ns", no_age)
    found = inject(policy("cartpole-00"), periods=300, seed=0, health=tmp_path / "health")
    assert any("an old sample" in text and "in a period with a fault" in text for text in found.unsafe)


def test_the_judge_sees_a_command_that_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tick.__init__

    def patient(self: Tick, *args: Any, **rest: Any) -> None:
        made(self, *args, **rest)
        self._deadline_ns = 10**12  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(Tick, "__init__", patient)
    found = inject(policy("cartpole-00"), periods=300, seed=0, health=tmp_path / "health")
    assert any("after its sample was taken in" in text for text in found.unsafe)
