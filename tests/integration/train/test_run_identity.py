"""The promise: a verdict and a bundle name the run that made the policy, and what was changed in between is refused."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from physai.gates.record import RecordError, rederive
from physai.sdk.base.errors import CheckpointError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.process.software import IMAGE_VARIABLE, running_software
from physai.sdk.bundle.archive import MANIFEST_FILE, BundleError, write_archive
from physai.sdk.bundle.manifest import ManifestFacts, pack, read_bundle
from physai.sdk.cli.main import main
from physai.sdk.evidence.latency import LatencyEvidence, save_evidence
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import load_verdict, save_verdict
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PROVENANCE_PREFIX, PolicyError
from physai.sdk.policy.parity import SOURCE_KEY
from physai.sdk.policy.run_identity import FACTS_KEY, ID_KEY, SIGNATURE_KEY, named_run, sign_policy
from physai.train.runners.checkpoint import load_run
from physai.train.runs.identity import KEY_FILE

SMALL = ["--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2", "--iterations", "1"]
IMAGE = "sha256:" + "5" * 64
GATES = "engine: {episodes: 8}\nfalsification: {generations: 2, population: 8, seeds: 2, confirmations: 8}\n"
RUN_KEYS = (ID_KEY, FACTS_KEY, SIGNATURE_KEY)
Edit = Callable[[dict[str, str]], None]

onnx_helper: Any = onnx


def physai(*words: str | Path, code: int = 0) -> None:
    assert main([str(word) for word in words]) == code


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two exported runs, `a` and `b`, of which `a` was resumed with generators, in an image."""
    folder = tmp_path_factory.mktemp("runs")
    for name, seed in (("a", "0"), ("b", "1")):
        physai("train", "cartpole-swingup", *SMALL, "--seed", seed, "--out", folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(IMAGE_VARIABLE, IMAGE)
        physai("train", "--resume", folder / "a", "--iterations", "2", "--generators", "1")
    for name in "ab":
        physai("export", folder / name, "--states", "20")
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def policy_of(run: Path) -> Path:
    return run / "export" / "policy.onnx"


def config_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())


def provenance_of(policy: Path) -> dict[str, str]:
    return check_policy(policy.read_bytes(), source="it").provenance


def edited(policy: Path, edit: Edit) -> bytes:
    """A policy file with other provenance, written by the onnx package."""
    model = onnx_helper.load(str(policy))
    entries = {entry.key: entry.value for entry in model.metadata_props}
    edit(entries)
    onnx_helper.helper.set_model_props(model, entries)
    return model.SerializeToString()


def pasted(source: dict[str, str], keys: tuple[str, ...]) -> Edit:
    return lambda entries: entries.update({PROVENANCE_PREFIX + key: source[key] for key in keys})


@pytest.mark.slow
def test_the_id_is_the_hash_of_what_the_run_was_started_with(runs: Path) -> None:
    text = config_of(runs / "a")["run"]
    facts = json.loads(text)
    assert provenance_of(policy_of(runs / "a"))[ID_KEY] == sha256(text.encode()).hexdigest()
    assert facts["seed"] == "0"
    assert facts["contract"] == load_run(runs / "a").task.contract.fingerprint
    assert facts["software"] == running_software().model_dump()
    settings = config_of(runs / "a")["config"]
    assert facts["settings"] == sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    # The key makes runs of equal settings different, and is for the owner's eyes.
    assert (runs / "a" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    key = Ed25519PrivateKey.from_private_bytes((runs / "a" / KEY_FILE).read_bytes())
    assert facts["public_key"] == key.public_key().public_bytes_raw().hex()


@pytest.mark.slow
def test_a_resumed_session_is_in_the_provenance(runs: Path) -> None:
    told = provenance_of(policy_of(runs / "a"))
    assert told["generators"] == "none, 1"
    assert told["image"] == f"none, {IMAGE}"
    assert told["version.torch"] == load_run(runs / "b").provenance["version.torch"]
    assert "generators" not in provenance_of(policy_of(runs / "b"))
    # Under the circumstances of an earlier session, nothing is added.
    before = (runs / "a" / "config.json").read_bytes()
    physai("train", "--resume", runs / "a", "--iterations", "3")
    assert (runs / "a" / "config.json").read_bytes() == before


def ticks(policy: Path) -> LatencyEvidence:
    data = policy.read_bytes()
    contract = check_policy(data, source=str(policy)).contract
    return LatencyEvidence(
        policy_sha256=sha256(data).hexdigest(),
        contract_fingerprint=contract.fingerprint,
        origin=Origin(kind="robot", robot=contract.robot.name),
        device="bench",
        runtime="none",
        tick_s=(0.001,) * 10_000,
    )


def drop_signature(entries: dict[str, str]) -> None:
    del entries[PROVENANCE_PREFIX + SIGNATURE_KEY]


def write_signature_otherwise(entries: dict[str, str]) -> None:
    entries[PROVENANCE_PREFIX + SIGNATURE_KEY] = " " + entries[PROVENANCE_PREFIX + SIGNATURE_KEY].upper()


def change_seed(entries: dict[str, str]) -> None:
    entries[PROVENANCE_PREFIX + "seed"] = "7"


def change_fact(entries: dict[str, str]) -> None:
    entries[PROVENANCE_PREFIX + FACTS_KEY] = entries[PROVENANCE_PREFIX + FACTS_KEY].replace('"seed":"0"', '"seed":"7"')


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change_seed, "did not sign these bytes"),
        (change_fact, "its facts are those of"),
        (drop_signature, "without its signature"),
        (write_signature_otherwise, "did not sign these bytes"),
    ],
)
def test_a_policy_whose_provenance_was_edited_is_refused(runs: Path, edit: Edit, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        check_policy(edited(policy_of(runs / "a"), edit), source="policy.onnx")


@pytest.mark.parametrize("keys", [RUN_KEYS, (ID_KEY, FACTS_KEY), (ID_KEY,), (SIGNATURE_KEY,)])
def test_a_policy_with_the_provenance_of_another_run_is_refused(runs: Path, keys: tuple[str, ...]) -> None:
    victim = provenance_of(policy_of(runs / "b"))
    with pytest.raises(PolicyError):
        check_policy(edited(policy_of(runs / "a"), pasted(victim, keys)), source="policy.onnx")


def test_a_signature_takes_the_key_of_the_run(runs: Path) -> None:
    victim = provenance_of(policy_of(runs / "b"))

    def paste(entries: dict[str, str]) -> None:
        pasted(victim, (ID_KEY, FACTS_KEY))(entries)
        drop_signature(entries)

    # An attacker has the key of their own run only.
    own = load_run(runs / "a").key
    assert own is not None
    with pytest.raises(PolicyError, match="did not sign these bytes"):
        check_policy(sign_policy(edited(policy_of(runs / "a"), paste), own), source="policy.onnx")


def test_another_graph_under_the_same_metadata_is_refused(runs: Path) -> None:
    model = onnx_helper.load(str(policy_of(runs / "a")))
    weight = next(tensor for tensor in model.graph.initializer if tensor.data_type == 1 and len(tensor.dims) == 2)
    values = onnx_helper.numpy_helper.to_array(weight).copy()
    values[0, 0] = np.nextafter(values[0, 0], np.float32(np.inf))
    weight.CopyFrom(onnx_helper.numpy_helper.from_array(values, weight.name))
    with pytest.raises(PolicyError, match="did not sign these bytes"):
        check_policy(model.SerializeToString(), source="policy.onnx")


def test_a_policy_from_which_the_run_was_removed_names_none(runs: Path) -> None:
    def remove(entries: dict[str, str]) -> None:
        for key in RUN_KEYS:
            del entries[PROVENANCE_PREFIX + key]

    header = check_policy(edited(policy_of(runs / "a"), remove), source="it")
    assert named_run(header, source="it") is None


def test_a_quantised_policy_is_tied_to_the_run_by_its_own_statement(runs: Path) -> None:
    """As the documentation says: anyone with the float policy can write its run into another graph of its contract."""
    victim = policy_of(runs / "b")
    digest = sha256(victim.read_bytes()).hexdigest()

    def claim(entries: dict[str, str]) -> None:
        pasted(provenance_of(victim), (ID_KEY, FACTS_KEY))(entries)
        drop_signature(entries)
        entries[PROVENANCE_PREFIX + SOURCE_KEY] = digest

    made = check_policy(edited(policy_of(runs / "a"), claim), source="it")
    original = check_policy(victim.read_bytes(), source="it")
    run = named_run(made, source="it", original=(original, digest))
    assert run is not None
    assert run.id == original.provenance[ID_KEY]
    assert named_run(made, source="it") is None


def test_a_policy_that_was_read_and_written_again_is_still_that_of_its_run(runs: Path) -> None:
    data = edited(policy_of(runs / "a"), lambda entries: None)
    assert check_policy(data, source="it").provenance == provenance_of(policy_of(runs / "a"))


def replace_run(runs: Path, *files: str) -> None:
    for name in files:
        shutil.copy(runs / "b" / name, runs / "a" / name)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["config.json"], "is of the run .* of the run"),
        (["config.json", KEY_FILE], "is of the run .* of the run"),
        (["checkpoint.pt"], "is of the run .* of the run"),
        ([KEY_FILE], "is the key .* of another run"),
    ],
)
def test_a_run_folder_with_files_of_another_run_is_refused(runs: Path, files: list[str], message: str) -> None:
    replace_run(runs, *files)
    with pytest.raises(CheckpointError, match=message):
        load_run(runs / "a")
    physai("train", "--resume", runs / "a", "--iterations", "3", code=2 if files != [KEY_FILE] else 0)


def test_settings_that_were_edited_are_refused(runs: Path) -> None:
    document = config_of(runs / "a")
    document["config"]["seed"] = 5
    (runs / "a" / "config.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="the settings have SHA-256"):
        load_run(runs / "a")


def test_without_its_key_a_run_exports_a_policy_that_names_none(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (runs / "a" / KEY_FILE).unlink()
    physai("export", runs / "a", "--states", "20")
    assert "run.key is missing" in caplog.text
    assert not {*RUN_KEYS} & provenance_of(policy_of(runs / "a")).keys()


def test_a_quantised_policy_is_proven_by_its_float_policy(runs: Path) -> None:
    def header(policy: Path) -> Any:
        return check_policy(policy.read_bytes(), source=str(policy))

    a, b = policy_of(runs / "a"), policy_of(runs / "b")
    own = header(a)
    physai(
        "policy",
        "quantize",
        runs / "a",
        "--states",
        "1000",
        "--episodes",
        "8",
        "--skip-paired-evaluation",
        "--skip-tensorrt",
    )
    made = header(a.with_name("policy.int8.onnx"))
    digests = {path: sha256(path.read_bytes()).hexdigest() for path in (a, b)}
    run = named_run(made, source="it", original=(own, digests[a]))
    assert run is not None
    assert run.id == own.provenance[ID_KEY]
    assert named_run(made, source="it") is None
    with pytest.raises(PolicyError, match="was made from"):
        named_run(made, source="it", original=(header(b), digests[b]))
    # The victim's run pasted in, with the hash of the attacker's float policy.
    made.provenance.update({key: header(b).provenance[key] for key in (ID_KEY, FACTS_KEY)})
    assert made.provenance[SOURCE_KEY] == digests[a]
    with pytest.raises(PolicyError, match="its float policy the run"):
        named_run(made, source="it", original=(own, digests[a]))


def test_a_bundle_whose_manifest_names_another_run_is_refused(runs: Path) -> None:
    export = runs / "a" / "export"
    members = {name: (export / name).read_bytes() for name in ("policy.onnx", "golden.npz")}
    bundle = read_bundle(pack(members, ManifestFacts(version=1, created=datetime(2026, 1, 1, tzinfo=UTC))))
    assert bundle.run == provenance_of(policy_of(runs / "a"))[ID_KEY]
    victim = provenance_of(policy_of(runs / "b"))
    manifest = bundle.manifest.model_copy(
        update={"provenance": {**bundle.manifest.provenance, **{key: victim[key] for key in RUN_KEYS}}}
    )
    contents = {name: bundle.members[name] for name in bundle.members}
    with pytest.raises(BundleError, match=r"the manifest states run\.id"):
        read_bundle(write_archive({**contents, MANIFEST_FILE: canonical_json(manifest)}))


@pytest.mark.slow
def test_a_verdict_names_the_run_wherever_it_is_made(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = provenance_of(policy_of(runs / "a"))[ID_KEY]
    other = runs.parent / "other computer"
    other.mkdir()
    shutil.copytree(runs / "a" / "export", other / "export")
    shutil.rmtree(runs / "a")
    (other / "gates.yaml").write_text(GATES)
    save_evidence(ticks(other / "export" / "policy.onnx"), other / "ticks.json")
    options = ("--gates", other / "gates.yaml", "--latency", other / "ticks.json", "--report", other / "report")
    physai("sim", "validate", other / "export", *options, code=2)
    assert f"run       {stated}\n" in capsys.readouterr().out
    verdict = load_verdict(other / "report")
    assert verdict.run == stated
    assert verdict.software == running_software()
    for name in ("report.html", "junit.xml"):
        assert stated in (other / "report" / name).read_text()

    members = {name: (other / "export" / name).read_bytes() for name in ("policy.onnx", "golden.npz")}
    assert rederive(other / "report", members, replays=1).run == stated
    save_verdict(
        verdict.model_copy(update={"run": provenance_of(policy_of(runs / "b"))[ID_KEY]}),
        other / "report" / "verdict.json",
    )
    with pytest.raises(RecordError, match="states run"):
        rederive(other / "report", members, replays=1)
    save_verdict(verdict.model_copy(update={"run": None}), other / "report" / "verdict.json")
    with pytest.raises(RecordError, match="states run None"):
        rederive(other / "report", members, replays=1)
