"""The programs on the documentation's front page run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.sdk.bundle.manifest import read_file

PAGE = Path(__file__).parents[2] / "docs" / "index.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
MOST_TRIES = 8
"""Of an installation on a machine so busy that the robot's latency self-test fails, as it should."""


def test_there_are_five_of_at_most_five_lines() -> None:
    assert len(PROGRAMS) == 5
    assert all(sum(bool(line.strip()) for line in program.splitlines()) <= 5 for program in PROGRAMS)


@pytest.mark.slow
def test_they_train_judge_read_wrap_and_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for program in PROGRAMS[:4]:
        exec(compile(program, str(PAGE), "exec"), names)
    assert (tmp_path / "designed" / "policy.onnx").is_file()
    assert names["verdict"].outcome == names["load_verdict"]("run/validation").outcome
    assert "steps in" in capsys.readouterr().out
    before, drive = PROGRAMS[4].split("\nrun(")
    exec(compile(before, str(PAGE), "exec"), names)
    _install(tmp_path)
    # In a process of its own: a runtime locks the memory of its process and keeps it so.
    program = before.splitlines()[0] + "\ndriven = run(" + drive + "print('ticks', driven.summary.counts.ticks)\n"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240.0)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 25


def _install(folder: Path) -> None:
    """Installs until the self-test passes, which takes a quiet moment."""
    agent = UpdateAgent(root=folder / "robot")
    for attempt in range(MOST_TRIES):
        try:
            agent.install(read_file(folder / "run.physai"), unsafe_no_verdict=True)
        except Exception as error:
            if "ticks take up to" not in str(error) or attempt == MOST_TRIES - 1:
                raise
        else:
            return
