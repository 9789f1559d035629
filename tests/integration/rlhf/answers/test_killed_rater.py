"""A process that records answers is killed at any moment: what it confirmed is there, and nothing twice."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from physai.rlhf.answers.answers import Pair
from physai.rlhf.answers.segment import Segment, SegmentLayout
from physai.rlhf.answers.store import PreferenceStore

LAYOUT = SegmentLayout(task="t", fingerprint="f", step_dt=0.1, steps=1, qpos=1, critic=1, actions=1, terms=("reward",))
PAIRS, KILLS = 2000, 8

RATER = """
import sys
from pathlib import Path
from physai.rlhf.answers.answers import Answer
from physai.rlhf.answers.store import PreferenceStore

store = PreferenceStore(Path(sys.argv[1]))
while (question := store.next_question("ann")) is not None:
    key = f"ann {question.pair}"
    store.record(Answer(key=key, pair=question.pair, rater="ann", choice="left", swapped=question.swapped))
    print(key, flush=True)
"""


def one() -> Segment:
    part = np.zeros((1, 1), np.float32)
    return Segment(episode_seed=0, start_step=0, qpos=part, critic=part, action=part, terms=part)


@pytest.mark.slow
def test_no_confirmed_answer_is_lost_or_doubled(tmp_path: Path) -> None:
    path = tmp_path / "db"
    store = PreferenceStore(path, layout=LAYOUT)
    numbers = store.add_segments("p" * 64, {}, [one(), one()])
    store.add_pairs([Pair(first=numbers[0], second=numbers[1], method="random")] * PAIRS)
    store.close()
    rng, confirmed = random.Random(0), list[str]()
    for _ in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", RATER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        confirmed.append(child.stdout.readline().strip())
        time.sleep(rng.uniform(0.0, 0.1))
        child.send_signal(signal.SIGKILL)
        # The last line may have been cut off.
        confirmed += [line.strip() for line in child.stdout if line.endswith("\n")]
        child.wait()
    answers = PreferenceStore(path).answers()
    stored = Counter(answer.key for answer in answers)
    assert len(confirmed) >= KILLS
    assert set(confirmed) <= set(stored)
    assert set(stored.values()) == {1}
    # Of each process at most one answer was on disk that it could not confirm any more.
    assert len(stored) <= len(confirmed) + KILLS
    assert sorted(answer.pair for answer in answers) == list(range(1, len(answers) + 1))
