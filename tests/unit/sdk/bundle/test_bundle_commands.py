"""`physai keys` and `physai bundle` as a user runs them: new keys, a bundle a robot accepts, and then does not."""

import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli import bundle as bundle_verb
from physai.sdk.cli import keys as keys_verb
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.evidence.latency import LatencyEvidence, load_evidence, save_evidence
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.verdict import load_verdict, save_verdict, utc_text
from physai.sdk.signing.ed25519 import load_private_key
from physai.sdk.signing.evidence import vouched_origin
from physai.sdk.signing.exam import JOURNAL_FILE, ExamSubject, open_exam
from physai.sdk.signing.files import rederivation as verdicts
from physai.sdk.signing.files.user_keys import trusted_validators
from physai.sdk.signing.trust_file import SignedTrust

Workshop = Any
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a verb in an empty folder; returns exit code and output."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(verb: str, *words: object) -> tuple[int, str]:
        command = {"keys": keys_verb, "bundle": bundle_verb}[verb].command
        parser = Parser(prog=f"physai {verb}")
        command.add_arguments(parser)
        capsys.readouterr()
        code = command.run(parser.parse([str(word) for word in words]))
        return code, capsys.readouterr().out

    return run


def test_ticks_are_signed_by_who_measured_them(say: Say, tmp_path: Path) -> None:
    of = Origin(kind="robot", robot="arm/one")
    ticks = LatencyEvidence(
        policy_sha256="a" * 64, contract_fingerprint="b" * 64, origin=of, device="bench", runtime="none", tick_s=(0.1,)
    )
    save_evidence(ticks, tmp_path / "latency.json")
    with pytest.raises(PhysaiError, match=r"validator.key: no such key; make keys"):
        say("keys", "ticks", "latency.json")
    say("keys", "init")
    with pytest.raises(PhysaiError, match="is a publisher's key, but a validator's key is needed"):
        say("keys", "ticks", "latency.json", "--key", tmp_path / "config/physai/keys/publisher.key")
    assert "1 ticks from the robot arm/one, signed by" in say("keys", "ticks", "latency.json")[1]
    signed = load_evidence(tmp_path / "latency.json")
    known = trusted_validators(None)
    assert (signed.sha256, len(known)) == (ticks.sha256, 1)
    assert vouched_origin(of, "latency", signed.sha256, signed.signature, known) == of
    say("keys", "revoke", known[0].key_id, "--reason", "lost")
    assert vouched_origin(of, "latency", signed.sha256, signed.signature, trusted_validators(None)).kind == "unknown"


@pytest.fixture
def export(tmp_path: Path, workshop: Workshop) -> Path:
    folder = tmp_path / "run" / "export"
    folder.mkdir(parents=True)
    for name, data in workshop.members().items():
        (folder / name).write_bytes(data)
    return folder.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where keys lie by default."""
    return tmp_path / "config" / "physai" / "keys"


@pytest.fixture
def verdict(
    tmp_path: Path, workshop: Workshop, make_verdict: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A verdict on the exported policy, made a moment ago; in the simulator's place, it is derived by reading it."""
    made = make_verdict(workshop.unsigned(), created=utc_text(datetime.now(UTC)))
    save_verdict(made, tmp_path / "verdict.json")

    def read(report: Path, members: object, **options: object) -> Any:
        return load_verdict(report)

    class Entry:
        load = staticmethod(lambda: read)

    def found(group: str) -> dict[str, Entry]:
        return {"sim": Entry()}

    monkeypatch.setattr(verdicts, "contributions", found)
    return tmp_path / "verdict.json"


def test_from_keys_to_a_revoked_bundle(say: Say, export: Path, verdict: Path, folder: Path, tmp_path: Path) -> None:
    assert say("keys", "init", "--label", "build machine")[0] == 0
    code, text = say("bundle", "pack", export, "--sign", "-o", "p.physai")
    assert code == 0
    assert "signed by    publisher" in text
    code, text = say("bundle", "verify", "p.physai")
    assert code == 1
    assert text.startswith("REFUSED by pendulum: no-verdict: ")
    assert say("bundle", "verify", "p.physai", "--no-verdict")[0] == 0
    code, text = say("bundle", "sign", "p.physai", "--verdict", verdict, "--days", "7")
    assert code == 0
    assert "validator" in text
    code, text = say("bundle", "verify", "p.physai", "--robot", "pendulum/cell-3")
    assert (code, text.splitlines()[-1]) == (0, "ACCEPTED by pendulum/cell-3")
    code, text = say("keys", "rotate", folder / "publisher.key")
    assert code == 0
    assert "publisher: 1 of 2 must sign" in text
    assert say("bundle", "verify", "p.physai")[0] == 0
    old = json.loads((folder / "publisher.pub").read_text())["key_id"]
    assert say("keys", "revoke", old[:10], "--reason", "stolen laptop")[0] == 0
    code, text = say("bundle", "verify", "p.physai")
    assert code == 1
    assert "stolen laptop" in text
    new = folder / "publisher-2.key"
    assert say("bundle", "sign", "p.physai", "--key", new)[0] == 0
    assert "REFUSED by pendulum: revoked" in say("bundle", "verify", "p.physai")[1]
    assert say("bundle", "sign", "p.physai", "--key", new, "--replace")[0] == 0
    assert say("bundle", "verify", "p.physai")[0] == 0


def test_pack_and_sign_everything_at_once(say: Say, export: Path, verdict: Path) -> None:
    say("keys", "init")
    code, text = say("bundle", "pack", export, "--sign", "--verdict", verdict.parent, "--robot", "pendulum/7", "--json")
    record = json.loads(text)
    assert code == 0
    assert record["file"] == "swingup.physai"
    assert record["verdict"]["robot"] == "pendulum/7"
    assert say("bundle", "verify", "swingup.physai", "--robot", "pendulum/7")[0] == 0
    assert say("bundle", "verify", "swingup.physai", "--robot", "pendulum/8")[0] == 1


def test_builds_can_be_repeated(say: Say, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say("bundle", "pack", export, "-o", "a", "--created", "2026-11-21T12:00:00Z")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795262400")
    say("bundle", "pack", export / "export" / "policy.onnx", "-o", "b")
    assert Path("a").read_bytes() == Path("b").read_bytes()
    assert read_bundle(Path("a")).manifest.version == 1795262400
    say("bundle", "pack", export, "-o", "c", "--version", "7", "--note", "first try")
    manifest = read_bundle(Path("c")).manifest
    assert (manifest.version, manifest.provenance["note"]) == (7, "first try")


def test_verify_as_a_robot_at_another_time(say: Say, export: Path, verdict: Path) -> None:
    say("keys", "init")
    say("bundle", "pack", export, "--sign", "--verdict", verdict, "--version", "5")
    for words, rule in (
        (["--at", "2099-01-01T00:00:00Z"], "expired"),
        (["--at", "1970-01-01T00:00:00Z"], "clock"),
        (["--floor", "6"], "version"),
        (["--robot", "go2"], "robot"),
    ):
        code, text = say("bundle", "verify", "swingup.physai", "--json", *words)
        assert code == 1
        record = json.loads(text)
        assert (record["accepted"], record["rule"]) == (False, rule)
    record = json.loads(say("bundle", "verify", "swingup.physai", "--json", "--floor", "5")[1])
    assert (record["accepted"], record["policy"], record["version"]) == (True, "policy.onnx", 5)


def test_a_damaged_bundle_is_refused_not_crashed_on(say: Say, export: Path) -> None:
    say("keys", "init")
    Path("p").write_bytes(b"junk")
    code, text = say("bundle", "verify", "p")
    assert code == 1
    assert text.startswith("REFUSED by any robot: archive: ")
    with pytest.raises(PhysaiError, match="not a bundle"):
        say("bundle", "inspect", "p")


def test_inspect_shows_everything(say: Say, export: Path, verdict: Path, folder: Path) -> None:
    say("keys", "init")
    say("bundle", "pack", export, "--sign", "--verdict", verdict)
    code, text = say("bundle", "inspect", "swingup.physai", "--bom", "bom.json")
    bundle = read_bundle(Path("swingup.physai"))
    assert code == 0
    for expected in (
        bundle.id,
        bundle.sha256,
        "swingup on pendulum",
        "golden.npz",
        "seed",
        "success_rate 0.96",
        "PASS",
    ):
        assert expected in text
    for role in ("publisher", "validator"):
        assert json.loads((folder / f"{role}.pub").read_text())["key_id"] in text
    record = json.loads(say("bundle", "inspect", "swingup.physai", "--json")[1])
    assert record["members"]["policy.onnx"]["sha256"] == bundle.members.sha256("policy.onnx")
    assert record["verdict"]["verdict"]["outcome"] == "PASS"
    assert json.loads(Path("bom.json").read_text())["bomFormat"] == "CycloneDX"


def test_nothing_in_a_bundle_steers_the_terminal(say: Say, export: Path) -> None:
    say("bundle", "pack", export, "--note", "\x1b[31mred\u202e")
    text = say("bundle", "inspect", "swingup.physai")[1]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_diff(say: Say, export: Path) -> None:
    say("bundle", "pack", export, "-o", "a", "--version", "1", "--created", "2026-11-21T12:00:00Z")
    say("bundle", "pack", export, "-o", "b", "--version", "2", "--created", "2026-11-21T12:00:00Z")
    assert say("bundle", "diff", "a", "a")[0] == 0
    code, text = say("bundle", "diff", "a", "b")
    assert code == 1
    assert text.splitlines() == ["a and b differ:", "  manifest version: 1 in a, 2 in b"]
    record = json.loads(say("bundle", "diff", "a", "b", "--json")[1])
    assert record["differences"] == [{"where": "manifest version", "left": "1", "right": "2"}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pack", "nowhere"], "physai export"),
        (["pack", "run", "--variants", "int9"], "did you mean int8"),
        (["pack", "run", "--created", "today"], "expected UTC as"),
        (["pack", "run", "--sign"], "make keys with: physai keys init"),
        (["pack", "run", "--version", "-1"], "version"),
        (["pack", "run", "-o", "missing/p"], "cannot be written"),
        (["pack", "run", "--verdict", "verdict.json"], "make keys with"),
        (["sign", "nothing.physai"], "cannot be read"),
        (["verify", "nothing.physai"], "cannot be read"),
        (["inspect", "run"], "cannot be read"),
    ],
)
def test_bad_input_is_one_message(say: Say, export: Path, words: list[str], message: str) -> None:
    with pytest.raises(PhysaiError, match=message):
        say("bundle", *words)


def test_a_key_signs_in_its_role_only(say: Say, export: Path, verdict: Path, folder: Path) -> None:
    say("keys", "init")
    say("bundle", "pack", export)
    with pytest.raises(PhysaiError, match="never share a key"):
        say("bundle", "sign", "swingup.physai", "--key", folder / "validator.key")
    with pytest.raises(PhysaiError, match="only a validator can sign"):
        say("bundle", "sign", "swingup.physai", "--role", "publisher", "--verdict", verdict)
    with pytest.raises(PhysaiError, match="a validator signs a verdict: give --verdict DIR"):
        say("bundle", "sign", "swingup.physai", "--role", "validator")


def test_encrypted_keys(say: Say, export: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery\n")
    secret.chmod(0o600)
    say("keys", "init", "--passphrase-file", secret)
    with pytest.raises(PhysaiError, match="give --passphrase-file"):
        say("bundle", "pack", export, "--sign")
    assert say("bundle", "pack", export, "--sign", "--passphrase-file", secret)[0] == 0
    secret.chmod(0o644)
    with pytest.raises(PhysaiError, match="a passphrase file must be 0600"):
        say("bundle", "pack", export, "--sign", "--passphrase-file", secret)


def test_new_keys_are_private_and_never_overwritten(say: Say, folder: Path) -> None:
    say("keys", "init")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {
        "owner.key": 0o600,
        "owner.pub": 0o644,
        "publisher.key": 0o600,
        "validator.key": 0o600,
        "publisher.pub": 0o644,
        "validator.pub": 0o644,
        "trust.json": 0o644,
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with pytest.raises(PhysaiError, match="exists; name another folder"):
        say("keys", "init")


def test_a_robots_trust_file_is_made_of_public_keys(say: Say, tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        say("keys", "init", name, "--label", name)
    owner = ("--owner-key", "alice/owner.key", "--trust", "robot.json")
    keys = ("alice/owner.pub", "alice/publisher.pub", "bob/publisher.pub", "alice/validator.pub")
    with pytest.raises(PhysaiError, match=r"owner.key: no such key; an owner signs every change"):
        say("keys", "trust", *keys, "--trust", "robot.json")
    assert say("keys", "trust", *keys, *owner)[0] == 0
    assert say("keys", "trust", "--threshold", "publisher=2", *owner)[0] == 0
    store = SignedTrust.load("robot.json").check()
    assert [key.label for key in store.keys] == ["alice", "alice", "bob", "alice"]
    assert (store.threshold("publisher"), store.threshold("validator")) == (2, 1)
    text = say("keys", "list", "--trust", "robot.json")[1]
    assert "publisher: 2 of 2 must sign" in text
    say("keys", "revoke", "bob/publisher.pub", "--reason", "left", *owner)
    assert "1 must sign: too few keys, nothing can be accepted" in say("keys", "list", "--trust", "robot.json")[1]
    assert json.loads(say("keys", "list", "--json", "--trust", "robot.json")[1])["revoked"][0]["reason"] == "left"
    assert "is unchanged" in say("keys", "trust", "alice/validator.pub", "--trust", "robot.json")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trust"], "nothing to change"),
        (["trust", "--threshold", "publisher=0"], "give 1 to 1"),
        (["trust", "--threshold", "root=1"], "give ROLE=N"),
        (["trust", "--threshold", "publisher=²"], "give ROLE=N"),
        (["trust", "config/physai/keys/publisher.key"], "is a private key"),
        (["revoke", "0000", "--reason", "x"], "matches 0 keys"),
        (["revoke", "", "--reason", "x"], "matches 3 keys"),
        (["revoke", "0" * 64, "--reason", ""], "reason"),
        (["rotate", "nothing.key"], "cannot be read"),
        (["list", "--trust", "nothing"], "cannot be read"),
        (["init", "other", "--label", "é"], "printable ASCII"),
    ],
)
def test_bad_keys_input_is_one_message(say: Say, words: list[str], message: str) -> None:
    say("keys", "init")
    with pytest.raises(PhysaiError, match=message):
        say("keys", *words)


def test_a_signed_verdict_says_how_many_exams_were_opened(
    say: Say, export: Path, folder: Path, verdict: Path, workshop: Workshop
) -> None:
    say("keys", "init")
    say("bundle", "pack", export, "--sign", "-o", "it.physai")
    rehearsal = load_verdict(verdict)
    subject = ExamSubject(
        policies={"policy": rehearsal.policy_sha256},
        contract=rehearsal.contract_fingerprint,
        twin=rehearsal.twin_hash,
        settings=rehearsal.gates_sha256,
    )
    key, now = load_private_key(folder / "validator.key"), datetime.now(UTC)
    exams = [open_exam(subject, key, folder / JOURNAL_FILE, now=now) for _ in range(3)]
    save_verdict(rehearsal.model_copy(update={"exam": exams[1].facts}), verdict)
    say("bundle", "sign", "it.physai", "--verdict", verdict)
    assert ", exam 2 of 3" in say("bundle", "inspect", "it.physai")[1]
    # Whoever loses the count cannot say it.
    (folder / JOURNAL_FILE).write_bytes(b"")
    with pytest.raises(PhysaiError, match="does not have the exam"):
        say("bundle", "sign", "it.physai", "--verdict", verdict, "--replace")
    save_verdict(rehearsal, verdict)
    say("bundle", "sign", "it.physai", "--verdict", verdict, "--replace")
    assert ", rehearsal" in say("bundle", "inspect", "it.physai")[1]
