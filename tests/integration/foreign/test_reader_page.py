"""The reader of docs/how-to/write-a-policy-reader.md works word by word: installed, tested, and used for an import."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.integration.test_docs_commands import blocks

import physai

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-policy-reader.md"
TITLES = {"acme.json", "acme_reader.py", "pyproject.toml", "test_acme_reader.py"}
PROGRAM = "acme_reader.py"
# As its reader says: speeds and gravity, the command, and positions, speeds and last actions of twelve joints.
SIZE = 3 + 3 + 3 + 3 * 12


def network(file: Path) -> None:
    """A random layer, as another framework writes it."""
    helper: Any = onnx.helper
    weights = np.random.default_rng(5).uniform(-0.05, 0.05, (SIZE, 12)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "w"], ["actions"])],
        "actor",
        [helper.make_tensor_value_info("obs", 1, [1, SIZE])],
        [helper.make_tensor_value_info("actions", 1, [1, 12])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    library: Any = onnx
    library.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))


class Package:
    """The page's package in a folder, and an environment that it is installed in alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.installed = folder, folder.parent / f"{folder.name}-installed"
        command = Path(sys.executable).with_name("physai")
        if not command.exists():
            pytest.skip(f"no {command}: install the distribution")
        home = [str(Path(path).resolve().parent) for path in physai.__path__]
        self.environment = {
            **os.environ,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(self.installed), *home]),
            "PYTHONDONTWRITEBYTECODE": "1",
            # What `pip install` does to an environment, to a folder: the test leaves its own environment alone. The
            # variable's 0 turns the isolation off, in which pip would fetch the build's own packages.
            "PIP_TARGET": str(self.installed),
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
        }
        folder.mkdir()
        for title, text in titled():
            (folder / title).write_text(text, encoding="utf-8")
        policy = folder / "walk"
        policy.mkdir()
        shutil.move(folder / "acme.json", policy / "acme.json")
        network(policy / "net.onnx")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300.0,
            check=False,
        )


def titled() -> Iterator[tuple[str, str]]:
    for block in blocks(PAGE):
        if block.title:
            yield block.title, block.text


def commands() -> str:
    (text,) = [block.text for block in blocks(PAGE) if block.language == "bash"]
    return text


def test_the_page_has_the_whole_package() -> None:
    assert {title for title, _ in titled()} == TITLES
    assert re.match(r"pip install \.\nphysai import walk ", commands())


@pytest.mark.slow
def test_the_package_is_installed_and_imports_a_policy(tmp_path: Path) -> None:
    package = Package(tmp_path / "acme")
    done = package.run("bash", "-euo", "pipefail", "-c", commands())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (package.installed / "acme_reader-0.1.0.dist-info" / "entry_points.txt").is_file()
    assert f"imported from acme: {SIZE} numbers seen, 12 joints" in done.stdout
    record = json.loads((package.folder / "runs" / "acme" / "import.json").read_text(encoding="utf-8"))
    described, stated = record["description"], json.loads((package.folder / "walk" / "acme.json").read_bytes())
    assert described["joints"] == stated["motors"]
    assert described["default_pos"] == stated["stance"]
    assert described["stiffness"] == stated["kp"]
    assert described["damping"] == stated["kd"]
    assert (described["control_dt"], described["action_scale"]) == (0.02, 0.25)
    kinds = [(term["of"], term["scale"]) for term in described["observation"]]
    assert kinds == [
        *(("ang_vel", 0.25), ("gravity", 1.0), ("command", 1.0)),
        *(("joint_pos", 1.0), ("joint_vel", 0.05), ("last_action", 1.0)),
    ]
    assert record["sources"]["stiffness"] == "acme.json: kp"
    assert record["sources"]["control_dt"] == "acme.json: 1 / rate_hz"
    assert record["sources"]["action_scale"].startswith("code: acme_run/loop.cc")
    assert record["sources"]["command"] == "user"
    assert record["unread"] == ["logo"]
    # Its network and its description are known as well as their folder.
    for file in ("walk/net.onnx", "walk/acme.json"):
        asked = package.run("physai", "import", file, "--model", "go2", "-o", "runs/other")
        assert asked.returncode == 2
        assert "net.onnx: no file states these, and none of them is guessed" in asked.stderr
        assert "command: least and greatest command" in asked.stderr
        assert "stiffness" not in asked.stderr
    (package.folder / "walk" / "acme.json").write_text("{", encoding="utf-8")
    broken = package.run("physai", "import", "walk", "--model", "go2", "-o", "runs/other")
    assert "not as the reader acme expects it: JSONDecodeError" in broken.stderr
    (package.folder / "walk" / "acme.json").write_text(" " * (1 << 17), encoding="utf-8")
    large = package.run("physai", "import", "walk", "--model", "go2", "-o", "runs/other")
    assert "this is no file of Acme's" in large.stderr


def test_the_pages_own_test_passes_and_can_fail(tmp_path: Path) -> None:
    package = Package(tmp_path / "acme")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme_reader.py")
    done = package.run(*command)
    assert "2 passed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    program = package.folder / PROGRAM
    text = program.read_text(encoding="utf-8")
    program.write_text(text.replace('"stiffness": "kp"', '"stiffness": "kd"'), encoding="utf-8")
    assert "1 failed, 1 passed" in package.run(*command).stdout
