"""`physai doctor`: what it finds on this machine, and the project that shadows ours."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from physai.sdk.base.process.machine import inspect_machine
from physai.sdk.cli.main import main


def test_it_finds_this_machine() -> None:
    report = inspect_machine()
    assert report.python == platform.python_version()
    assert 1 <= report.cpus <= (os.cpu_count() or 1)
    assert report.memory_bytes > 0
    assert report.disk_free_bytes >= 0
    assert report.extras[""]["numpy"] == version("numpy")
    assert "torch" in report.extras["train"]
    assert "torch" not in report.extras["robot"]
    assert set(report.renderers) == {"egl", "osmesa", "glfw"}


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert code == (1 if record["problems"] else 0)
    assert record["physai"] == version("physai-sdk")


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["numpy", version("numpy"), "always"] in lines


def test_a_gpu_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA Thor, 580.00, 131072 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert inspect_machine().gpus == ["NVIDIA Thor, 580.00, 131072 MiB"]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert inspect_machine().gpus == []


def test_another_project_of_the_name_is_named(tmp_path: Path) -> None:
    info = tmp_path / "physai-5.5.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: physai\nVersion: 5.5.0\n")
    code = "import sys; from physai.sdk.cli.main import main; sys.exit(main(['doctor', '--json']))"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert result.returncode == 1
    assert "the distribution physai 5.5.0 is another project" in json.loads(result.stdout)["problems"][0]
