"""The example goes from recordings to a signed bundle that a robot would install, and publishes it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.contract_workflows import write_workflow
from tests.support.workflow_runs import StartRay, run, states

from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.main import main

EXAMPLE = Path(__file__).parents[4] / "examples" / "workflow.yaml"
PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


def test_what_was_accepted_is_published_and_can_be_fetched(tmp_path: Path) -> None:
    """The last stage of the example, with files in the place of what the stages before it make."""
    example = yaml.safe_load(EXAMPLE.read_text())
    stages = example["stages"]
    page = (EXAMPLE.parents[1] / "docs" / "how-to" / "workflows.md").read_text()
    assert {11: "eleven"}[len(stages)] + " stages" in page
    publish = stages["publish"]
    assert publish["inputs"]["verified"] == {"from": "verify.verified"}
    publish["inputs"] = {"bundle": {"path": "cartpole.physai"}, "verified": {"path": "verified.json"}}
    (tmp_path / "cartpole.physai").write_bytes(bytes(range(256)))
    (tmp_path / "verified.json").write_text("{}")
    done = run(write_workflow(tmp_path / "workflow.yaml", {"publish": publish}, images=example["images"]))
    assert states(done) == {"publish": "done"}, done.stderr
    check_published(tmp_path / "run", tmp_path / "cartpole.physai")


def check_published(folder: Path, bundle: Path) -> None:
    """What is in the store is the bundle."""
    results = folder / "results" / "publish"
    record = json.loads((results / "published.json").read_text())
    fetched = folder / "fetched.physai"
    words = ["artefacts", "pull", str(results / "published"), str(fetched), "--sha256", record["content_sha256"]]
    assert main(words) == 0
    assert fetched.read_bytes() == bundle.read_bytes()


@pytest.mark.exhaustive
def test_the_example_ends_with_a_bundle_that_a_robot_accepts(tmp_path: Path) -> None:
    check_example(tmp_path, "--cpus", "2")


@pytest.mark.exhaustive
def test_the_example_on_three_nodes_of_ray(start_ray: StartRay, tmp_path: Path) -> None:
    record = check_example(tmp_path / "run", "--ray", start_ray(2, 2, 2).address)
    assert all(stage["host"] for stage in record["stages"])


def check_example(folder: Path, *options: str) -> dict[str, Any]:
    """Runs the example twice and returns the first record."""
    words = ["workflow", "run", str(EXAMPLE), "--folder", str(folder), "--json", *options]
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    record = json.loads(done.stdout)
    states = {stage["stage"]: stage["state"] for stage in record["stages"]}
    if states["validate"] == "failed":
        verdict = (folder / "logs" / "validate.log").read_text()
        failed = re.findall(r"^(\S+): (?:FAIL|INCONCLUSIVE) ", verdict, re.MULTILINE)
        if failed == ["latency"]:
            pytest.skip("this computer is too busy for the deadlines of the contract; every other gate passes")
    assert done.returncode == 0, done.stderr
    assert states == dict.fromkeys(states, "done")
    verified = json.loads((folder / "results" / "verify" / "verified.json").read_text())
    assert verified["accepted"] is True
    assert read_bundle(folder / "results" / "bundle" / "cartpole.physai").manifest.task == "cartpole-swingup"
    check_published(folder, folder / "results" / "bundle" / "cartpole.physai")
    again = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert {stage["state"] for stage in again["stages"]} == {"cached"}
    return record
