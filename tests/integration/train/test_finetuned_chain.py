"""The promise: from the run folder to the robot, a policy carries what preferences changed it and from what."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.reward_model.ensemble import load_ensemble
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.main import main
from physai.sdk.evidence.preferences import preference_entries
from physai.sdk.evidence.verdict import load_verdict
from physai.sdk.onnx.graph import check_policy
from physai.service.serving.process import running_service

SMALL = ("--num-envs", "16", "--set", "horizon=16", "--set", "minibatches=2", "--set", "hidden=8")
GATES = """
success: {max_episodes: 192}
non_inferiority: {max_episodes: 192}
engine: {episodes: 8}
falsification: {generations: 2, population: 8, seeds: 2, confirmations: 8}
"""

pytestmark = pytest.mark.slow


def physai(*words: str | Path, code: int = 0) -> None:
    assert main([str(word) for word in words]) == code


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned run that is exported; next to it the run that it came from, its answers and keys."""
    folder = tmp_path_factory.mktemp("chain")
    physai("train", "cartpole-swingup", "--out", folder / "run", "--iterations", "1", *SMALL)
    physai("preferences", "collect", folder / "run", "--out", folder / "answers.db", "--pairs", "20")
    physai("preferences", "answer", folder / "answers.db", "--simulated", "perfect", "--rater", "Ada Lovelace")
    words = ("--preferences", folder / "answers.db", "--out", folder / "tuned", "--iterations", "1")
    physai("finetune", folder / "run", *words)
    physai("export", folder / "tuned", "--states", "20")
    physai("keys", "init", folder / "keys")
    return folder / "tuned"


@pytest.fixture
def run(tuned: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(tuned, tmp_path / "tuned"))


def test_from_run_to_robot(tuned: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gates.yaml").write_text(GATES)
    # The nominal twin is not credible, so that nothing passes; the policy learned next to nothing anyway.
    main(["sim", "validate", str(run), "--gates", str(tmp_path / "gates.yaml"), "--report", str(tmp_path / "report")])
    shown = capsys.readouterr().out
    verdict = load_verdict(tmp_path / "report")
    stated = verdict.preferences
    assert stated is not None
    store = PreferenceStore(tuned.parent / "answers.db")
    assert stated.database == store.digest()
    store.close()
    assert stated.reward_model == load_ensemble(run / "reward_model.npz")[0].digest()
    assert stated.reference == sha256_hex((run / "reference" / "policy.onnx").read_bytes())
    # A simulated teacher does not pass for a person, whatever it is called.
    raters = json.dumps([stated.database, ["simulated-Ada Lovelace"]], separators=(",", ":"))
    assert stated.raters == sha256_hex(raters.encode())
    assert (stated.rater_count, stated.simulated) == (1, 1)
    assert all(one in shown for one in stated.entries.values() if len(one) == 64)
    gate = next(gate for gate in verdict.gates if gate.gate == "non-inferiority")
    assert gate.episodes > 0
    assert gate.measured[0].name == "drop.reference"
    assert (gate.measured[0].threshold, len(verdict.gates)) == (0.05, 10)
    physai("bundle", "pack", run, "-o", tmp_path / "b.physai", "--sign", "--key", tuned.parent / "keys/publisher.key")
    bundle = read_bundle(tmp_path / "b.physai")
    assert bundle.preferences == stated
    trust = ("--trust", tuned.parent / "keys" / "trust.json")
    physai("bundle", "verify", tmp_path / "b.physai", *trust, "--no-verdict")
    capsys.readouterr()
    physai("bundle", "inspect", tmp_path / "b.physai", "--card")
    card = capsys.readouterr().out
    assert all(one in card for one in stated.entries.values() if len(one) == 64)
    # Who answered stays in the database.
    folders = [run, tmp_path / "report"]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 10
    assert not [file for file in (*files, tmp_path / "b.physai") if b"Lovelace" in file.read_bytes()]


def test_a_service_gets_the_reference_too(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gates.yaml").write_text(GATES)
    words = ["sim", "validate", str(run), "--gates", str(tmp_path / "gates.yaml"), "--json"]
    with running_service(tmp_path / "data") as service:
        main([*words, "--report", str(tmp_path / "there"), "--server", service.url])
    there = json.loads(capsys.readouterr().out)
    assert there["preferences"]["reference"] == sha256_hex((run / "reference" / "policy.onnx").read_bytes())
    gate = next(gate for gate in there["gates"] if gate["gate"] == "non-inferiority")
    assert gate["measured"][0]["name"] == "drop.reference"


def left_out(entries: dict[str, str]) -> None:
    for name in preference_entries(entries):
        del entries[name]


def replaced(entries: dict[str, str]) -> None:
    entries["preferences.reference"] = "e" * 64


@pytest.mark.parametrize("edit", [left_out, replaced])
def test_an_edited_run_folder_exports_nothing(
    run: Path, edit: Callable[[dict[str, str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    config: dict[str, Any] = json.loads((run / "config.json").read_text())
    edit(config["provenance"])
    (run / "config.json").write_text(json.dumps(config))
    before = (run / "export" / "policy.onnx").read_bytes()
    capsys.readouterr()
    physai("export", run, "--states", "20", code=2)
    assert "entries were changed or left out" in capsys.readouterr().err
    assert (run / "export" / "policy.onnx").read_bytes() == before
    assert preference_entries(check_policy(before, source="it").provenance)


def test_without_the_run_folder_the_reference_must_be_given(
    tuned: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = Path(shutil.copytree(run / "export", tmp_path / "alone"))
    (tmp_path / "gates.yaml").write_text(GATES)
    words = ("sim", "validate", alone, "--gates", tmp_path / "gates.yaml", "--task", "cartpole-swingup")
    # The wrong one is refused before anything is played.
    physai("export", tuned.parent / "run", "--states", "20")
    shutil.copy(alone / "policy.onnx", tmp_path / "other.onnx")
    physai(*words, "--reference", tmp_path / "other.onnx", code=2)
    error = capsys.readouterr().err
    assert sha256_hex((tmp_path / "other.onnx").read_bytes()) in error
    assert sha256_hex((run / "reference" / "policy.onnx").read_bytes()) in error
    assert error.count("\n") == 1
    assert not (alone / "validation").exists()
