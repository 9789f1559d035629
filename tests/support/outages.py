"""Outages of a service's database or disk while it works, and what has to be true after them.

`python -m tests.support.outages KIND NUMBER [LONGEST_S [SEED]]` prints how long the service took to be ready again.
"""

import contextlib
import json
import math
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from tests.support.patience import until
from tests.support.service import job_pids, postgres_folder, resting_policy, running_postgres

from physai.service import RemoteSession
from physai.service.jobs.queue import ENDED
from physai.service.serving.process import ServiceProcess

TASK = "cartpole-swingup"
SHORTEST_S = 0.1
DISK_BYTES = 48 * 2**20


@dataclass
class Store:
    """Where a service keeps its data, and the two ends of an outage."""

    data: Path
    database: str | None
    take: Callable[[], None]
    give: Callable[[], None]


@contextlib.contextmanager
def _postgres(folder: Path, *, frozen: bool) -> Generator[Store]:
    programs = postgres_folder()
    assert programs is not None, "PostgreSQL is not installed"
    with tempfile.TemporaryDirectory(dir="/tmp") as home, running_postgres(Path(home), programs) as server:
        take = server.freeze if frozen else server.stop
        give = server.thaw if frozen else server.start
        yield Store(folder / "data", server.url, take, give)


def may_mount(folder: Path) -> bool:
    """Whether this process may mount a file system of its own."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError), _mounted(folder / "probe"):
        return True
    return False


@contextlib.contextmanager
def _mounted(folder: Path) -> Generator[Path]:
    folder.mkdir()
    _quietly("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _quietly("umount", "--lazy", str(folder))


def _quietly(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[Store]:
    with _mounted(folder / "disk") as disk:
        ballast = disk / "ballast"

        def fill() -> None:
            with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

        stopping = threading.Event()

        def keep_full() -> None:
            # What others delete must not make room again.
            while not stopping.is_set():
                fill()
                stopping.wait(0.05)

        keeper: list[threading.Thread] = []

        def take() -> None:
            stopping.clear()
            keeper[:] = [threading.Thread(target=keep_full)]
            keeper[0].start()

        def give() -> None:
            stopping.set()
            keeper[0].join()
            ballast.unlink()

        try:
            yield Store(disk / "data", None, take, give)
        finally:
            # A test that fails meanwhile must not leave a thread that fills the disk below the mount.
            stopping.set()
            for thread in keeper:
                thread.join()


STORES: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "postgresql-ends": lambda folder: _postgres(folder, frozen=False),
    "postgresql-hangs": lambda folder: _postgres(folder, frozen=True),
    "disk-full": small_disk,
}


@dataclass
class Load:
    """Clients of a service: jobs, uploads and a session, each of which goes on over outages."""

    service: ServiceProcess
    policy: str
    jobs: dict[str, int] = field(default_factory=dict[str, int])
    """Seed of each job that the service accepted."""
    uploads: dict[str, bytes] = field(default_factory=dict[str, bytes])
    failures: list[str] = field(default_factory=list[str])
    _stopping: threading.Event = field(default_factory=threading.Event)

    def submit(self) -> None:
        """Submits a job, again and again until the service has it: once, for it has the same name each time."""
        identifier, seed = secrets.token_hex(8), len(self.jobs)
        spec = {"policy": self.policy, "task": TASK, "duration_s": 0.1, "seed": seed}
        self._repeat("POST", "/v1/jobs", json={"id": identifier, "kind": "play", "spec": spec})
        self.jobs[identifier] = seed

    def _repeat(self, method: str, path: str, **options: object) -> httpx.Response:
        while True:
            try:
                answer = httpx.request(method, self.service.url + path, timeout=30.0, **options)  # type: ignore[arg-type]
            except httpx.TransportError:
                time.sleep(0.2)
                continue
            if answer.is_success:
                return answer
            # Whatever the request, a client hears that it may send it again, and why.
            problem = answer.json()
            if answer.status_code != 503 or "retry-after" not in answer.headers or not problem["detail"]:
                self.failures.append(f"{method} {path}: {answer.status_code} {problem}")
                raise AssertionError(self.failures[-1])
            time.sleep(0.2)

    def _upload(self) -> None:
        while not self._stopping.wait(0.3):
            content = os.urandom(20_000)
            self.uploads[self._repeat("POST", "/v1/blobs", content=content).json()["sha256"]] = content

    def _step(self) -> None:
        with RemoteSession.create(self.service.url, TASK) as session:
            session.reset(1)
            steps = 0
            while not self._stopping.wait(0.1):
                session.step({"joint_effort_target": np.zeros((1, 1))})
                steps += 1
                if session.state()["steps"] != steps:
                    self.failures.append(f"the session took {session.state()['steps']} steps, not {steps}")
                    return

    def _watched(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(f"{work.__name__}: {type(error).__name__}: {error}")

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Uploads and steps while the block runs."""
        threads = [threading.Thread(target=self._watched, args=(work,)) for work in (self._upload, self._step)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def check(self) -> None:
        """Every job ended once, as it does without outages, and every upload that was accepted is stored."""
        client = self.service.client
        assert not self.failures, self.failures
        left = list(self.jobs)

        def one_has_ended() -> bool:
            before = len(left)
            left[:] = [job for job in left if client.job(job)["state"] not in ENDED]
            return len(left) < before

        # As long as jobs end, none is stuck.
        while left:
            until(one_has_ended, pause, lambda: _states(self))
        assert {job["id"] for job in client.jobs()} == set(self.jobs)
        for job, seed in self.jobs.items():
            found = client.job(job)
            assert found["state"] == "succeeded", found
            assert found["result"]["document"]["seed"] == seed
            assert [artefact["name"] for artefact in found["artefacts"]] == ["motion.mcap"]
            assert [event["text"] for event in client.follow(job) if event["text"] in ENDED] == ["succeeded"]
        for sha256, content in self.uploads.items():
            assert httpx.get(f"{self.service.url}/v1/blobs/{sha256}").content == content


def pause() -> None:
    time.sleep(0.5)


def _states(load: Load) -> str:
    return json.dumps([load.service.client.job(job) for job in load.jobs])


def ready(service: ServiceProcess) -> bool:
    """Whether the service says that it can work."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{service.url}/readyz", timeout=10.0).is_success
    return False


def play_outages(folder: Path, kind: str, number: int, *, longest_s: float, seed: int) -> list[tuple[float, float]]:
    """Takes a working service's store away that often.

    Args:
        folder: empty.
        kind: one of `STORES`.
        number: of outages.
        longest_s: their lengths are log-uniform from 0.1 s [s].
        seed: of lengths and moments.

    Returns:
        Length of each outage, and how long after it the service was ready [s].
    """
    random_numbers = random.Random(seed)
    lengths: list[tuple[float, float]] = []
    with STORES[kind](folder) as store:
        service = ServiceProcess(store.data, database=store.database, workers=2)
        service.start()
        try:
            load = Load(service, service.client.upload(resting_policy()))
            with load.running():
                for index in range(number):
                    load.submit()
                    time.sleep(random_numbers.uniform(0.0, 4.0))
                    length = math.exp(random_numbers.uniform(math.log(SHORTEST_S), math.log(longest_s)))
                    store.take()
                    during = threading.Thread(target=load.submit) if index % 4 == 0 else None
                    if during is not None:
                        during.start()
                    time.sleep(length)
                    if length > 1.0 and ready(service):
                        load.failures.append(f"ready without its store, {length:.1f} s into outage {index}")
                    store.give()
                    given = time.monotonic()
                    until(lambda: ready(service), said=lambda: service.log.read_text("utf-8", "replace")[-3000:])
                    lengths.append((length, time.monotonic() - given))
                    if during is not None:
                        during.join()
                    if load.failures:
                        break
            load.check()
        finally:
            service.stop()
        assert not job_pids(service.data)
    return lengths


def _main(kind: str, number: int, longest_s: float, seed: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        try:
            lengths = play_outages(Path(folder), kind, number, longest_s=longest_s, seed=seed)
        except BaseException:
            for log in Path(folder).rglob("*.log"):
                print(log.read_text("utf-8", "replace")[-20000:])
            raise
    print(f"{kind}: {len(lengths)} outages of {min(lengths)[0]:.2f} to {max(lengths)[0]:.2f} s")
    again = sorted(after for _, after in lengths)
    print(f"ready again after {again[len(again) // 2]:.2f} s (median), {again[-1]:.2f} s (longest)")


if __name__ == "__main__":
    words = [*sys.argv[3:], *("60", "0")[len(sys.argv) - 3 :]]
    _main(sys.argv[1], int(sys.argv[2]), float(words[0]), int(words[1]))
