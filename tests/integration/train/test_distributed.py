"""Several ranks, real processes that talk through gloo, learn what one process with as many worlds learns."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import learning_rank
from tests.support.learning_rank import Job, as_text, learn

from physai.train.collectors.distributed import Ranks
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runners.launch import launch

WORLDS = 4
"""Of each rank."""
VARIANTS: dict[str, dict[str, Any]] = {
    # Ten control periods a step, so that episodes end and are judged.
    "mlp": {"action_repeat": 10, "curriculum_iterations": 4},
    "gru": {"actor": "gru", "minibatches": 2},
    "overlap": {"overlap": True, "action_repeat": 10},
    "warp": {"engine": "warp", "action_repeat": 10, "curriculum_iterations": 4},
}
CASES = [(name, 2) for name in VARIANTS] + [("mlp", 4)]
"""Variant and number of ranks: what a variant adds does not depend on how many there are."""
ITERATIONS = 8
LEARNER = ("graph", "ppo", "critic_normaliser", "optimizer", "learning_rate", "iteration", "env_steps", "seconds")


def launched(jobs: list[Job], count: int, folder: Path) -> None:
    program = [sys.executable, learning_rank.__file__, as_text(jobs)]
    assert launch(program, count, run=folder) == 0


def fresh(folder: Path, count: int, worlds: int, shards: int = 1) -> list[Job]:
    return [
        Job(str(folder / name), worlds, {**VARIANTS[name], "shards": shards}, ITERATIONS)
        for name, ranks in CASES
        if ranks == count
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of runs: `ranks-4/mlp` and so on as trained by four; `4-to-1` continues it with one, and so on."""
    root = tmp_path_factory.mktemp("runs")
    mlp = VARIANTS["mlp"]
    four = root / "ranks-4"
    half = Job(str(root / "half"), WORLDS, mlp, 3)
    launched([*fresh(four, 4, WORLDS), half], 4, root)
    learn(Job(str(root / "4-to-1"), WORLDS, mlp, 0, str(four / "mlp")), Ranks())
    learn(Job(str(root / "1-continued"), WORLDS, mlp, 2, str(root / "4-to-1")), Ranks())
    jobs = [
        *fresh(root / "ranks-2", 2, WORLDS),
        Job(str(root / "4-to-2"), WORLDS, mlp, 0, str(four / "mlp")),
        Job(str(root / "1-to-2"), WORLDS, mlp, 0, str(root / "1-continued")),
        Job(str(root / "2-continued"), WORLDS, mlp, 2, str(root / "1-to-2")),
        Job(str(root / "half-2"), WORLDS, mlp, 3),
        Job(str(root / "whole-2"), WORLDS, mlp, ITERATIONS - 3, str(root / "half-2")),
    ]
    launched(jobs, 2, root)
    overlap = str(root / "ranks-2" / "overlap")
    learn(Job(str(root / "overlap-2-to-1"), WORLDS, VARIANTS["overlap"], 2, overlap), Ranks())
    for count in (2, 4):
        for job in fresh(root / f"one-for-{count}", count, count * WORLDS, shards=count):
            learn(job, Ranks())
    return root


def weights(folder: Path) -> torch.Tensor:
    state = read_checkpoint(folder)
    return torch.cat([state[part][name].flatten().double() for part in ("graph", "ppo") for name in state[part]])


def seeds(folder: Path, rank: int) -> np.ndarray[Any, Any]:
    return np.load(folder / f"seeds-{rank}.npy")


@pytest.mark.slow
class TestSameResult:
    @pytest.mark.parametrize(("name", "count"), CASES)
    def test_ranks_learn_what_one_process_learns(self, name: str, count: int, runs: Path) -> None:
        together, alone = runs / f"ranks-{count}" / name, runs / f"one-for-{count}" / name
        torch.testing.assert_close(weights(together), weights(alone), rtol=1e-4, atol=1e-4)
        left, right = read_checkpoint(together), read_checkpoint(alone)
        assert left["learning_rate"] == pytest.approx(right["learning_rate"], rel=1e-6)
        assert left["learning_rate"] != pytest.approx(1e-3), "the schedule acted"
        for part in ("mean", "variance", "count"):
            statistics = (state["critic_normaliser"][part] for state in (left, right))
            torch.testing.assert_close(*statistics, rtol=1e-4, atol=1e-4)

    def test_one_rank_alone_learns_something_else(self, runs: Path) -> None:
        """So the comparison above would notice ranks that do not talk."""
        assert (weights(runs / "ranks-2" / "mlp") - weights(runs / "ranks-4" / "mlp")).abs().max() > 1e-2

    @pytest.mark.parametrize(("name", "count"), CASES)
    def test_statistics_are_of_all_ranks(self, name: str, count: int, runs: Path) -> None:
        together, alone = (
            json.loads((runs / f"{kind}-{count}" / name / "stats.json").read_text()) for kind in ("ranks", "one-for")
        )
        measured = {"seconds", "steps_per_s"}
        assert together.keys() == alone.keys()
        assert together["env_steps"] == count * WORLDS * 6 * ITERATIONS
        for key in together.keys() - measured:
            # With engine warp each rank keeps its own latest outcomes, which are not quite the latest of all.
            tolerance = 0.2 if (name, key) == ("warp", "success") else 1e-4
            assert together[key] == pytest.approx(alone[key], rel=1e-3, abs=tolerance), key

    @pytest.mark.parametrize("count", [2, 4])
    def test_outcomes_are_those_of_all_worlds_in_the_same_order(self, count: int, runs: Path) -> None:
        judged = [
            read_checkpoint(runs / f"{kind}-{count}" / "mlp")["collector"]["judged"] for kind in ("ranks", "one-for")
        ]
        assert 0.0 < judged[0].mean() < 1.0, "episodes were judged, some of which failed"
        assert torch.equal(*judged)


@pytest.mark.slow
class TestSeeds:
    @pytest.mark.parametrize(("name", "count"), CASES)
    def test_worlds_play_the_episodes_of_one_process(self, name: str, count: int, runs: Path) -> None:
        alone = seeds(runs / f"one-for-{count}" / name, 0)
        together = [seeds(runs / f"ranks-{count}" / name, rank) for rank in range(count)]
        assert np.array_equal(np.concatenate(together, axis=1), alone)

    def test_no_two_ranks_play_the_same_episode(self, runs: Path) -> None:
        played = [set(seeds(runs / "ranks-4" / "mlp", rank).flatten()) for rank in range(4)]
        assert len(set[Any]().union(*played)) == sum(len(part) for part in played)

    def test_a_rank_that_comes_back_begins_episodes_that_nobody_played(self, runs: Path) -> None:
        """Four ranks, then one, then two: the second one's worlds have the numbers of earlier ones."""
        earlier = [seeds(runs / "ranks-4" / "mlp", rank) for rank in range(4)] + [seeds(runs / "1-continued", 0)]
        before = {int(seed) for part in earlier for seed in part.flatten()}
        again = {int(seed) for name in ("1-to-2", "2-continued") for seed in seeds(runs / name, 1).flatten()}
        assert len(again) >= WORLDS
        assert not again & before


@pytest.mark.slow
class TestAnotherNumberOfRanks:
    @pytest.mark.parametrize(
        ("before", "after"), [("ranks-4/mlp", "4-to-1"), ("ranks-4/mlp", "4-to-2"), ("1-continued", "1-to-2")]
    )
    def test_the_learner_is_kept_to_the_last_bit(self, before: str, after: str, runs: Path) -> None:
        saved, loaded = read_checkpoint(runs / before), read_checkpoint(runs / after)
        for part in LEARNER:
            assert flat(saved[part]) == flat(loaded[part]), part

    @pytest.mark.parametrize(("before", "after"), [("ranks-4/mlp", "4-to-1"), ("ranks-4/mlp", "4-to-2")])
    def test_worlds_that_are_left_continue(self, before: str, after: str, runs: Path) -> None:
        saved, loaded = read_checkpoint(runs / before), read_checkpoint(runs / after)
        states = [state["collector"]["environment"] for state in (saved, loaded)]
        assert flat(states[0]) == flat(states[1])
        assert np.array_equal(seeds(runs / before, 0)[-1], seeds(runs / after, 0)[0])

    def test_as_many_ranks_continue_bit_for_bit(self, runs: Path) -> None:
        whole, resumed = read_checkpoint(runs / "ranks-2" / "mlp"), read_checkpoint(runs / "whole-2")
        assert flat({**whole, "seconds": 0.0}) == flat({**resumed, "seconds": 0.0})
        assert len(whole["other_ranks"]) == 1

    def test_environment_steps_count_those_of_all_ranks_that_there_were(self, runs: Path) -> None:
        assert read_checkpoint(runs / "2-continued")["env_steps"] == 6 * WORLDS * (4 * ITERATIONS + 1 * 2 + 2 * 2)

    def test_an_overlapping_run_collects_again_what_the_ranks_had_not_learned_from(self, runs: Path) -> None:
        assert read_checkpoint(runs / "ranks-2" / "overlap")["pending"] is not None
        assert read_checkpoint(runs / "overlap-2-to-1")["iteration"] == ITERATIONS + 2


def flat(value: Any) -> Any:
    """Tensors as bytes, so that == compares to the last bit."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [flat(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
