"""Gate `engine`: the same episodes in MuJoCo and MuJoCo Warp, pair by pair."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.gates.checks.engine import EngineGate
from physai.gates.checks.gate import Context, GateFinding
from physai.gates.execution.workers import play
from physai.gates.settings import GateSettingsError, parse_gates
from physai.sdk.base.errors import MissingExtraError, ModelError
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sim.engines import warp_device
from physai.sim.engines.protocol import CapacityError
from physai.twin.rollouts import rollout
from physai.twin.rollouts.batch import BatchResult
from physai.twin.rollouts.worlds import build_worlds

Writer = Callable[..., Path]


def ask(context: Context, first: BatchResult, second: BatchResult) -> GateFinding:
    """The gate's finding for two given answers."""
    generator = EngineGate().play(context)
    next(generator)
    with pytest.raises(StopIteration) as stop:
        generator.send([first, second])
    return stop.value.value


@pytest.fixture
def pair(bench: Any, write_policy: Writer) -> tuple[Context, BatchResult]:
    context = bench.context(write_policy())
    return context, play(context.subject, context.batch(0, context.conditions["calibrated"]))


def changed(played: BatchResult, **fields: Any) -> BatchResult:
    return BatchResult(**{**{name: getattr(played, name) for name in played.__dataclass_fields__}, **fields})


def test_equal_answers_pass(pair: tuple[Context, BatchResult]) -> None:
    context, played = pair
    finding = ask(context, played, played)
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.chart["pairs"] == [0, 0, 64]


def test_motions_that_differ_early_are_the_twins_fault(pair: tuple[Context, BatchResult]) -> None:
    context, played = pair
    finding = ask(context, played, changed(played, early_pos=played.early_pos + 0.03))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.TWIN)
    assert "differ by 0.03 (median)" in finding.message


@pytest.mark.parametrize(
    ("lost", "outcome"), [(12, VerdictOutcome.PASS), (13, VerdictOutcome.FAIL), (64, VerdictOutcome.FAIL)]
)
def test_a_success_that_is_lost_beyond_the_margin_fails(
    pair: tuple[Context, BatchResult], lost: int, outcome: VerdictOutcome
) -> None:
    # 12 of 64 are 18.75 %, 13 are 20.3 %; 13 lost and none won have p = 2^-13.
    context, played = pair
    finding = ask(context, played, changed(played, success=np.arange(64) >= lost))
    assert finding.outcome is outcome
    assert finding.cause is (Cause.POLICY if outcome is VerdictOutcome.FAIL else None)


def test_a_difference_that_may_be_chance_is_undecided(pair: tuple[Context, BatchResult]) -> None:
    context, played = pair
    rows = np.arange(64)
    # 40 lost and 24 won: a loss of 25 %, but p = 0.03 is above alpha / 4.
    finding = ask(context, changed(played, success=rows < 40), changed(played, success=rows >= 40))
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "raise engine.episodes" in finding.next_step


def test_without_the_second_engine_it_says_what_to_install(
    bench: Any, write_policy: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingExtraError("the second engine needs warp: pip install warp-lang mujoco-warp")

    monkeypatch.setattr(warp_device, "modules", missing)
    context = bench.context(write_policy())
    generator = EngineGate().play(context)
    _, second = next(generator)
    with pytest.raises(MissingExtraError) as error:
        play(context.subject, second)
    with pytest.raises(StopIteration) as stop:
        generator.throw(error.value)
    finding = stop.value.value
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "pip install warp-lang mujoco-warp" in finding.message
    assert finding.next_step == "pip install warp-lang mujoco-warp, then validate again"


def with_second(context: Context, second: str) -> Context:
    engine = context.settings.engine.model_copy(update={"second": second})
    return replace(context, settings=context.settings.model_copy(update={"engine": engine}))


def test_an_engine_that_is_not_installed_is_named(bench: Any, write_policy: Writer, find: Callable[..., Any]) -> None:
    context = with_second(bench.context(write_policy()), "wrap")
    finding = find(EngineGate(), context)
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert finding.message.startswith("no engine named 'wrap'; did you mean warp")
    assert "in the engine wrap " in EngineGate().method(context)


@pytest.mark.parametrize("second", ["mujoco", "", "a b", "../warp"])
def test_an_engine_that_compares_nothing_is_refused(second: str) -> None:
    with pytest.raises(GateSettingsError, match=r"engine\.second: .*give 'warp' or"):
        parse_gates({"engine": {"second": second}}, source="gates.yaml")


@pytest.mark.slow
def test_both_engines_agree_on_the_pusher(bench: Any, write_policy: Writer, find: Callable[..., Any]) -> None:
    """Compiles Warp's kernels for this machine, once."""
    pytest.importorskip("mujoco_warp")
    context = bench.context(write_policy())
    finding = find(EngineGate(), context)
    assert finding.measured[1].name == "success_rate.warp"
    assert finding.outcome is VerdictOutcome.PASS
    assert 0.0 < finding.chart["early_difference"] < 1e-3


def test_the_second_engine_gets_the_memory_it_turns_out_to_need(
    bench: Any, write_policy: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mujoco_warp")
    context = bench.context(write_policy())
    batch = replace(context.batch(0, context.conditions["calibrated"]), engine="warp")
    batch = replace(batch, seeds=batch.seeds[:4])
    subject, rooms = context.subject, list[Any]()

    def build(*arguments: Any, room: Any) -> Any:
        rooms.append(room)
        # Dry friction needs one constraint, the end of the rail another one.
        return build_worlds(*arguments, room=room or (1, 0))

    def build_small(*arguments: Any, room: Any) -> Any:
        return build_worlds(*arguments, room=(1, 0))

    expected = play(subject, batch)
    monkeypatch.setattr(rollout, "build_worlds", build)
    played = play(subject, batch)
    assert rooms[0] is None
    assert len(rooms) > 1
    assert all(constraints >= 1 for _, constraints in rooms[1:])
    assert np.array_equal(played.pos_usage, expected.pos_usage)
    monkeypatch.setattr(rollout, "build_worlds", build_small)
    with pytest.raises(CapacityError, match="one world needed 1 constraints and has 0") as refused:
        play(subject, batch)
    assert pickle.loads(pickle.dumps(refused.value)).max_constraints == refused.value.max_constraints > 0


@pytest.mark.slow
def test_the_second_engine_has_each_worlds_parameters(bench: Any, write_policy: Writer) -> None:
    pytest.importorskip("mujoco_warp")
    from physai.sim.engines.warp_host import HostWarpEngine

    model = bench.subject(write_policy()).task.model
    engine = HostWarpEngine(model, 2, fields={"body_mass": np.array([[0.0, 2.0], [0.0, 4.0]])})
    engine.reset(np.ones(2, bool), np.zeros((2, 1)), np.zeros((2, 1)))
    engine.drive(np.full((2, 10, 1), 10.0))
    # 10 N less friction 0.2 N for 0.1 s: twice the mass, half the speed.
    fast, slow = engine.state("qvel")[:, 0]
    assert fast == pytest.approx(9.8 / 2.0 * 0.1, rel=0.03)
    assert slow == pytest.approx(9.8 / 4.0 * 0.1, rel=0.03)
    assert engine.state("qpos")[0, 0] > engine.state("qpos")[1, 0] > 0.0
    engine.state("qvel")[1] = np.nan
    assert engine.diverged().tolist() == [False, True]
    with pytest.raises(ModelError, match=r"cannot vary opt\.timestep"):
        HostWarpEngine(model, 2, fields={"opt.timestep": np.array([[0.01], [0.02]])})
