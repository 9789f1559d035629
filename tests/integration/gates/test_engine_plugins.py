"""Engines of other packages: built as wheels, found by their entry points, and used as the second engine of a gate."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.gates.checks.engine import EngineGate
from physai.sdk.base.errors import UnknownNameError
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sim import load_engine, load_task
from physai.sim.engines.named import EngineError

EXAMPLES = Path(__file__).parents[3] / "examples"


def installed(project: str, folder: Path) -> Path:
    """A folder with what pip would install from a folder of `examples/`."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=EXAMPLES / project, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob(f"physai_{project}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forget engines of other tests; their packages are on the path of one test alone."""
    for name in ("counting_engine", "newton_engine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    load_engine.cache_clear()
    yield
    load_engine.cache_clear()


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(installed("counting_engine", tmp_path)), *sys.path])
    maker: Any = load_engine("counting")
    monkeypatch.setattr(maker, "steps", 0)
    return maker


def test_an_engine_of_ones_own_steps_the_worlds(counting: Any) -> None:
    model = load_task("cartpole-swingup").model
    engines = [make(model, 2, fields={}) for make in (counting, load_engine("mujoco"))]
    for engine in engines:
        engine.reset(np.array([True, True]), np.zeros((2, 2)), np.ones((2, 2)))
        engine.step(3)
        engine.drive(np.full((2, 4, 1), 0.5))
    mine, theirs = engines
    assert counting.steps == 7
    assert np.array_equal(mine.state("qpos"), theirs.state("qpos"))
    assert mine.last_qpos.tolist() == np.zeros((2, 2)).tolist()
    kept = mine.snapshot()
    mine.step(1)
    mine.restore(kept)
    assert np.array_equal(mine.state("qvel"), theirs.state("qvel"))
    assert not mine.diverged().any()


def test_a_gate_compares_with_it(
    counting: Any, bench: Any, write_policy: Callable[..., Path], find: Callable[..., Any]
) -> None:
    context = bench.context(write_policy())
    engine = context.settings.engine.model_copy(update={"second": "counting"})
    context = replace(context, settings=context.settings.model_copy(update={"engine": engine}))
    finding = find(EngineGate(), context)
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.measured[1].name == "success_rate.counting"
    assert finding.chart["early_difference"] == 0.0, "MuJoCo against itself"
    assert counting.steps > 0
    assert "in the engine counting (" in EngineGate().method(context)


def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[physai.engines]\nmujoco = other:Engine\nbroken = other:Engine\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(EngineError, match=r"'mujoco' is in other:Engine and in physai\.sim.*; uninstall all"):
        load_engine("mujoco")
    with pytest.raises(EngineError, match="'broken' cannot be imported from other:Engine: No module named 'other'"):
        load_engine("broken")


def test_the_python_of_the_guide_builds_worlds() -> None:
    page = (EXAMPLES.parent / "docs" / "how-to" / "write-an-engine.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        exec(block, names)
    assert names["maker"](load_task("cartpole-swingup").model, 2, fields={})._worlds.num_worlds == 2


def test_an_unknown_engine() -> None:
    with pytest.raises(UnknownNameError, match="no engine named 'wrap'; did you mean warp"):
        load_engine("wrap")


def test_newtons_package_has_its_modules_and_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = installed("newton_engine", tmp_path)
    held = {path.relative_to(site).as_posix() for path in (site / "newton_engine").iterdir()}
    assert held == {"newton_engine/__init__.py", "newton_engine/engine.py", "newton_engine/model_import.py"}
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    maker: Any = load_engine("newton")
    assert maker.__name__ == "make_engine"
