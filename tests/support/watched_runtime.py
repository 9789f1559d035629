"""A robot's end in this process, and a runtime under its watchdog in another, which may hang, stop or die."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.support import hanging_policy
from tests.support.hanging_policy import ACCELERATION, PERIOD_S, SPEED
from tests.support.patience import PATIENCE_S, nap, until
from tests.support.robot_end import RobotEnd

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.update.slots.health import health_path
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import STILL_S

SCRIPT = Path(__file__).with_name("watchdog_process.py")
SIGN_US = 400_000
"""Time after which systemd would kill a runtime that gives no sign of life."""
ROUNDING = 1e-5
"""Of positions, which UDP carries as float32 [rad]."""


class WatchedRuntime:
    """A runtime that drives a robot's end."""

    def __init__(
        self,
        root: Path,
        robot: RobotEnd,
        transport: str,
        options: Mapping[str, str],
        *,
        watchdog: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the runtime; name and options are those of its transport."""
        self.root, self.freezer, self.output = root, root.parent / "freezer", root.parent / "output"
        self.robot = robot
        self.signs: list[bytes] = []
        """What systemd would hear."""
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Of a runtime before.
        (root.parent / "manager").unlink(missing_ok=True)
        self._manager.bind(str(root.parent / "manager"))
        threading.Thread(target=self._listen, daemon=True).start()
        told = {"NOTIFY_SOCKET": str(root.parent / "manager"), "WATCHDOG_USEC": str(SIGN_US)}
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, str(SCRIPT), str(root), str(self.freezer), transport),
                    *(() if watchdog else ("--no-watchdog",)),
                    *(f"{key}={value}" for key, value in options.items()),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | told | dict(environment or {}),
            )

    def _listen(self) -> None:
        while (sign := self._manager.recv(64)) != b"":
            self.signs.append(sign)

    def text(self) -> str:
        return f"{self.output.read_text()}\n{self.robot.problems}"

    def tell(self, word: str) -> dict[str, Any]:
        return tell(health_path(self.root).with_name(CONTROL_FILE), word, timeout_s=PATIENCE_S)

    def status(self) -> dict[str, Any]:
        try:
            return {"guard": "", **self.tell("status")}
        except ControlError:
            return {"guard": ""}

    def wait_for(self, holds: Callable[[], object]) -> None:
        until(holds, said=self.text)

    def wait_for_commands(self, count: int) -> None:
        before = len(self.robot.log)
        self.wait_for(lambda: len(self.robot.log) >= before + count)

    def runs(self) -> bool:
        """Whether the policy drives; a busy machine may have made the guard take over meanwhile."""
        assert self.process.poll() is None, self.text()
        status = self.status()
        guard = status["guard"]
        word = {"HOLD": "reset", "DAMP": "reset", "PROTECTIVE_STOP": "reset", "STANDSTILL": "start"}.get(guard)
        if word is not None:
            self._try(word)
        # The guard's state is that of the last tick, also of a runtime that does not drive.
        return guard == "RUN" and status.get("lifecycle") == "active"

    def wait_for_run(self) -> None:
        self.wait_for(self.runs)
        self.wait_for_commands(5)
        self.wait_for(self.runs)

    def _try(self, word: str) -> None:
        try:
            self.tell(word)
        except ControlError:
            nap()

    def watchdog(self) -> int:
        """Its process id."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (found,) = (pid for pid in children if b"watchdog_process" in Path(f"/proc/{pid}/cmdline").read_bytes())
        return int(found)

    def freeze(self, duration_us: int) -> None:
        """Lets the policy's next call hang for so long, keeping Python's lock."""
        self._freeze(str(duration_us))

    def hang(self) -> None:
        """Lets the policy's next call never return, as a graph that never ends."""
        self._freeze("hang")

    def _freeze(self, told: str) -> None:
        new = self.freezer.with_suffix(".new")
        new.write_text(told)
        new.rename(self.freezer)
        self.wait_for(lambda: not self.freezer.exists())

    def crash(self) -> None:
        """Lets the loop end by an exception."""
        new = self.freezer.with_suffix(".new")
        new.write_text("crash")
        new.rename(self.freezer)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._manager.shutdown(socket.SHUT_RDWR)


def installed(folder: Path, contract: PolicyContract) -> Path:
    """The tree of a robot with an active policy that can hang."""
    workshop = SampleSigners()
    site = Site.make(folder / "robot", workshop, {}, now=datetime.now(UTC))
    bundle = workshop.published(hanging_policy.policy(contract), version=1)
    site.agent.install(bundle, unsafe_no_verdict=True)
    site.agent.activate()
    site.agent.commit("healthy")
    return site.agent.root


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def at_full_speed(setup: WatchedRuntime) -> int:
    """Waits until the joint is; the watchdog's process id."""

    def fast() -> bool:
        steps = np.diff(setup.robot.values()[-6:])
        return setup.runs() and len(steps) == 5 and bool(np.all(np.abs(steps - SPEED * PERIOD_S) < ROUNDING))

    setup.wait_for(fast)
    return setup.watchdog()


def wait_for_end(setup: WatchedRuntime, watchdog: int) -> None:
    """Until the watchdog has killed a runtime that does not come back, and has ended itself."""
    assert setup.process.wait(PATIENCE_S) == -signal.SIGKILL
    setup.wait_for(lambda: not is_alive(watchdog))
    assert "s and was killed; braked the robot for" in setup.text()


def assert_braked(setup: WatchedRuntime, since_ns: int) -> None:
    """From full speed the commanded position slows down by the acceleration limit, and then stays where it is."""
    change, steps = ACCELERATION * PERIOD_S**2, round(SPEED / ACCELERATION / PERIOD_S)
    way = np.cumsum(SPEED * PERIOD_S - change * np.arange(1, steps))
    values = np.array([one.value for one in setup.robot.since(since_ns)])
    # The robot's end, when it is late, sees the newest command only, so it may have missed some.
    braked = values - (values[-1] - way[-1])
    braked = braked[braked > ROUNDING]
    places = np.abs(way - braked[:, None]).argmin(axis=1)
    np.testing.assert_allclose(braked, way[places], rtol=0.0, atol=ROUNDING)
    assert (np.diff(places) >= 0).all()
    assert len(set(places.tolist())) > steps / 2
    assert (braked == braked[-1]).sum() > STILL_S / PERIOD_S / 2
