"""`python -m benchmarks service`: steps over the wire compared with steps in process.

The service runs in a process of its own, as for users. Blocks of steps over the wire and in process alternate, so that
a computer that becomes slower or faster changes both.
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.service import openenv, soak
from physai.service.client.remote_session import RemoteSession
from physai.service.serving.process import ServiceProcess, running_service
from physai.service.sessions.worlds import TargetWorlds, WorldsOptions

TASK, WORLDS = "ur10e-reach", 64
BATCH_TASK, BATCH_WORLDS, BATCH_STEPS = "cartpole-swingup", 1024, 16
BLOCKS, BLOCK_STEPS = 20, 100
ROUND_TRIPS = 3000
WARM_UP = 50
SOAK_S = 300.0

Actions = Mapping[str, npt.NDArray[np.float32]]


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Measures throughput and round-trip time on loopback."""
    blocks, round_trips = (2, 20) if options.quick else (BLOCKS, ROUND_TRIPS)
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder) / "data", workers=0) as service:
        report(f"{WORLDS} worlds of {TASK}: over the wire and in process")
        ratios = _over_inprocess(service.url, blocks)
        report(f"1 world of {TASK}: {round_trips} round trips")
        p50, p99 = _round_trips(service.url, round_trips)
        report(f"{BATCH_WORLDS} worlds of {BATCH_TASK}, {BATCH_STEPS} steps per request")
        batch = _batch(service.url, blocks)
        beside_openenv = _beside_openenv(service, options, report)
        together = _together(service, options, report)
        disturbed = _disturbed(service, options, report)
    return [
        BenchmarkResult(name="ws_over_inprocess", unit="ratio", runs=tuple(ratios), peer="the same session in process"),
        BenchmarkResult(name="step_rtt_ms.p50", unit="ms", runs=(p50,)),
        BenchmarkResult(name="step_rtt_ms.p99", unit="ms", runs=(p99,)),
        BenchmarkResult(name="batch_steps_per_s", unit="steps/s", runs=tuple(batch)),
        *beside_openenv,
        *together,
        *disturbed,
    ]


def _beside_openenv(
    service: ServiceProcess, options: BenchmarkOptions, report: ProgressCallback
) -> Sequence[BenchmarkResult]:
    if not openenv.is_installed():
        report("OpenEnv is not installed, so nothing is compared with it: pip install openenv")
        return []
    report("1 world beside an echo environment that OpenEnv serves")
    ratios = openenv.over_echo(service, 1 if options.quick else openenv.BLOCKS)
    return [BenchmarkResult(name="over_openenv_echo", unit="ratio", runs=tuple(ratios), peer="openenv's own server")]


def _together(
    service: ServiceProcess, options: BenchmarkOptions, report: ProgressCallback
) -> Sequence[BenchmarkResult]:
    """Many sessions at once: nobody starves, and memory stays."""
    seconds = options.seconds or (3.0 if options.quick else SOAK_S)
    sessions = 10 if options.quick else soak.SESSIONS
    report(f"{sessions} sessions of {soak.WORLDS} worlds for {seconds:g} s")
    found = asyncio.run(soak.soak(service, sessions=sessions, seconds=seconds))
    return [
        BenchmarkResult(name="sessions_steps_per_s", unit="steps/s", runs=(sum(found.steps) * soak.WORLDS / seconds,)),
        BenchmarkResult(name="sessions_slowest_over_median", unit="ratio", runs=(found.fairness,)),
        BenchmarkResult(name="sessions_memory_growth", unit="ratio", runs=(found.memory_growth,)),
    ]


def _disturbed(
    service: ServiceProcess, options: BenchmarkOptions, report: ProgressCallback
) -> Sequence[BenchmarkResult]:
    """Rate of a well-behaved client beside others, over its rate alone."""
    seconds, half_open, messages = (1.0, 50, 300) if options.quick else (10.0, soak.HALF_OPEN, soak.FUZZED)
    alone = soak.healthy_rate(service, seconds)
    report(f"{half_open} half-open connections")
    held = soak.HalfOpen(service.port, half_open)
    try:
        beside_half_open = soak.healthy_rate(service, seconds)
    finally:
        held.close()
    report(f"{messages} malformed messages, and {soak.SLOW} clients that read nothing")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        disturbing = pool.submit(soak.disturb, service.url, messages, 0)
        rates = [soak.healthy_rate(service, seconds)]
        while not disturbing.done():
            rates.append(soak.healthy_rate(service, seconds))
        if disturbing.result() != messages:
            raise WorkloadError(f"{disturbing.result()} of {messages} malformed messages were answered")
    beside_fuzz = float(np.median(rates[:-1] or rates))
    return [
        BenchmarkResult(name="rate_beside_half_open", unit="ratio", runs=(beside_half_open / alone,), peer="alone"),
        BenchmarkResult(name="rate_beside_malformed", unit="ratio", runs=(beside_fuzz / alone,), peer="alone"),
    ]


def _hold(observations: Mapping[str, npt.NDArray[np.float32]]) -> Actions:
    return {"joint_pos_target": observations["joint_pos"].astype(np.float32)}


def _timed(step: Callable[[Actions], object], actions: Actions, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step(actions)
    return time.perf_counter() - start


def _over_inprocess(url: str, blocks: int) -> list[float]:
    worlds = TargetWorlds(WorldsOptions(task=TASK, worlds=WORLDS))
    with RemoteSession.create(url, TASK, worlds=WORLDS) as session:
        actions = _hold(worlds.first)
        for index in range(WARM_UP):
            here, there = worlds.step(actions), session.step(actions)
            if not np.array_equal(here["reward"], there.reward):
                raise WorkloadError(f"step {index}: rewards over the wire differ from those in process")
        ratios: list[float] = []
        for _ in range(blocks):
            inside = _timed(worlds.step, actions, BLOCK_STEPS)
            ratios.append(inside / _timed(session.step, actions, BLOCK_STEPS))
        return ratios


def _round_trips(url: str, count: int) -> tuple[float, float]:
    with RemoteSession.create(url, TASK) as session:
        actions = _hold(session.reset())
        _timed(session.step, actions, WARM_UP)
        times = [1000.0 * _timed(session.step, actions, 1) for _ in range(count)]
        if session.state()["steps"] != WARM_UP + count:
            raise WorkloadError(f"the session took {session.state()['steps']} steps, expected {WARM_UP + count}")
    return float(np.quantile(times, 0.5)), float(np.quantile(times, 0.99))


def _batch(url: str, blocks: int) -> list[float]:
    with RemoteSession.create(url, BATCH_TASK, worlds=BATCH_WORLDS, randomise=False) as session:
        ((name, action),) = session.description["actions"].items()
        actions = {name: np.zeros((BATCH_STEPS, BATCH_WORLDS, *action["shape"]), np.float32)}
        session.steps(actions)
        return [BATCH_STEPS * BATCH_WORLDS / _timed(session.steps, actions, 1) for _ in range(blocks)]
