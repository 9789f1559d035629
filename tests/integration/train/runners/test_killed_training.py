"""A training that is killed at any moment, several times in a row, continues and keeps to its time budget."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from tests.harness.programs import program

from physai.train.runs.summary import load_outcome

BUDGET_S = 0.2
LATE = 450
"""Number of a function call within the iterations; those of the start of a session have smaller ones."""
END = 0

KINDS = ("robot", "team")


def killed(kind: str, folder: Path, kills: list[int]) -> tuple[list[int], list[float]]:
    """Exit codes of the attempts, and the time of all iterations that they logged [s]."""
    words = [kind, str(folder), repr(BUDGET_S), *map(str, kills)]
    done = subprocess.run(
        program("tests.support.killed_training", *words),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return found["codes"], found["iterations_s"]


def require_within_budget(kind: str, folder: Path, kills: list[int]) -> None:
    codes, iterations_s = killed(kind, folder, [*kills, END, END])
    assert set(codes[: len(kills)]) <= {-9, 0}, (kills, codes)
    assert codes[len(kills) :] == [0, 0], (kills, codes)
    # The log has seven digits of each time.
    spent_s = sum(iterations_s) * (1 - 1e-5)
    assert spent_s < BUDGET_S + max(iterations_s), (kills, iterations_s)
    outcome = load_outcome(folder if kind == "robot" else folder / "left")
    assert outcome is not None
    assert outcome.reason.startswith(f"time budget of {BUDGET_S} s used; ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_random_kills(kind: str, seed: int, tmp_path: Path) -> None:
    """The whole time of all attempts is at most the budget and one iteration."""
    draw = random.Random(seed)
    kills = [draw.randrange(LATE - 60, LATE + 60) if draw.random() < 0.4 else draw.randrange(1, 330) for _ in range(8)]
    require_within_budget(kind, tmp_path / "run", kills)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", range(1, 400, 7))
def test_a_kill_at_every_moment_of_a_session(kind: str, at: int, tmp_path: Path) -> None:
    """Two begins, then two sessions that continue: each pair is killed at the same moment, or one call later."""
    require_within_budget(kind, tmp_path / "run", [at, at + 1, LATE, at, at + 1])
