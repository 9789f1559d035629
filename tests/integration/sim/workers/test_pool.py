"""Workers of this computer: what they compute, and what becomes of a request that kills its process."""

import ctypes
import math
import operator

import pytest

from physai.sim.workers.pool import InProcess, Processes, WorkerError, Workers


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
