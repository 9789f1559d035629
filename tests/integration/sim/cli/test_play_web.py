"""`physai play --web`: a browser sees the robot move, and Ctrl-C ends it with a summary."""

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.support.chromium import TimeoutException, chromium, needs_chromium
from tests.support.patience import PATIENCE_S

from physai.sdk.base.errors import PhysaiError
from physai.service.cli.play import command

PHYSAI = Path(sys.executable).with_name("physai")


def started(*words: str) -> tuple[subprocess.Popen[str], str]:
    """The running command, and the address that it says to open."""
    process = subprocess.Popen(
        [PHYSAI, "play", "ur10e-reach", "--agent", "random", "--web", "0", "--json", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.match(r"open (http://127\.0\.0\.1:(\d+)) .*ssh -L \2:127\.0\.0\.1:\2 ", line)
    assert found is not None, line + process.stderr.read()
    return process, found[1]


@pytest.mark.slow
@needs_chromium
def test_it_waits_for_a_browser_in_which_the_robot_then_moves() -> None:
    process, url = started("--episodes", "2")
    try:
        assert httpx.get(url).text.startswith("<!doctype html>")
        time.sleep(2.0)
        assert process.poll() is None, "nobody looks yet"
        with chromium() as browser:
            browser.get(url)
            pictures: set[bytes] = set()
            end = time.monotonic() + PATIENCE_S
            while len(pictures) < 4 and time.monotonic() < end:
                # ChromeDriver waits 10 s for a picture, which WebGL in software may exceed on a busy machine.
                with contextlib.suppress(TimeoutException):
                    pictures.add(browser.get_screenshot_as_png())
                time.sleep(0.3)
            assert len(pictures) == 4, "the picture changes with the robot"
            output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert [episode["ended"] for episode in json.loads(output)["episodes"]] == ["time", "time"]


def test_ctrl_c_ends_the_wait_for_a_browser() -> None:
    process, _ = started()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert json.loads(output)["interrupted"] is True


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--web", "70000"], "--web"), (["--web", "--video", "a.mp4"], "give one of them")],
)
def test_wrong_options(words: list[str], message: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(PhysaiError, match=message):
        command.run(parser.parse_args(["cartpole-swingup", *words]))
