"""`physai robots import` of several files: what is found, what is written, and what becomes of one that fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.foreign_biped import write_foreign_biped
from tests.support.foreign_quadruped import write_foreign_quadruped

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.cli.main import main
from physai.sim.playback.robot_import.import_files import requests_for, robot_files


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_files_of_a_folder_that_look_like_a_robot(tmp_path: Path) -> None:
    urdf = write(tmp_path / "b/arm.urdf", "<robot/>")
    xacro = write(tmp_path / "a/arm.urdf.xacro", '<?xml version="1.0"?><robot xmlns:xacro="x" name="arm"></robot>')
    mjcf = write(tmp_path / "c.xml", "<mujoco>\n<worldbody/></mujoco>")
    write(tmp_path / "a/macros.xacro", '<robot xmlns:xacro="x"></robot>')
    write(tmp_path / "assets.xml", "<mujoco><asset/></mujoco>")
    write(tmp_path / "package.xml", "<package/>")
    assert robot_files([tmp_path]) == [xacro, urdf, mjcf]
    assert robot_files([mjcf, tmp_path / "b"]) == [mjcf, urdf]
    with pytest.raises(PhysaiError, match="is named twice"):
        robot_files([mjcf, tmp_path])
    with pytest.raises(PhysaiError, match=r"no \.urdf, .xacro or MJCF file of a robot in this folder"):
        robot_files([write(tmp_path / "d/package.xml", "<package/>").parent])


def test_each_file_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    files = [tmp_path / "a/arm.urdf", tmp_path / "b/arm.urdf", tmp_path / "c/b/arm.xml", tmp_path / "leg.urdf.xacro"]
    names = [request.folder.name for request in requests_for(files, tmp_path)]
    assert names == ["arm", "b-arm", "arm-2", "leg"]


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    broken = write(source / "broken.urdf", "<robot name='x'><link/></robot>")
    write_foreign_quadruped(source)
    write_foreign_biped(source)
    assert main(["robots", "import", str(source), "-o", str(out), "--jobs", "2"]) == 1
    said = capsys.readouterr()
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[1][1:] == ["failed:", f"{broken}:1:", "<link>", "without", "a", "name"]
    assert lines[2][1:] == ["strider", "14", "floating", "stable,", str(out / "strider")]
    assert lines[3][1:] == ["walker", "12", "floating", "stable,", str(out / "walker")]
    assert "3 files, 1 failed" in said.err
    assert sorted(path.name for path in out.iterdir()) == ["strider", "walker"]
    other = write(source / "other.urdf", "<robot name='y'/>")
    assert main(["robots", "import", str(broken), str(other), "-o", str(out), "--json"]) == 1
    records = json.loads(capsys.readouterr().out)
    assert [record["file"] for record in records] == [str(broken), str(other)]
    assert all(record["error"] for record in records)


@pytest.mark.slow
def test_on_ray_the_same_is_written_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    source = tmp_path / "in"
    write(source / "broken.urdf", "<robot name='x'><link/></robot>")
    write_foreign_quadruped(source)
    write_foreign_biped(source)
    written: list[dict[str, str]] = []
    said: list[Any] = []
    for name, options in (("here", ["--jobs", "2"]), ("ray", ["--ray", "local", "--jobs", "2"])):
        out = tmp_path / name
        assert main(["robots", "import", str(source), "-o", str(out), "--json", *options]) == 1
        printed = capsys.readouterr()
        assert "3 files, 1 failed" in printed.err
        said.append(json.loads(printed.out.replace(str(out), "OUT")))
        files = [path for path in out.rglob("*") if path.is_file()]
        written.append({str(path.relative_to(out)): sha256_hex(path.read_bytes()) for path in files})
    for record in [*said[0], *said[1]]:
        record.pop("seconds", None)
    assert said[0] == said[1]
    assert ["error" in record for record in said[0]] == [True, False, False]
    assert written[0] == written[1]
    assert {"strider/strider.xml", "walker/walker.xml"} <= written[0].keys()


def test_options_of_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "arm.urdf", "<robot/>")
    for options, words in (
        ([str(one), "--jobs", "2"], "--jobs and --ray are for several files"),
        ([str(tmp_path), "--jobs", "0"], "--jobs must be in 1 … 256, got 0"),
        ([str(tmp_path), "--ray", "head"], "expected auto, local, or HOST:PORT"),
        ([str(one), str(one)], "is named twice"),
    ):
        assert main(["robots", "import", *options]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
