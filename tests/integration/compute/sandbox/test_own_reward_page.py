"""What the how-to says of a user's own reward is so."""

import re
import resource
from pathlib import Path

import numpy as np
import pytest

from physai.compute.sandbox.process import MAX_PRINTED
from physai.compute.sandbox.reward import LAYERS, RewardLimits, UserReward, UserRewardError
from physai.sdk.base.process.no_telemetry import VARIABLES
from physai.service.sessions.rewarded import MAX_WORLDS

DOCS = Path(__file__).parents[4] / "docs"
PAGE = "\n".join(
    (DOCS / name).read_text(encoding="utf-8") for name in ("how-to/own-reward.md", "explanation/sandbox.md")
)
FILES = dict(re.findall(r'```python title="(\w+\.py)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))


def started(folder: Path, source: str) -> UserReward:
    path = folder / "my_reward.py"
    path.write_text(source)
    return UserReward(path, label="my_reward.py")


def test_the_files_of_the_page_work(tmp_path: Path) -> None:
    with started(tmp_path, FILES["my_reward.py"]) as reward:
        assert reward.score({"terms.command_size": np.array([1.0, -2.0])}).tolist() == [-1.0, -2.0]
    with started(tmp_path, FILES["my_rubric.py"]) as rubric:
        episode = {
            "next_observation.joint_vel": np.array([[1.0, -3.0]] * 4),
            "succeeded": np.array([False] * 3 + [True]),
        }
        assert rubric.score(episode).tolist() == [8.0]
    wrong = FILES["my_reward.py"].replace("terms.command_size", "terms.comand_size")
    with started(tmp_path, wrong) as reward, pytest.raises(UserRewardError) as error:
        reward.score({"terms.command_size": np.array([1.0])})
    assert f"```text\n{error.value}\n```" in PAGE


def test_its_numbers_are_those_of_the_code(tmp_path: Path) -> None:
    limits = RewardLimits()
    assert (limits.memory_bytes, limits.cpu_s, limits.call_s, MAX_PRINTED) == (1 << 30, 3600, 5.0, 64 << 10)
    said = ("1 GiB of address space, an hour of processor time, 32 open files", "at most 5 s and prints at most 64 KiB")
    page = " ".join(PAGE.split())
    assert all(words in page for words in (*said, f"at most {MAX_WORLDS} worlds", *(f"`{name}`" for name in LAYERS)))
    with started(tmp_path, "def reward(steps): return steps['x']\n") as reward:
        assert reward.pid is not None
        limit = {
            n: resource.prlimit(reward.pid, getattr(resource, f"RLIMIT_{n}"))[1]
            for n in ("AS", "CPU", "NOFILE", "FSIZE", "CORE")
        }
    assert limit == {"AS": 1 << 30, "CPU": 3600, "NOFILE": 32, "FSIZE": 0, "CORE": 0}


def test_what_it_is_not(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("12345")
    (tmp_path / "neighbour.py").write_text("")
    source = f"""
import os, sys, time
import yaml

def reward(steps):
    sys.path.insert(0, {str(tmp_path)!r})
    try:
        import neighbour
    except ImportError:
        pass
    else:
        raise AssertionError("a file of its folder was imported")
    assert time.time() > 0
    threads = [library + "_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL")]
    assert set(os.environ) <= {{"HOME", "LANG", "LC_CTYPE", "LD_LIBRARY_PATH", *threads, *{sorted(VARIABLES)!r}}}
    return steps["x"] * 0 + yaml.safe_load("1") * os.stat({str(secret)!r}).st_size
"""
    # Sizes of files can be told, as the page says; installed packages can be imported.
    with started(tmp_path, source) as reward:
        assert reward.score({"x": np.zeros(2)}).tolist() == [5.0, 5.0]
