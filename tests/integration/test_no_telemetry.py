"""physai contacts nobody unasked: what libraries write and connect to, as the kernel sees it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from physai.sdk.base.process.no_telemetry import VARIABLES

# Loads and runs a policy, then waits for what a thread may do later.
LOADS = """
import time
import {package}
import onnxruntime
from tests.harness.fixtures.sample import sample_policy
from physai.sdk.policy.header import POLICY_FILE
session = onnxruntime.InferenceSession(sample_policy()[POLICY_FILE], providers=["CPUExecutionProvider"])
time.sleep(1.0)
"""

PACKAGES = [
    f"physai.{name}"
    for name in [
        "sdk",
        "compute",
        "sim",
        "twin",
        "gates",
        "train",
        "cluster",
        "rlhf",
        "service",
        "deploy_jetson",
        "ros",
    ]
]

CLUSTER = """
import physai.sim, mlflow, viser, uvicorn, torch
server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
server.stop()
"""


def environment(home: Path) -> dict[str, str]:
    """A user's, who has set none of the variables."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES and not name.startswith("XDG_")}
    return kept | {"HOME": str(home)}


@pytest.mark.parametrize("package", PACKAGES)
def test_loading_a_policy_writes_nothing_into_the_home_folder(package: str, tmp_path: Path) -> None:
    """ONNX Runtime wrote a device id and a database there, and where it could not, it printed a line per process."""
    command = [sys.executable, "-c", LOADS.format(package=package)]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt install strace")
@pytest.mark.parametrize("code", [LOADS.format(package="physai.deploy_jetson"), CLUSTER], ids=["robot", "service"])
def test_no_library_looks_up_or_connects_to_another_computer(code: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    watched = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(trace)]
    done = subprocess.run(
        [*watched, sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    addresses = re.findall(r'inet_addr\("([^"]*)"\)|inet_pton\(AF_INET6, "([^"]*)"', trace.read_text())
    others = {one for pair in addresses for one in pair if one and not one.startswith("127.") and one != "::1"}
    assert not others


def test_a_users_own_choice_is_kept(tmp_path: Path) -> None:
    code = "import physai.sdk, os; print(os.environ['ORT_DISABLE_TELEMETRY'], os.environ['RAY_USAGE_STATS_ENABLED'])"
    given = environment(tmp_path) | {"ORT_DISABLE_TELEMETRY": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]
