"""Benchmark `gpu` on Warp's CPU device: counts, the same code that measures speed on a GPU, and mjlab."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")
from benchmarks.gpu import gpu, gpu_counts, gpu_learning, gpu_speed  # noqa: E402
from benchmarks.gpu.counting import OperationCounter  # noqa: E402
from benchmarks.gpu.gpu_peer import mjlab  # noqa: E402
from benchmarks.measure import BenchmarkOptions, BenchmarkResult, WorkloadError  # noqa: E402

from physai.sim.tasks.registry import load_task  # noqa: E402
from physai.sim.tasks.task import RewardTerm, Task, WorldView  # noqa: E402

# Compiles kernels for this machine, once.
pytestmark = pytest.mark.slow

WORLDS = 4
MJLAB = Path(__file__).parents[3] / ".venv-mjlab" / "bin" / "python"
needs_mjlab = pytest.mark.skipif(not MJLAB.exists(), reason="mjlab is not installed (make bench-gpu)")


def say(text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def cartpole() -> Task:
    return load_task("cartpole-swingup")


def values(results: list[BenchmarkResult]) -> dict[str, float]:
    return {result.name: result.value for result in results}


def test_the_counter_counts_what_was_worked_out_by_hand() -> None:
    ones: Any = torch.ones(3)
    with OperationCounter() as counter:
        more = ones + 1.0
        more.add_(1.0)
        ones[1:].copy_(more[:2])
        assert torch.empty(4).shape == (4,)
    # Sum, sum in place, copy; memory for the sum and the empty tensor.
    assert (counter.torch_kernels, counter.allocations, counter.waits) == (3, 2, [])
    with OperationCounter() as counter:
        assert ones.tolist() == [1.0, 3.0, 3.0]
        _ = ones.numpy(), ones.cpu(), ones.any().item(), ones.unique()
    assert counter.waits == ["tolist", "numpy", "cpu", "_local_scalar_dense", "_unique2"]
    assert not any(name in torch.Tensor.__dict__ for name in ("tolist", "numpy", "cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_card_steps_are_counted_and_nothing_is_timed() -> None:
    results = gpu.run(BenchmarkOptions(tasks=("cartpole-swingup", "go2-velocity")), say)
    counted = values([result for result in results if result.runs])
    for task in ("cartpole-swingup", "go2-velocity"):
        assert counted[f"syncs_per_step.{task}"] == 0.0
        assert counted[f"launches_per_step.{task}"] > counted[f"launches_per_step.warp.{task}"] > 100.0
        assert counted[f"allocs_per_step.eager.{task}"] > 100.0
        assert counted[f"most_worlds.24_gb.{task}"] == 24e9 // counted[f"bytes_per_world.{task}"]
    missing = {result.name: result.missing for result in results if not result.runs}
    assert {name for name, reason in missing.items() if reason == "no --peer-python"} == {
        f"{what}.mjlab_go1" for what in ("syncs_per_step", "launches_per_step", "allocs_per_step.eager")
    }
    assert {name for name, reason in missing.items() if reason == "no CUDA device"} == {
        *("env_over_mjlab", "train_over_mjlab", "env_over_raw.go2.4096", "env_over_raw.go2.8192"),
        *("seconds_to_success.go2-velocity", "cold_start_s.go2-velocity"),
        *("allocs_per_step.cartpole-swingup", "allocs_per_step.go2-velocity"),
    }
    assert len(missing) == 11


def test_speed_is_that_of_the_whole_step_over_that_of_the_physics(cartpole: Task) -> None:
    whole, steps, raw = gpu_speed.env_over_raw(cartpole, WORLDS, gpu_speed.QUICK, "cpu")
    assert whole.name == "env_over_raw.cartpole.4"
    assert whole.runs == tuple(a / b for a, b in zip(steps.runs, raw.runs, strict=True))
    assert len(whole.runs) == gpu_speed.QUICK.rounds


def test_the_physics_starts_from_the_environments_states_and_passes_the_same_time(cartpole: Task) -> None:
    whole = gpu_speed.WholeEnvironment(cartpole, WORLDS, "cpu")
    raw = gpu_speed.RawPhysics(cartpole, WORLDS, "cpu", whole.config.action_repeat)
    whole.play(3)
    whole.check(3)
    with pytest.raises(WorkloadError, match="3 steps were played, expected 4"):
        whole.check(4)
    raw.begin(whole)
    assert torch.equal(raw.state["qpos"], whole.env.engine.state("qpos"))
    raw.play(2)
    raw.check()
    # Two control periods of the cart-pole, 4 × 5 ms each.
    torch.testing.assert_close(raw.state["time"], torch.full((WORLDS,), 0.04))
    raw.state["time"].zero_()
    with pytest.raises(WorkloadError, match=r"0 s passed, expected 0\.04 s"):
        raw.check()


def test_a_reward_that_is_not_finite_is_no_number(cartpole: Task) -> None:
    def nothing(view: WorldView) -> Any:
        return view.joint_pos[:, 0] * math.nan

    broken = replace(cartpole, rewards={"nan": RewardTerm(term=nothing, weight=1.0)})
    with pytest.raises(WorkloadError, match="sum to nan"):
        gpu_speed.env_over_raw(broken, WORLDS, gpu_speed.QUICK, "cpu")
    with pytest.raises(WorkloadError, match="a reward is not finite"):
        gpu_counts.count(broken, "cpu")


def test_episodes_that_never_end_are_no_number(cartpole: Task) -> None:
    whole = gpu_speed.WholeEnvironment(replace(cartpole, episode_length_s=0.04), WORLDS, "cpu")
    whole.play(4)
    whole.check(4)
    whole.ended.zero_()
    with pytest.raises(WorkloadError, match="0 episodes of 2 steps ended in 4 steps of 4 worlds"):
        whole.check(4)


def test_allocations_of_a_step_that_is_not_replayed_are_not_those_of_a_graph(cartpole: Task) -> None:
    with pytest.raises(WorkloadError, match="steps were not replayed: cpu has no CUDA graphs"):
        gpu_speed.allocations(cartpole, WORLDS, 2, "cpu")


def test_one_measurement_that_fails_leaves_the_others() -> None:
    def fails() -> list[BenchmarkResult]:
        raise WorkloadError("3 of 4 worlds\nand more")

    (result,) = gpu.Measurement({"speed": "1/s"}, fails).results(None, say)
    assert (result.name, result.runs, result.missing) == ("speed", (), "failed: 3 of 4 worlds")
    measured = BenchmarkResult(name="speed", unit="1/s", runs=(1.0,))
    assert gpu.Measurement({"speed": "1/s"}, lambda: [measured]).results(None, say) == [measured]
    (result,) = gpu.Measurement({"speed": "1/s"}, lambda: [measured]).results(gpu.NO_CARD, say)
    assert result.missing == "no CUDA device"


@pytest.mark.exhaustive
def test_starting_is_timed_as_a_process() -> None:
    """Three whole runs; the one of test_learning_is_timed_as_a_process is started in the same way."""
    (started,) = gpu_learning.cold_start("cartpole-swingup", 16, "cpu")
    assert started.name == "cold_start_s.cartpole-swingup"
    assert len(started.runs) == 2
    assert min(started.runs) > 0.0


def test_learning_is_timed_as_a_process() -> None:
    learned = gpu_learning.seconds_to_success("cartpole-swingup", 0.9, 5.0, "cpu", quick=True, report=say)
    assert [result.name for result in learned] == ["seconds_to_success.cartpole-swingup", "success.cartpole-swingup"]


def test_a_peer_that_does_not_start_says_why() -> None:
    with (
        mjlab(Path(sys.executable), "cpu", WORLDS) as peer,
        pytest.raises(WorkloadError, match="No module named 'mjlab"),
    ):
        peer.ask("count")
    missing = pytest.raises(WorkloadError, match=r"--peer-python /nowhere/python cannot be run: No such file")
    with missing, mjlab(Path("/nowhere/python"), "cpu", WORLDS):
        pass


def answering(folder: Path, *answers: str) -> Path:
    """A program that gives these answers, the first unasked, whatever it is asked."""
    program = folder / "python"
    program.write_text("#!/bin/sh\n" + "read request\n".join(f"echo '{answer}'\n" for answer in answers) + "cat\n")
    program.chmod(0o700)
    return program


def test_steps_of_different_length_are_not_compared(cartpole: Task, tmp_path: Path) -> None:
    described = json.dumps({"versions": {"mjlab": "9"}, "decimation": 10, "physics_dt": 0.005, "worlds": WORLDS})
    with mjlab(answering(tmp_path, described), "cpu", WORLDS) as peer:
        assert peer.name == "mjlab 9"
        with pytest.raises(WorkloadError, match=r"is 4 × 0.005 s, one of mjlab is 10 × 0.005 s"):
            gpu_speed.same_work(cartpole, peer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Segmentation fault", "'Segmentation fault.*' is no answer"),
        (json.dumps({"finite": False}), "rewards or weights are not finite"),
        (
            json.dumps({"waits": [], "torch": 1, "warp": 1, "allocations": 1, "ended": 0}),
            "no episode ended in the step",
        ),
    ],
)
def test_what_goes_wrong_in_mjlab_is_no_number(answer: str, said: str, tmp_path: Path) -> None:
    with mjlab(answering(tmp_path, "{}", answer), "cpu", WORLDS) as peer, pytest.raises(WorkloadError, match=said):
        gpu_counts.count_mjlab(peer)


@needs_mjlab
def test_mjlab_is_counted_and_compared() -> None:
    task, size = load_task("go2-velocity"), gpu_speed.QUICK
    with mjlab(MJLAB, "cpu", WORLDS) as peer:
        counted = values(gpu_counts.count_mjlab(peer))
        assert counted["syncs_per_step.mjlab_go1"] >= 5.0
        assert counted["launches_per_step.mjlab_go1"] > counted["launches_per_step.warp.mjlab_go1"] > 100.0
        assert counted["allocs_per_step.eager.mjlab_go1"] > 100.0
        over, ours, theirs = gpu_speed.env_over_mjlab(task, peer, size, "cpu")
        assert over.runs == tuple(a / b for a, b in zip(ours.runs, theirs.runs, strict=True))
        assert "mjlab 1.6.0, mujoco 3.11.0" in str(over.peer)
        assert gpu_learning.train_over_mjlab(task, peer, size, "cpu")[0].name == "train_over_mjlab"
