"""Importers of other packages return URDF or MJCF, with or without decisions."""

import gc
import sys
import tempfile
from pathlib import Path

import pytest

from physai.sim.robots.importing.importer import ImportOptions, import_robot

MODULE = """
from physai.sim.robots.importing.source_file import ConvertedRobot

MJCF = '''<mujoco model="x"><compiler angle="radian"/><worldbody><body name="arm"><joint name="hinge"
    type="hinge" axis="0 1 0" range="-1 1"
    limited="true"/><geom name="rod" type="capsule" size="0.02" fromto="0 0 0 0 0 0.4"/></body></worldbody></mujoco>'''

def plain(path):
    return MJCF

def decided(path):
    return ConvertedRobot(text=MJCF, decisions=(("hinge", "was a screw"),))
"""


@pytest.mark.parametrize(("name", "line"), [("plain", None), ("decided", "hinge: was a screw")])
def test_an_importer_returns_mjcf_with_or_without_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: str | None
) -> None:
    folder = tmp_path / "plugins"
    info = folder / "screws-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: screws\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[physai.importers]\nscrew = screws_{name}:{name}\n")
    (folder / f"screws_{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (tmp_path / "a.screw").write_text("x")
    imported = import_robot(tmp_path / "a.screw", tmp_path / "robot", ImportOptions())
    lines = imported.decisions.lines()
    assert imported.robot.model.joint("hinge").range.tolist() == pytest.approx([-1, 1], abs=1e-6)
    assert f"importer: converted by screws_{name}:{name}" in lines
    assert line is None or line in lines
    gc.collect()
    assert list(temporary.iterdir()) == []
