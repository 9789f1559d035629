"""The example goes from recordings to a signed bundle that a robot would install."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from physai.sdk.bundle.manifest import read_bundle

EXAMPLE = Path(__file__).parents[4] / "examples" / "workflow.yaml"
PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


@pytest.mark.exhaustive
def test_the_example_ends_with_a_bundle_that_a_robot_accepts(tmp_path: Path) -> None:
    words = ["workflow", "run", str(EXAMPLE), "--folder", str(tmp_path), "--json", "--cpus", "2"]
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    states = {stage["stage"]: stage["state"] for stage in json.loads(done.stdout)["stages"]}
    if states["validate"] == "failed":
        verdict = (tmp_path / "logs" / "validate.log").read_text()
        failed = re.findall(r"^(\S+): (?:FAIL|INCONCLUSIVE) ", verdict, re.MULTILINE)
        if failed == ["latency"]:
            pytest.skip("this computer is too busy for the deadlines of the contract; every other gate passes")
    assert done.returncode == 0, done.stderr
    assert states == dict.fromkeys(states, "done")
    verified = json.loads((tmp_path / "results" / "verify" / "verified.json").read_text())
    assert verified["accepted"] is True
    assert read_bundle(tmp_path / "results" / "bundle" / "cartpole.physai").manifest.task == "cartpole-swingup"
    again = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert {stage["state"] for stage in again["stages"]} == {"cached"}
