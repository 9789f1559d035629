"""Playing in a window."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from physai.service.view.playing.viewer import RealTimePacer

XVFB = shutil.which("Xvfb")
needs_xvfb = pytest.mark.skipif(XVFB is None, reason="no Xvfb to open windows on: apt-get install xvfb")


@dataclass
class Time:
    """A clock that moves only when somebody sleeps or works."""

    now: float = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, duration: float) -> None:
        # Sleeping is never exact.
        self.now += duration + 0.001


def test_waiting_errors_do_not_add_up() -> None:
    time = Time()
    pacer = RealTimePacer(time.clock, time.sleep)
    for frame in range(1, 1001):
        time.now += 0.002
        pacer.wait(frame / 60.0)
    assert time.now - 100.0 == pytest.approx(1000 / 60.0, abs=0.0015)


def test_a_short_lag_is_caught_up_with_and_a_long_one_is_not() -> None:
    time = Time()
    pacer = RealTimePacer(time.clock, time.sleep)
    time.now += 0.3
    pacer.wait(0.1)
    assert time.now == pytest.approx(100.3)
    pacer.wait(0.4)
    assert time.now == pytest.approx(100.401)
    time.now += 5.0
    pacer.wait(0.5)
    pacer.wait(0.6)
    assert time.now == pytest.approx(105.502)


@pytest.fixture
def display() -> Iterator[str]:
    with subprocess.Popen(
        [XVFB or "", "-displayfd", "1", "-screen", "0", "640x480x24"], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        yield f":{server.stdout.readline().decode().strip()}"
        server.terminate()


CLOSED_BY_USER = """
import sys
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.playback.player import Player
from physai.sim.tasks.registry import load_task
from physai.service.view.playing.viewer import RealTimePacer, Window, watch

task = load_task("ur10e-reach")
player = Player(ScriptedPolicy(task.contract, "zero"), task)

class Impatient(RealTimePacer):
    def wait(self, time_s):
        if time_s > 0.2:
            window.close()

with Window(task) as window:
    watch(player, window, Impatient())
print(player.outcomes[-1].ended, player.outcomes[-1].length_s < 1.0)
"""


@needs_xvfb
@pytest.mark.parametrize(
    ("program", "output"),
    [
        (CLOSED_BY_USER, "stopped True\n"),
        (
            "from physai.sdk.cli.main import main; main(['play', 'ur10e-reach', '--duration-s', '0.2'])",
            "ur10e-reach, zero: stopped before the first success check",
        ),
    ],
    ids=["closed", "played"],
)
def test_windows_open_and_close(display: str, program: str, output: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"DISPLAY": display, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
