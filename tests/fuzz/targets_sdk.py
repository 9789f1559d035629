"""The parsers of `physai.sdk`."""

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml
from tests.fuzz.target import Target
from tests.harness.fixtures.sample import SampleSigners, sample_contract, sample_policy

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.onnx_metadata import parse_onnx_metadata
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.bundle.archive import MANIFEST_FILE, VERDICT_FILE, read_archive, write_archive
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.contract.io import parse_contract
from physai.sdk.evidence.latency import LatencyEvidence, load_evidence
from physai.sdk.evidence.verdict import parse_verdict
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.golden import GOLDEN_FILE, read_golden
from physai.sdk.policy.header import POLICY_FILE, parse_header
from physai.sdk.signing.attestation import parse_envelope, parse_verdict_statement
from physai.sdk.signing.ed25519 import SigningKey, load_private_key, load_public_key, save_private_key, save_public_key
from physai.sdk.signing.trust_file import SignedTrust

_ROOM = tempfile.TemporaryDirectory(prefix="physai-fuzz-")
FOLDER = Path(_ROOM.name)
"""Where inputs lie for what reads files; removed when the process ends."""


def from_file(name: str, parse: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A parser of files as one of bytes."""

    def parse_bytes(data: bytes) -> object:
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
        return parse(path)

    return parse_bytes


@cache
def workshop() -> SampleSigners:
    return SampleSigners()


@cache
def bundle() -> bytes:
    return workshop().bundle(5)


@cache
def _member(name: str) -> bytes:
    return bytes(read_archive(bundle())[name])


def _manifest(data: bytes) -> object:
    """A manifest in a bundle: whatever it says, its archive is sound."""
    members = read_archive(bundle())
    return read_bundle(write_archive({**{name: members[name] for name in members}, MANIFEST_FILE: data}))


def _policy(data: bytes) -> object:
    return parse_header(parse_onnx_metadata(data, source="policy"), source="policy")


@cache
def _header_of_sample() -> object:
    return _policy(sample_policy()[POLICY_FILE])


def _golden(data: bytes) -> object:
    from typing import cast

    from physai.sdk.policy.header import PolicyHeader

    return read_golden(data, cast("PolicyHeader", _header_of_sample()))


def _metadata(data: bytes) -> object:
    """The metadata of a policy as a JSON object of texts, so that the mutator can reach into them."""
    try:
        entries = json.loads(data)
        texts = {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in entries.items()}
    except (ValueError, AttributeError, RecursionError):
        return None
    return parse_header(texts, source="metadata")


def _metadata_seed() -> bytes:
    entries = parse_onnx_metadata(sample_policy()[POLICY_FILE], source="policy")
    return json.dumps({k: json.loads(v) if v[:1] == "{" else v for k, v in entries.items()}).encode()


def _payload() -> bytes:
    return parse_envelope(_member(VERDICT_FILE), source="verdict").payload


def _evidence() -> bytes:
    evidence = LatencyEvidence(
        policy_sha256="0" * 64, contract_fingerprint="1" * 64, device="here", runtime="none", tick_s=(0.001, 0.002)
    )
    return canonical_json(evidence)


def _keys() -> tuple[bytes, bytes, bytes]:
    paths = [FOLDER / name for name in ("plain.key", "locked.key", "made.pub")]
    for path in paths:
        path.unlink(missing_ok=True)
    key = SigningKey.generate()
    save_private_key(key, paths[0], passphrase=None)
    save_private_key(key, paths[1], passphrase="correct horse battery")
    save_public_key(key.public_key("publisher"), paths[2])
    plain, locked, public = (path.read_bytes() for path in paths)
    return plain, locked, public


def _trust() -> bytes:
    return workshop().signed().encode()


TARGETS = (
    Target("archive", lambda data: [read_archive(data)], lambda: [bundle()]),
    Target("bundle", read_bundle, lambda: [bundle(), workshop().bundle(6)]),
    Target("manifest", _manifest, lambda: [_member(MANIFEST_FILE)]),
    Target("trust", lambda data: SignedTrust.parse(data, source="trust"), lambda: [_trust()]),
    Target("verdict", lambda data: parse_verdict(data, source="verdict"), lambda: [_verdict()]),
    Target("envelope", lambda data: parse_envelope(data, source="envelope"), lambda: [_member(VERDICT_FILE)]),
    Target("statement", lambda data: parse_verdict_statement(data, source="statement"), lambda: [_payload()]),
    Target(
        "contract",
        lambda data: parse_contract(data, source="contract"),
        lambda: [canonical_json(sample_contract()), _pendulum()],
    ),
    Target("onnx", _policy, lambda: [sample_policy()[POLICY_FILE]]),
    Target("graph", lambda data: check_policy(data, source="policy"), lambda: [sample_policy()[POLICY_FILE]]),
    Target("metadata", _metadata, lambda: [_metadata_seed()]),
    Target("golden", _golden, lambda: [sample_policy()[GOLDEN_FILE]]),
    Target("evidence", from_file("evidence.json", load_evidence), lambda: [_evidence()]),
    Target(
        "private-key",
        from_file("private.key", lambda path: load_private_key(path, passphrase=lambda _: "correct horse battery")),
        lambda: _keys()[:2],
        weight=0.1,
    ),
    Target("public-key", from_file("public.pub", load_public_key), lambda: _keys()[2:]),
    Target(
        "yaml",
        from_file("any.yaml", lambda path: read_yaml(path, what="a file", max_bytes=1 << 18, error=PhysaiError)),
        lambda: [yaml.safe_dump({"a": [1, 2.5, "x", None, True], "b": {"c": "2020-01-01", "d": "on"}}).encode()],
        weight=0.1,
        max_s=5.0,
    ),
)


def _verdict() -> bytes:
    return json.dumps(json.loads(_payload())["predicate"]["verdict"]).encode()


def _pendulum() -> bytes:
    return (Path(__file__).parents[1] / "unit/sdk/contract/pendulum.contract.json").read_bytes()
