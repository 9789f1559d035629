"""Runs of `physai workflow run` in processes of their own."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.contract_workflows import compare, show
from tests.support.ray_nodes import RayNodes

StartRay = Callable[..., RayNodes]
"""Starts a node of Ray per number of processors, the head first."""

PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"

SIX: dict[str, Any] = {
    "schema": {"command": ["contract", "schema"], "stdout": "said", "outputs": {"said": "schema.json"}},
    "a": show({"path": "a.json"}),
    "b": show({"path": "b.json"}),
    "both": compare({"path": "a.json"}, {"path": "b.json"}),
    "left": compare({"from": "both.contract"}, {"path": "a.json"}),
    "all": {
        **show({"from": "left.contract"}),
        "inputs": {
            "contract": {"from": "left.contract"},
            **{name: {"from": f"{name}.said"} for name in ("schema", "a", "b", "both", "left")},
        },
    },
}


def endless(**fields: Any) -> dict[str, Any]:
    """A stage that serves until it is stopped."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    return {"command": ["sim", "serve", "--port", port, "--data", "data"], **fields}


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["workflow", "run", str(file), "--folder", str(file.parent / "run"), "--json", *options]
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False)


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert "Traceback" not in done.stderr, done.stderr
    return {stage["stage"]: stage["state"] for stage in json.loads(done.stdout)["stages"]}


def no_process_of(folder: Path) -> bool:
    """Whether no process works below a folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                return False
        except OSError:
            continue
    return True
