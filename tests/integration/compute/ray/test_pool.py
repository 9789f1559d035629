"""Workers of this computer: what they compute, and what becomes of a request that kills its process."""

import ctypes
import math
import operator
import time
from typing import Any, cast

import pytest
from tests.support.ray_nodes import ray_nodes

from physai.compute.pool import InProcess, Processes, Work, WorkerError, Workers
from physai.compute.ray import head
from physai.compute.ray.cluster import ClusterError
from physai.compute.ray.ray_pool import RayWorkers


def computed(workers: "Workers[int, int]", requests: list[int]) -> dict[int, object]:
    found: dict[int, object] = {}
    with workers:
        while len(found) < len(requests):
            while workers.idle and (waiting := [one for one in requests if one not in found]):
                workers.start(waiting[0])
                found |= dict(workers.finished())
    return found


def test_one_process_and_several_find_the_same() -> None:
    assert computed(InProcess(operator.sub, 10), [1, 2, 3]) == {1: 9, 2: 8, 3: 7}
    assert computed(Processes(operator.sub, 10, 2), [1, 2, 3]) == {1: 9, 2: 8, 3: 7}


def test_a_bug_is_raised_with_the_traceback_of_the_worker() -> None:
    with Processes(math.fmod, 1, 1) as workers:
        workers.start(0)
        with pytest.raises(RuntimeError, match=r"ValueError: .*\nTraceback"):
            workers.finished()


def test_a_request_that_kills_its_process_is_answered_and_others_are_computed() -> None:
    """To read a byte at address 1 is a segmentation fault, to read none is not."""
    with Processes(ctypes.string_at, 1, 1, isolate=True) as workers:
        for _ in range(2):
            workers.start(1)
            [(_, lost)] = workers.finished()
            assert isinstance(lost, WorkerError)
            assert "a worker process ended with code -11" in str(lost)
        workers.start(0)
        assert workers.finished() == [(0, b"")]
    with Processes(ctypes.string_at, 1, 1, advice="; try again") as workers:
        workers.start(1)
        with pytest.raises(WorkerError, match="ended with code -11; try again"):
            workers.finished()


@pytest.mark.exhaustive
def test_a_head_that_is_stopped_ends_a_computation_on_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "PATIENCE_S", 2.0)
    call = cast("Work[Any, float, None]", operator.call)
    with ray_nodes((0, 1)) as nodes, RayWorkers(call, time.sleep, nodes.address, jobs=1) as workers:
        workers.start(0.0)
        assert workers.finished() == [(0.0, None)]
        workers.start(1000.0)
        with (
            nodes.stopped(nodes.nodes[0], whole=False),
            pytest.raises(ClusterError, match=r"its head has not answered for .* then run the command again"),
        ):
            workers.finished()
