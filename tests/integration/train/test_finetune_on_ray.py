"""`physai finetune --ray`: worlds and scores in other processes, also where these die, change no bit."""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.cluster import cluster_scoring
from benchmarks.measure import WorkloadError
from tests.support.patience import until
from tests.support.ray_nodes import RayNodes, alive, ray_nodes

from physai.cluster.generators import scoring
from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.generator import ChunkRequest, RolloutGenerator, pack
from physai.cluster.generators.launch import scored_generators
from physai.cluster.generators.ray_executor import RayGenerators
from physai.cluster.generators.scoring import ScoringActors
from physai.cluster.placement.placement import Placement, PlacementGroup, Seat
from physai.compute.ray.cluster import ClusterError, connected
from physai.rlhf.finetune.kl_penalty import Leash, LeashedCollector
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.train.collectors.collector import Collector, Learner, Share
from physai.train.models.numpy_policy import seeded
from physai.train.runners.checkpoint import load_run, read_checkpoint
from physai.train.runners.runner import PlayedSource, Trainer, build_learner
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig

SOURCE = RunTaskSource(task="cartpole-swingup")
TASK = load_task("cartpole-swingup")
# Recurrent, so that scores depend on those before.
CONFIG = TrainConfig(
    num_envs=40, horizon=7, epochs=1, minibatches=2, hidden=(16,), actor="gru", gru_size=8, num_threads=1
)
ITERATIONS = 4


def finetuning(source: Callable[[Learner], PlayedSource]) -> tuple[Trainer, LeashedCollector]:
    model = RewardEnsemble(TASK.critic_size + 1, hidden=(8,), generator=seeded(0))
    model.freeze_scale(torch.randn(200, TASK.critic_size + 1, generator=seeded(1)))
    made: list[LeashedCollector] = []

    def leashed(learner: Learner) -> LeashedCollector:
        made.append(LeashedCollector(TASK, CONFIG, source(learner), model=model, leash=Leash(target_kl=0.01)))
        return made[0]

    trainer = Trainer(TASK, CONFIG, source=leashed)
    made[0].share = 0.5
    return trainer, made[0]


def as_numbers(tensor: Any) -> Any:
    return tensor.tolist()


def left(trainer: Trainer, collector: LeashedCollector) -> list[Any]:
    tensors = (*trainer.learner.parameters(), *trainer.learner.buffers(), *collector.critic.parameters())
    return [collector.kl, *(as_numbers(tensor) for tensor in tensors)]


@contextmanager
def apart(
    ray: Any, seats: tuple[Seat, ...]
) -> Generator[tuple[Trainer, LeashedCollector, RayGenerators, ScoringActors]]:
    """Fine-tuning with two generators, and scorers of their own."""
    executor, scorers = RayGenerators(ray, SOURCE, CONFIG), ScoringActors(ray, seats=seats)
    try:
        yield (
            *finetuning(lambda own: ClusterCollector(TASK, CONFIG, own, executor, generators=2, scorers=scorers)),
            executor,
            scorers,
        )
    finally:
        executor.close()
        scorers.close()


@pytest.mark.slow
def test_a_scorer_that_dies_or_stalls_and_a_generator_that_dies_change_no_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray")
    # A busy machine may take longer for a chunk, too: that costs another replacement, and no weight.
    monkeypatch.setattr(scoring, "PATIENCE_S", 5.0)
    torch.set_num_threads(1)
    alone = finetuning(lambda learner: Collector(TASK, CONFIG, learner, num_threads=1))
    for _ in range(ITERATIONS):
        alone[0].train_iteration()
    with connected("local", processors=4) as ray, apart(ray, (Seat(), Seat())) as (trainer, together, worlds, scorers):
        for iteration in range(ITERATIONS):
            if iteration:
                until(lambda: len(scorers.processes) == 2)
                victim, harm = scorers.processes[iteration % 2][1], (signal.SIGKILL, signal.SIGSTOP)[iteration % 2]
                os.kill(victim, harm)
            if iteration == 2:
                os.kill(worlds.processes[1][1], signal.SIGKILL)
            trainer.train_iteration()
            # Before it is replaced, a scorer that stalls was given chunks.
            assert scorers.replaced >= iteration
        assert left(trainer, together) == left(*alone)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes([3]) as nodes:
        yield nodes


def moved(ray: Any) -> bool:
    """Whether there is a scorer, and not on the node that died."""
    found = alive(ray, "ScoringActor")
    return found.total() == 1 and not found["rack"]


@pytest.mark.slow
def test_a_scorer_whose_node_dies_goes_on_elsewhere(cluster: RayNodes) -> None:
    rack = cluster.start(cpus=1, name="rack")
    cluster.await_all()
    torch.set_num_threads(1)
    placement = Placement(generators=(PlacementGroup(number=2),), scorers=(PlacementGroup(number=1, node="rack"),))
    make = scored_generators(
        TASK,
        SOURCE,
        CONFIG,
        generators=2,
        address=cluster.address,
        placement=placement,
        scoring="apart",
        way_out="start again",
    )
    with make as generators:
        ray: Any = import_module("ray")
        trainer, together = finetuning(generators)
        trainer.train_iteration()
        assert alive(ray, "ScoringActor") == {"rack": 1}
        cluster.kill(rack)
        # What Ray starts there before it notices that the node is gone dies, too.
        until(lambda: moved(ray), trainer.train_iteration)
    alone = finetuning(lambda learner: Collector(TASK, CONFIG, learner, num_threads=1))
    while alone[0].iteration < trainer.iteration:
        alone[0].train_iteration()
    assert left(trainer, together) == left(*alone)


@pytest.mark.slow
def test_a_scorer_that_keeps_dying_or_fails_ends_the_run_with_the_way_out(cluster: RayNodes) -> None:
    # Of this function, so that it travels with the actor.
    class Broken:
        columns = ("done",)

        def __init__(self, *, dies: bool) -> None:
            self._dies = dies

        def memory(self, worlds: int) -> torch.Tensor:
            return torch.zeros(worlds, 0)

        def score(self, columns: Any, memory: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
            if self._dies:
                os._exit(1)
            raise ZeroDivisionError("no steps")

    own = build_learner(TASK, CONFIG)
    generator = RolloutGenerator(TASK, CONFIG, Share(0, 40), 40, num_threads=1, state=None)
    chunk = generator.collect(ChunkRequest(0, 1.0), pack(own))
    with connected(cluster.address, processors=1) as ray:
        for dies, says in (
            (True, "scorer 0 was lost 6 times in a row, at last: .*; see `ray logs` for its output, then start again"),
            (False, r"a scorer failed: ZeroDivisionError\('no steps'\)"),
        ):
            scorers = ScoringActors(ray, seats=(Seat(),), way_out="start again")
            scorers.score_with(Broken(dies=dies), [40])
            scorers.submit(0, chunk)
            with pytest.raises(ClusterError, match=says):
                scorers.results()
            scorers.close()


@pytest.mark.slow
def test_the_command_writes_the_same_policy_wherever_worlds_and_scores_are(cluster: RayNodes, tmp_path: Path) -> None:
    run, database, file = tmp_path / "run", tmp_path / "answers.db", tmp_path / "placement.yaml"
    small = ["--num-envs", "40", "--set", "horizon=7", "--set", "minibatches=2", "--set", "hidden=8"]
    assert main(["train", "cartpole-swingup", "--out", str(run), "--iterations", "1", "--device", "cpu", *small]) == 0
    assert main(["preferences", "collect", str(run), "--out", str(database), "--pairs", "20"]) == 0
    assert main(["preferences", "answer", str(database), "--simulated", "perfect", "--taste", "command_size=-1"]) == 0
    file.write_text("{generators: [{number: 2}], scorers: [{number: 1, colocated: true}]}")
    places = {
        "alone": [],
        "trainer": ["--generators", "2", "--scoring", "trainer"],
        "generators": ["--generators", "2"],
        "apart": ["--ray", cluster.address, "--placement", str(file), "--scoring", "apart"],
    }
    tune = ["finetune", str(run), "--preferences", str(database), "--iterations", "2", "--out"]
    for name, options in places.items():
        assert main([*tune, str(tmp_path / name), *options]) == 0
        assert collected(tmp_path / name) == collected(tmp_path / "alone")
    for name in ("trainer", "generators", "apart"):
        provenance = load_run(tmp_path / name).provenance
        assert (provenance["generators"], provenance["scoring"]) == ("2", name)
    assert load_run(tmp_path / "apart").provenance["ray"] == cluster.address


@pytest.mark.slow
def test_the_benchmark_compares_all_places_if_they_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(cluster_scoring, "TASKS", ("cartpole-swingup",))
    said: list[str] = []
    results = cluster_scoring.finetuning(said.append, iterations=1, rounds=1)
    places = [f"finetune_{place}.cartpole-swingup" for place in ("trainer", "generators", "apart")]
    assert [result.name for result in results] == [*places, "finetune_scoring_share.cartpole-swingup"]
    assert all(run > 0.0 for result in results for run in result.runs)
    assert results[-1].runs[0] < 1.0
    # As if each had learned something else.
    monkeypatch.setattr(cluster_scoring.Trained, "weights", property(id))
    with pytest.raises(WorkloadError, match="weights with scoring in trainer differ from those of one process"):
        cluster_scoring.finetuning(said.append, iterations=1, rounds=1)


def collected(folder: Path) -> dict[str, Any]:
    state = read_checkpoint(folder)
    return {name: as_numbers(tensor) for name, tensor in {**state["graph"], **state["ppo"]}.items()}
