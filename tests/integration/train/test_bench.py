"""Benchmarks: the shape of what they report, and that a workload gone wrong never becomes a number."""

import argparse
import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import registry
from benchmarks.measure import (
    BenchmarkOptions,
    BenchmarkResult,
    WorkloadError,
    alternate,
    as_text,
    document,
    ratios,
)
from benchmarks.registry import list_benchmarks, run_benchmark
from benchmarks.training import cli, engine, learners, memory, process, realaigym, robots, solve
from benchmarks.training import train as training
from tests.support.foreign_arm import write_foreign_arm

from physai.sdk.base.errors import PhysaiError, UnknownNameError
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import RewardTerm, Task, WorldView
from physai.train.cli.bench import command as verb
from physai.train.settings.config import TrainConfig

ARM = (
    """<robot name="arm"><link name="base"/>"""
    + "".join(
        f"""<link name="l{n}"><inertial><origin xyz="0 0 .1"/><mass value="1"/>
        <inertia ixx=".01" iyy=".01" izz=".002" ixy="0" ixz="0" iyz="0"/></inertial></link>
        <joint name="j{n}" type="revolute"><origin xyz="0 0 {0.2 * (n > 0)}"/><axis xyz="{axis}"/>
        <limit lower="-2.5" upper="2.5" effort="40" velocity="2"/>
        <parent link="{f"l{n - 1}" if n else "base"}"/><child link="l{n}"/></joint>"""
        for n, axis in enumerate(("0 0 1", "0 1 0", "0 1 0"))
    )
    + "</robot>"
)

TINY = engine.EngineBenchSize(worlds=4, steps=2, rounds=3)


def say(text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def cartpole() -> Task:
    return load_task("cartpole-swingup")


def test_the_value_is_the_median_and_the_document_is_complete() -> None:
    result = BenchmarkResult(name="speed", unit="1/s", runs=(1.0, 10.0, 3.0), peer="other")
    record = document("engine", [result])
    assert record["bench"] == "engine"
    assert record["results"] == [
        {"name": "speed", "value": 3.0, "unit": "1/s", "peer": "other", "runs": [1.0, 10.0, 3.0]}
    ]
    assert {"cpu", "cores", "python", "versions"} <= set(record["machine"])
    assert record["machine"]["versions"]["mujoco"] is not None
    assert json.loads(json.dumps(record)) == record
    assert as_text([result]).splitlines()[1].split()[:3] == ["speed", "3", "1/s"]


def test_contenders_take_turns_in_both_directions() -> None:
    order: list[str] = []

    def turn(name: str) -> float:
        order.append(name)
        return float(len(order))

    rates = alternate({"a": lambda: turn("a"), "b": lambda: turn("b")}, 3)
    assert "".join(order) == "abbaab"
    assert rates == {"a": (1.0, 4.0, 5.0), "b": (2.0, 3.0, 6.0)}
    assert ratios(rates["a"], rates["b"]) == pytest.approx((0.5, 4 / 3, 5 / 6))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="engine"):
        run_benchmark("engin", BenchmarkOptions(), say)
    with pytest.raises(PhysaiError, match="it has cartpole-swingup"):
        run_benchmark("engine", BenchmarkOptions(tasks=("go2-velocity",)), say)


@pytest.mark.parametrize(("name", "repeat"), [("cartpole-swingup", 1), ("pendubot-swingup", 5), ("ur10e-reach", 1)])
def test_engine_compares_equal_amounts_of_physics(name: str, repeat: int) -> None:
    task = load_task(name)
    whole, physics, raw = engine.measure(task, TINY, action_repeat=repeat)
    assert whole.name == f"env_over_raw.{task.robot.name}"
    assert whole.runs == ratios(physics.runs, raw.runs)
    assert len(whole.runs) == 3


@pytest.mark.parametrize("name", ["cartpole-swingup", "ur10e-reach"])
def test_engine_commands_stay_in_range_and_never_jump(name: str) -> None:
    task = load_task(name)
    term = task.contract.action.terms[0]
    cycle = np.stack([period[term.target_name] for period in engine.random_targets(task, 8, 32)])
    assert (cycle >= np.array(term.lower) - 1e-6).all()
    assert (cycle <= np.array(term.upper) + 1e-6).all()
    if term.kind.endswith("incremental"):
        steps = np.abs(np.diff(cycle, axis=0, append=cycle[:1]))
        assert (steps <= np.array(term.scale) * (1.0 + 1e-5)).all()


def test_engine_sees_a_reward_that_is_not_finite(cartpole: Task) -> None:
    def nothing(view: WorldView) -> Any:
        return np.full(len(view.joint_pos), math.nan)

    broken = replace(cartpole, rewards={"nan": RewardTerm(term=nothing, weight=1.0)})
    with pytest.raises(WorkloadError, match="not finite"):
        engine.measure(broken, TINY, action_repeat=1)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_engine_sees_diverging_physics(cartpole: Task) -> None:
    def infinite(draw: Any) -> tuple[Any, Any]:
        return np.full((len(draw), 2), 1e200), np.full((len(draw), 2), 1e200)

    broken = replace(cartpole, reset=infinite, training_reset=None)
    with pytest.raises(WorkloadError, match="diverged"):
        engine.measure(broken, TINY, action_repeat=1)


def test_engine_sees_steps_that_were_not_taken(cartpole: Task) -> None:
    targets = engine.random_targets(cartpole, TINY.worlds, 32)
    for contender in (
        engine.WholeEnvironment(cartpole, TINY.worlds, 1, targets),
        engine.Physics(cartpole, TINY, 1, targets),
    ):
        contender.play(2)
        contender.check(2)
        with pytest.raises(WorkloadError, match="2 steps were played, expected 3"):
            contender.check(3)


@pytest.mark.slow
def test_training_gives_every_learner_the_same_work() -> None:
    for library in ("stable_baselines3", "rsl_rl"):
        pytest.importorskip(library, reason=f"{library} is not installed (extra bench)")
    results = run_benchmark("train", BenchmarkOptions(quick=True), say)
    names = ["steps_per_s.physai", "steps_per_s.sb3", "steps_per_s.rsl_rl", "steps_over_sb3", "steps_over_rsl_rl"]
    assert [result.name for result in results] == names
    assert all(len(result.runs) == 3 and result.value > 0.0 for result in results)


@pytest.mark.parametrize("name", ["physai", "sb3", "rsl_rl"])
def test_a_learner_that_did_less_is_found_out(cartpole: Task, name: str) -> None:
    if name != "physai":
        pytest.importorskip({"sb3": "stable_baselines3"}.get(name, name), reason="not installed (extra bench)")
    config = TrainConfig(num_envs=4, horizon=4, minibatches=1, hidden=(8,), num_threads=1)
    learner = learners.CONTENDERS[name](cartpole, config)
    learner.learn(2)
    learner.check(2)
    assert learner.success == 0.0
    with pytest.raises(WorkloadError, match="expected"):
        learner.check(3)


@pytest.mark.parametrize("name", ["physai", "sb3", "rsl_rl"])
def test_a_learner_whose_weights_are_not_finite_is_found_out(cartpole: Task, name: str) -> None:
    if name != "physai":
        pytest.importorskip({"sb3": "stable_baselines3"}.get(name, name), reason="not installed (extra bench)")
    config = TrainConfig(num_envs=4, horizon=4, minibatches=1, hidden=(8,), num_threads=1)
    learner: Any = learners.CONTENDERS[name](cartpole, config)
    model = {
        "physai": lambda: learner._trainer.learner.ppo.critic,
        "sb3": lambda: learner._model.policy.value_net,
        "rsl_rl": lambda: learner._runner.alg.critic,
    }[name]()
    next(iter(model.parameters())).data.fill_(math.nan)
    with pytest.raises(WorkloadError, match="not finite"):
        learner.check(0)


def test_a_race_nobody_wins_is_no_number(cartpole: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(num_envs=4, horizon=4, minibatches=1, hidden=(8,), num_threads=1)
    monkeypatch.setattr(training, "TIME_BUDGET_S", 0.2)
    assert training.time_to_success(learners.Ours, cartpole, config) is None
    size = training.TrainBenchSize(config=config, iterations=1, rounds=1, races=1)
    with pytest.raises(WorkloadError, match="no success"):
        training.races(cartpole, size, dict.fromkeys(learners.CONTENDERS, 1), say)


def test_processes_report_time_memory_and_failure() -> None:
    results = cli.run(BenchmarkOptions(quick=True), say)
    assert [(result.name, result.unit, len(result.runs)) for result in results] == [("help_seconds", "s", 3)]
    finished = process.physai("--version")
    assert finished.output.startswith("physai ")
    assert finished.peak_bytes > 2**20
    with pytest.raises(WorkloadError, match=r"exited with status 2: .*did you mean"):
        process.physai("trian")


@pytest.mark.slow
def test_memory_and_solve_run() -> None:
    assert [r.name for r in memory.run(BenchmarkOptions(quick=True), say)] == ["peak_rss_mb.ur10e-reach"]
    names = [r.name for r in solve.run(BenchmarkOptions(quick=True, tasks=("cartpole-swingup",)), say)]
    assert names == ["seconds_to_success.cartpole-swingup", "success.cartpole-swingup"]


def test_robots_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSAI_ROBOTS", str(tmp_path))
    with pytest.raises(WorkloadError, match="no URDF there"):
        robots.run(BenchmarkOptions(quick=True), say)
    write_foreign_arm(tmp_path)
    (tmp_path / "bad.urdf").write_text("<robot name='bad'/>")
    results = {result.name: result.runs for result in robots.run(BenchmarkOptions(tasks=("urdf",)), say)}
    assert (results["urdf_stable"], results["urdf_imported"], results["urdf_total"]) == ((1.0,), (1.0,), (2.0,))


@pytest.mark.slow
def test_an_arm_of_others_learns_in_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSAI_ROBOTS", str(tmp_path))
    folder = tmp_path / "panda_description" / "urdf"
    folder.mkdir(parents=True)
    (folder / "panda.urdf").write_text(ARM)
    results = {r.name: r.runs for r in robots.run(BenchmarkOptions(quick=True, tasks=("reach",)), say)}
    assert list(results) == ["reach_success.panda", "reach_seconds.panda"]
    assert 0.0 <= results["reach_success.panda"][0] <= 1.0


@pytest.mark.slow
def test_realaigym_scores_what_was_trained() -> None:
    assert 0.0 <= realaigym.score("pendubot-swingup", 0, quick=True) <= 1.0


@pytest.mark.exhaustive
def test_realaigym_runs() -> None:
    results = realaigym.run(BenchmarkOptions(quick=True, tasks=("pendubot-swingup",)), say)
    names = [result.name for result in results]
    assert names == ["score.pendubot", "score_over_board.pendubot", "score_learned.pendubot"]
    # The designed policy needs no training; the best published score is 0.682.
    assert results[0].runs[0] >= 0.69
    assert results[1].runs[0] == pytest.approx(results[0].runs[0] / 0.682)


def test_the_verb_lists_and_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    assert verb.run(parser.parse_args([])) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in list_benchmarks())
    assert verb.run(parser.parse_args(["--json"])) == 0
    assert json.loads(capsys.readouterr().out) == list_benchmarks()
    assert verb.run(parser.parse_args(["engine", "--quick", "--json", "--task", "cartpole-swingup"])) == 0
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert record["bench"] == "engine"
    assert len(record["results"]) == 3
    assert "cartpole-swingup" in printed.err
    assert verb.run(parser.parse_args(["engine", "--seeds", "0"])) == 2
    assert "--seeds must lie in 1 … 100, got 0" in capsys.readouterr().err


def test_every_benchmark_is_there() -> None:
    for name, entry in registry.ENTRIES.items():
        for module in entry.modules:
            assert callable(importlib.import_module(module).run), name


def test_an_installed_package_says_where_the_benchmarks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    monkeypatch.setattr("physai.train.cli.bench._ROOT", tmp_path)
    with pytest.raises(PhysaiError, match="run `python -m benchmarks` in a clone of its source"):
        verb.run(parser.parse_args(["engine"]))
