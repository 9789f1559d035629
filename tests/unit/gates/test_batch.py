"""Batches: seeds of the two streams never meet, equal batches have equal keys, results survive the disk."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physai.sim.policies.evaluate import EVALUATION_SEED, evaluation_seeds
from physai.twin.model.conditions import Condition
from physai.twin.rollouts.batch import (
    TUNING_STREAM,
    VERDICT_STREAM,
    Batch,
    BatchResult,
    joined,
    seeds_of,
    stream_seed,
)

CONDITION = Condition(name="calm", lag_lower_s=0.0, lag_upper_s=0.01)


def played(count: int = 3, **changes: Any) -> BatchResult:
    rows = np.arange(count)
    fields: dict[str, Any] = {
        "success": rows > 0,
        "held": rows / 10.0,
        "length_s": rows + 1.0,
        "diverged": rows < 0,
        "guard_state": rows * 0,
        "guard_reasons": rows * 0,
        "guard_step": rows * 0 - 1,
        "guard_excess": rows * 0.0,
        "broken_limits": rows * 0,
        "broken_step": rows * 0 - 1,
        "pos_usage": np.full((count, 2), 0.5),
        "vel_usage": np.full((count, 2), np.nan),
        "effort_usage": np.zeros((count, 2)),
        "saturated": rows * 0.0,
        "values": np.ones((count, 4)),
        "lag_s": rows * 0.0,
        "late": rows * 0,
        "early_pos": np.zeros((count, 2)),
    }
    return BatchResult(**{**fields, **changes})


def test_tuning_verdict_and_evaluation_share_no_seed() -> None:
    tuning = set(seeds_of(stream_seed(TUNING_STREAM, 0), 0, 5000))
    verdict = set(seeds_of(stream_seed(VERDICT_STREAM, 0), 0, 5000))
    other = set(seeds_of(stream_seed(VERDICT_STREAM, 1), 0, 5000))
    evaluation = {int(seed) for seed in evaluation_seeds(5000, EVALUATION_SEED)}
    assert len(tuning | verdict | other | evaluation) == 20_000


def test_a_stream_goes_on_where_it_was() -> None:
    assert seeds_of(7, 0, 4) + seeds_of(7, 4, 4) == seeds_of(7, 0, 8)


def test_a_key_tells_what_is_asked() -> None:
    batch = Batch(condition=CONDITION, seeds=(1, 2))
    assert batch.key == Batch(condition=CONDITION, seeds=(1, 2)).key
    others = (
        replace(batch, seeds=(2, 1)),
        replace(batch, arm="float"),
        replace(batch, engine="warp"),
        replace(batch, values=((1.0,), (2.0,))),
        replace(batch, joint_pos_offset=((0.0,), (0.1,))),
        replace(batch, visits=8),
        replace(batch, condition=replace(CONDITION, payload_kg=0.1)),
    )
    assert len({batch.key, *(other.key for other in others)}) == 8


def test_results_survive_the_disk() -> None:
    first = played(visits={"joint_pos": np.ones((5, 2), np.float32)})
    again = BatchResult.from_bytes(first.to_bytes())
    for name in ("success", "held", "vel_usage", "guard_step"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    np.testing.assert_array_equal(again.visits["joint_pos"], first.visits["joint_pos"])


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", played().to_bytes()[:-40]])
def test_damaged_results_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        BatchResult.from_bytes(data)


def test_joined_batches_are_one() -> None:
    both = joined((played(2), played(3)))
    assert len(both) == 5
    assert both.successes == 3
    np.testing.assert_array_equal(both.length_s, [1, 2, 1, 2, 3])


def test_a_violation_is_a_limit_the_guard_or_a_divergence() -> None:
    rows = np.array([-1, -1, -1, 4])
    found = played(
        4,
        guard_step=rows,
        broken_step=np.array([-1, 7, -1, -1]),
        diverged=np.array([False, False, True, False]),
    )
    np.testing.assert_array_equal(found.violated, [False, True, True, True])
