"""Random faults, lies and requests around the real loop, and whether the judge of what leaves it can fail."""

import gc
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fault_injection.arm_policies import ARMS, arm_policy
from tests.harness.fault_injection.composed import ComposedWorld, PlantRobot, compose
from tests.harness.fault_injection.injection import make_rig
from tests.harness.fault_injection.lie_trial import BEGINS, CAUGHT, SensorFaultWorld, tell_lie
from tests.harness.fault_injection.plant import SensorFault
from tests.harness.fault_injection.world import Fault, World
from tests.harness.fixtures.sample import sample_policy

from physai.deploy_jetson.runtime.commands.queue import Command
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.safety.plant import RestWatch

POLICIES = Path(__file__).parents[3] / "data" / "policies"


def policy(name: str, seed: int = 0) -> bytes:
    if name == "pendulum":
        return sample_policy(seed=seed)[POLICY_FILE]
    return arm_policy(name, seed=seed) if name in ARMS else (POLICIES / name / POLICY_FILE).read_bytes()


def composed(name: str, folder: Path, *, periods: int, seed: int = 0) -> ComposedWorld:
    spare = policy(name, seed + 1) if name != "reach" else None
    return compose(policy(name, seed), periods=periods, seed=seed, health=folder / "health", spare=spare)


@pytest.mark.parametrize("name", ["pendulum", "reach", *ARMS])
def test_no_promise_is_broken(name: str, tmp_path: Path) -> None:
    world = composed(name, tmp_path, periods=1000)
    verdict, findings = world.judge.verdict, world.findings
    assert verdict.broken == []
    assert verdict.periods_to_safe <= 2
    assert findings.longest_silence <= 1
    assert verdict.resets > 5
    assert verdict.starts > 5
    assert verdict.stops >= 3
    assert verdict.changed > 0.1 * verdict.commands
    assert findings.met_running > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (2, 3))])
@pytest.mark.parametrize("name", ["pendulum", "reach", *ARMS])
def test_no_promise_is_broken_for_long(name: str, seed: int, tmp_path: Path) -> None:
    world = composed(name, tmp_path, periods=8000, seed=seed)
    assert world.judge.verdict.broken == []
    assert world.judge.verdict.periods_to_safe <= 2
    assert set(world.findings.injected) == set(Fault)
    # Lies last for a while, so one run meets some of them; test_a_lie_is_found_out_and_nothing_creeps takes each.
    assert len(set(world.lies)) >= 2


@pytest.mark.parametrize("lie", CAUGHT)
def test_a_lie_is_found_out_and_nothing_creeps(lie: SensorFault, tmp_path: Path) -> None:
    found = tell_lie(lie, kind="absolute", seed=0, health=tmp_path / "health")
    assert found.violations == ()
    assert found.periods is not None
    assert found.periods <= 15
    assert found.crept <= 0.001


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
    """Fifty thousand ticks: 100 s at 500 Hz. In real time: `python -m benchmarks runtime --seconds 1200`."""
    rig = make_rig(
        policy("reach"), periods=60_000, seed=0, health=tmp_path / "health", share=0.01, wind=0.001, world=Watching
    )
    assert isinstance(rig.world, Watching)
    rig.world.anonymous_kib, rig.world.said = [], rig.said
    rig.loop.run()
    rig.counters.close()
    # The first ten thousand fill what is bounded.
    assert rig.world.anonymous_kib[-1] - rig.world.anonymous_kib[1] < 200.0


class StoppedLie(SensorFaultWorld):
    """A stop comes while the velocity channels are dead and the joints still move."""

    def operate(self) -> None:
        super().operate()
        if self.findings.periods == BEGINS + 4:
            assert self.rig is not None
            assert isinstance(self.rig.robot, PlantRobot)
            self.rig.robot.plant.wrong.dead[:] = True
            self.request(Command.STOP)


def stopped_lie(folder: Path) -> list[str]:
    """With a contract that does not compare positions with speeds."""
    data = policy("unlimited")
    rig = make_rig(data, periods=BEGINS + 60, seed=0, health=folder / "health", world=StoppedLie, robot=PlantRobot)
    world = rig.world
    assert isinstance(world, StoppedLie)
    world.rig, world.lie, world.seen = rig, SensorFault.DEAD_VELOCITY, []
    rig.loop.run()
    world.deactivated()
    rig.counters.close()
    world.operator.close()
    assert world.judge.verdict.stops == 1
    return world.judge.verdict.broken


def test_a_stop_is_not_believed_from_a_dead_velocity_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding 4; and the judge sees a runtime that does believe it."""
    assert stopped_lie(tmp_path) == []
    read = RestWatch.read

    def by_speed_alone(self: RestWatch, stamp_s: Any, position: Any, velocity: Any, watched: Any) -> Any:
        return read(self, stamp_s, 0.0 * position, velocity, watched)

    monkeypatch.setattr(RestWatch, "read", by_speed_alone)
    assert any("a standstill is shown" in text for text in stopped_lie(tmp_path))
