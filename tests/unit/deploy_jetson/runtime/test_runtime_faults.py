"""Random faults around the real loop, and whether anything unsafe leaves it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from physai.deploy_jetson.bench.injection import inject
from physai.deploy_jetson.bench.sample import sample_policy
from physai.deploy_jetson.bench.world import Fault
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
