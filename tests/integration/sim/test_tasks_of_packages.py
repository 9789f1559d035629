"""A task of an installed package is known by its name, as physai's own are."""

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = '''"""A task of somebody's package."""

from dataclasses import replace

from physai.sim import Task, load_task


def my_task(preset: str | None = None) -> Task:
    """Cart-pole with longer episodes."""
    return replace(load_task("cartpole-swingup"), name="my-task", episode_length_s=20.0)
'''
PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages as pip leaves it, with a distribution that contributes three tasks."""
    folder = tmp_path / "site"
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "mine.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    names = "my-task = mine:my_task\nlost-task = mine:lost\ngone-task = gone:task\n"
    (info / "entry_points.txt").write_text(f"[physai.tasks]\n{names}")
    return folder


def physai(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {PROGRAM}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=site)


def test_it_is_listed_trained_exported_and_played(site: Path) -> None:
    listed = physai(site, "tasks")
    assert "my-task" in listed.stdout
    assert "physai: note: task lost-task: " in listed.stderr
    small = ("--set", "hidden=8", "--set", "horizon=8", "--set", "minibatches=1")
    words = ("train", "my-task", "--out", "run", "--iterations", "1", "--num-envs", "16", *small)
    for line in (words, ("export", "run"), ("eval", "run", "--episodes", "2")):
        done = physai(site, *line)
        assert done.returncode in (0, 1), done.stderr
        assert "error" not in done.stderr


@pytest.mark.parametrize(("name", "reason"), [("lost-task", "no attribute 'lost'"), ("gone-task", "No module named")])
def test_one_that_cannot_be_loaded_is_told(site: Path, name: str, reason: str) -> None:
    done = physai(site, "train", name)
    assert done.returncode == 2
    assert f"task {name}: " in done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_package_the_run_says_what_is_missing(site: Path) -> None:
    small = ("--set", "hidden=8", "--set", "horizon=8", "--set", "minibatches=1")
    assert (
        physai(site, "train", "my-task", "--out", "run", "--iterations", "1", "--num-envs", "16", *small).returncode
        == 0
    )
    (site / "mine-1.0.dist-info" / "entry_points.txt").unlink()
    done = physai(site, "export", "run")
    assert done.returncode == 2
    assert "my-task" in done.stderr
    assert "Traceback" not in done.stderr
