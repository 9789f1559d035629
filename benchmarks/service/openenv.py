"""Part of `python -m benchmarks service`: single-world steps, and those of an environment of OpenEnv's own package."""

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import numpy as np

from benchmarks.measure import WorkloadError
from physai.service.client.remote_session import RemoteSession
from physai.service.serving.process import ServiceProcess, free_port

TASK = "cartpole-swingup"
BLOCKS, STEPS = 10, 300
START_S = 60.0

# The least that an environment of theirs can do: it returns what it gets.
_ECHO = """
import sys
import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

class EchoAction(Action):
    value: float = 0.0

class EchoObservation(Observation):
    value: float = 0.0

class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(step_count=0)

    def reset(self, seed=None, episode_id=None, **more):
        self._state = State(step_count=0)
        return EchoObservation(value=0.0, reward=0.0, done=False)

    def step(self, action, timeout_s=None, **more):
        self._state.step_count += 1
        return EchoObservation(value=action.value, reward=1.0, done=False)

    @property
    def state(self):
        return self._state

app = create_fastapi_app(Echo, EchoAction, EchoObservation, max_concurrent_envs=4)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


def is_installed() -> bool:
    """Whether OpenEnv's package is there to compare with."""
    return importlib.util.find_spec("openenv") is not None


def over_echo(service: ServiceProcess, blocks: int) -> list[float]:
    """Steps per second of a session of one world over those of an echo environment, in alternating blocks.

    Raises:
        WorkloadError: the echo does not start, or a side lost steps.
    """
    from openenv.core import GenericEnvClient  # pyright: ignore

    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", _ECHO, str(port)], stdout=subprocess.DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}/health")
        with (
            GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as echo,  # pyright: ignore
            RemoteSession.create(service.url, TASK) as session,
        ):
            echo.reset()  # pyright: ignore
            session.reset()
            actions = {"joint_effort_target": np.zeros((1, 1), np.float32)}
            ratios: list[float] = []
            for _ in range(blocks):
                theirs = _rate(lambda: echo.step({"value": 0.5}))  # pyright: ignore
                ratios.append(_rate(lambda: session.step(actions)) / theirs)
            if session.state()["steps"] != blocks * STEPS or echo.state()["step_count"] != blocks * STEPS:  # pyright: ignore
                raise WorkloadError("a side of the comparison with OpenEnv lost steps")
            return ratios
    finally:
        process.kill()
        process.wait()


def _rate(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return STEPS / (time.perf_counter() - start)


def _wait(url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise WorkloadError(f"OpenEnv's server does not answer at {url}")
