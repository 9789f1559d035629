"""`physai workflow run --cache`: what one computer ran, another does not run again."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.contract_workflows import compare, show, write_contract, write_workflow
from tests.support.s3_server import BUCKET

from physai.compute.objects.address import Address
from physai.compute.objects.manifest import OBJECTS_FOLDER
from physai.compute.objects.transfer import show as show_artefact
from physai.sdk.cli.main import main

STAGES: dict[str, Any] = {
    "a": show({"path": "a.json"}),
    "both": compare({"path": "a.json"}, {"path": "b.json"}),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_contract(tmp_path / "a.json", "one")
    write_contract(tmp_path / "b.json", "two")
    return write_workflow(tmp_path / "workflow.yaml", STAGES)


@pytest.fixture
def cache(server: str, tmp_path: Path) -> str:
    return f"s3://{BUCKET}/cache-{tmp_path.name}"


def run(capsys: pytest.CaptureFixture[str], file: Path, folder: str, *options: str) -> tuple[dict[str, str], str]:
    """State of each stage, and what was said."""
    assert main(["workflow", "run", str(file), "--folder", str(file.parent / folder), "--json", *options]) == 0
    said = capsys.readouterr()
    return {stage["stage"]: stage["state"] for stage in json.loads(said.out)["stages"]}, said.err


def outputs(file: Path, folder: str) -> dict[str, bytes]:
    results = file.parent / folder / "results"
    paths = [(stage, path) for stage in STAGES for path in (results / stage).iterdir()]
    # They name the files that were compared.
    return {f"{stage}/{path.name}": re.sub(rb"/(first|second)/", b"/", path.read_bytes()) for stage, path in paths}


def test_another_computer_takes_the_results(capsys: pytest.CaptureFixture[str], file: Path, cache: str) -> None:
    assert run(capsys, file, "first", "--cache", cache)[0] == dict.fromkeys(STAGES, "done")
    expected = outputs(file, "first")
    shutil.rmtree(file.parent / "first")
    assert run(capsys, file, "second", "--cache", cache)[0] == dict.fromkeys(STAGES, "cached")
    assert outputs(file, "second") == expected
    # What is here is not fetched again.
    assert run(capsys, file, "second")[0] == dict.fromkeys(STAGES, "cached")


def test_a_result_that_was_changed_in_the_cache_is_not_taken(
    capsys: pytest.CaptureFixture[str], file: Path, cache: str
) -> None:
    run(capsys, file, "first", "--cache", cache)
    expected = outputs(file, "first")
    for key in (path.name for path in (file.parent / "first" / "cache").iterdir()):
        place = Address.parse(cache) / key
        entry = next(entry for name, entry in show_artefact(place).files.items() if name.startswith("outputs/"))
        with place.filesystem().open((place / OBJECTS_FOLDER / entry.sha256).path, "wb") as damaged:
            damaged.write(bytes(entry.size))
    states, said = run(capsys, file, "second", "--cache", cache)
    assert states == dict.fromkeys(STAGES, "done")
    assert said.count("the manifest says") == len(STAGES)
    assert outputs(file, "second") == expected
    # The stages that ran repaired it.
    assert run(capsys, file, "third", "--cache", cache)[0] == dict.fromkeys(STAGES, "cached")


def test_a_cache_that_fails_costs_no_result(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"no folder")
    states, said = run(capsys, file, "first", "--cache", str(tmp_path / "cache"))
    assert states == dict.fromkeys(STAGES, "done")
    assert "cache: " in said


@pytest.mark.parametrize(
    ("address", "message"), [("s3://missing/cache", "there is no bucket 'missing'"), ("http://host/x", "is no address")]
)
def test_a_cache_that_cannot_be_used_is_refused_at_once(
    server: str, capsys: pytest.CaptureFixture[str], file: Path, address: str, message: str
) -> None:
    assert main(["workflow", "run", str(file), "--folder", str(file.parent / "run"), "--cache", address]) == 2
    assert message in capsys.readouterr().err


def test_a_workflow_ends_with_a_push(
    server: str, capsys: pytest.CaptureFixture[str], file: Path, cache: str, tmp_path: Path
) -> None:
    push = {
        "command": ["artefacts", "push", "${inputs.said}", f"{cache}/published", "--json"],
        "inputs": {"said": {"from": "a.said"}},
        "stdout": "said",
        "outputs": {"said": "pushed.json"},
    }
    write_workflow(file, {**STAGES, "publish": push})
    assert run(capsys, file, "run")[0]["publish"] == "done"
    record = json.loads((tmp_path / "run" / "results" / "publish" / "pushed.json").read_text())
    words = ["pull", f"{cache}/published", str(tmp_path / "said.json"), "--sha256", record["content_sha256"]]
    assert main(["artefacts", *words]) == 0
    assert (tmp_path / "said.json").read_bytes() == outputs(file, "run")["a/said.json"]


@pytest.mark.parametrize("address", ["file:///home/user/x", "/home/user/x", "../x"])
def test_a_stage_pushes_to_no_folder_of_its_computer(
    capsys: pytest.CaptureFixture[str], file: Path, address: str
) -> None:
    stage = {"command": ["artefacts", "push", "${inputs.a}", address], "inputs": {"a": {"path": "a.json"}}}
    write_workflow(file, {"publish": {**stage, "stdout": "said", "outputs": {"said": "pushed.json"}}})
    assert main(["workflow", "lint", str(file)]) == 1
    assert "leads out of the stage's folder" in capsys.readouterr().out
