"""Bundles: reproducible, and only of parts that agree."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.bundle.archive import BundleError, write_archive
from physai.sdk.bundle.manifest import Manifest, ManifestFacts, attach, pack, read_bundle
from physai.sdk.contract.io import parse_contract
from physai.sdk.policy.header import PolicyError, PolicyHeader

Workshop = Any
"""Of conftest.py, which no test can import."""


def rewritten(data: bytes, **changes: bytes | None) -> bytes:
    """The bundle with members replaced or, by None, left out; `__` stands for a dot."""
    members: dict[str, bytes] = dict(read_bundle(data).members)
    for label, content in changes.items():
        name = label.replace("__", ".")
        if content is None:
            del members[name]
        else:
            members[name] = content
    return write_archive(members)


def remanifested(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The bundle with another manifest, in canonical JSON as far as it still is a manifest."""
    document = json.loads(read_bundle(data).members["manifest.json"])
    change(document)
    try:
        raw = canonical_json(Manifest.model_validate_json(json.dumps(document)))
    except ValueError:
        raw = json.dumps(document).encode()
    return rewritten(data, manifest__json=raw)


def test_equal_input_gives_equal_bytes(workshop: Workshop) -> None:
    members = workshop.members()
    facts = ManifestFacts(version=7, created=datetime(2026, 1, 2, 3, 4, 5, 999, tzinfo=timezone(timedelta(hours=1))))
    data = pack(members, facts)
    assert pack(dict(reversed(members.items())), facts) == data
    bundle = read_bundle(data)
    assert bundle.manifest.created == "2026-01-02T02:04:05Z"
    assert bundle.manifest.version == 7
    assert (bundle.manifest.robot, bundle.manifest.task) == ("pendulum", "swingup")
    assert bundle.manifest.provenance == {"seed": "7"}
    assert bundle.sha256 == sha256(data).hexdigest()
    assert bundle.id == sha256(bundle.members["manifest.json"]).hexdigest()
    assert bundle.digests["policy.onnx"] == sha256(members["policy.onnx"]).hexdigest()
    names = ["manifest.json", "contract.json", "policy.onnx", "golden.npz", "safety.json", "MODEL_CARD.md"]
    assert list(bundle.digests) == names


def test_contract_and_limits_come_from_the_policy(workshop: Workshop) -> None:
    bundle = read_bundle(workshop.unsigned())
    assert parse_contract(bundle.members["contract.json"], source="") == bundle.contract
    assert sha256(bundle.members["contract.json"]).hexdigest() == bundle.contract.fingerprint
    assert json.loads(bundle.members["safety.json"])["joints"][0]["effort_limit"] == 2.5


def test_variants_travel_with_the_policy(workshop: Workshop, make_onnx: Callable[..., bytes]) -> None:
    header = PolicyHeader(read_bundle(workshop.unsigned()).contract, {})
    variants = {
        "policy.fp8.onnx": make_onnx(header, graph=b"8888"),
        "policy.int8.onnx": make_onnx(header, graph=b"iiii"),
    }
    bundle = read_bundle(workshop.unsigned(variants=variants))
    assert bundle.policies == ("policy.onnx", "policy.int8.onnx", "policy.fp8.onnx")
    assert set(variants) < set(bundle.manifest.members)


def test_a_variant_of_another_contract_is_refused(workshop: Workshop, make_onnx: Callable[..., bytes]) -> None:
    other = workshop.unsigned(task="balance")
    variant = {"policy.int8.onnx": make_onnx(PolicyHeader(read_bundle(other).contract, {}))}
    with pytest.raises(BundleError, match=r"policy\.int8\.onnx has the contract .*quantise the same run"):
        workshop.unsigned(variants=variant)


def test_a_variant_with_other_memories_is_refused(workshop: Workshop, make_onnx: Callable[..., bytes]) -> None:
    header = PolicyHeader(read_bundle(workshop.unsigned()).contract, {"hidden": 4})
    with pytest.raises(BundleError, match="state sizes"):
        workshop.unsigned(variants={"policy.int8.onnx": make_onnx(header)})


def test_golden_states_of_another_policy_are_refused(workshop: Workshop) -> None:
    members = {**workshop.members(), "golden.npz": workshop.members(task="balance")["golden.npz"]}
    with pytest.raises(PolicyError, match="another contract"):
        pack(members, ManifestFacts(version=1, created=datetime.fromisoformat("2026-01-01T00:00:00Z")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"golden.npz": None}, "needs golden.npz"),
        ({"policy.onnx": None}, "needs policy.onnx"),
        ({"policy.onnx": b"junk"}, "not an ONNX model"),
        ({"golden.npz": b"junk"}, "damaged"),
        ({"contract.json": b"{}"}, "derived"),
        ({"verdict.dsse": b"{}"}, "added later"),
        ({"run.sh": b""}, "not a valid member name"),
    ],
)
def test_what_cannot_be_packed(workshop: Workshop, change: dict[str, bytes | None], message: str) -> None:
    members = {name: data for name, data in {**workshop.members(), **change}.items() if data is not None}
    with pytest.raises(PhysaiError, match=message):
        pack(members, ManifestFacts(version=1, created=datetime.fromisoformat("2026-01-01T00:00:00Z")))


@pytest.mark.parametrize("version", [-1, 2**53])
def test_versions_are_whole_numbers_that_json_keeps(workshop: Workshop, version: int) -> None:
    with pytest.raises(BundleError, match="version"):
        workshop.unsigned(version=version)


def test_a_time_without_a_zone_is_refused(workshop: Workshop) -> None:
    with pytest.raises(BundleError, match="time zone"):
        pack(workshop.members(), ManifestFacts(version=1, created=datetime(2026, 1, 1)))


def test_provenance_is_printable(workshop: Workshop) -> None:
    facts = ManifestFacts(
        version=1, created=datetime.fromisoformat("2026-01-01T00:00:00Z"), provenance={"note": "a\x1b[31mb\n"}
    )
    assert read_bundle(pack(workshop.members(), facts)).manifest.provenance["note"] == "a [31mb\n"


@pytest.mark.parametrize("name", ["contract__json", "policy__onnx", "golden__npz", "safety__json", "manifest__json"])
def test_every_part_is_needed_and_covered(complete: bytes, name: str) -> None:
    member = read_bundle(complete).members[name.replace("__", ".")]
    for content in (None, b"", member + b" ", member[:-1], bytes([member[0] ^ 1]) + member[1:]):
        with pytest.raises(BundleError):
            read_bundle(rewritten(complete, **{name: content}))


MISFITS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda m: m.update(format_version=2), "newer than format 1"),
    (lambda m: m.update(version=5.5), "version"),
    (lambda m: m.update(created="yesterday"), "created"),
    (lambda m: m.update(extra=1), "unknown field"),
    (lambda m: m.update(robot="go2"), "its contract is"),
    (lambda m: m.update(task="walk"), "its contract is"),
    (lambda m: m.update(contract_fingerprint="0" * 64), "its contract is"),
    (lambda m: m["members"].pop("golden.npz"), "not in the manifest"),
    (lambda m: m["members"].update({"policy.fp8.onnx": {"sha256": "0" * 64, "size": 1}}), "lacks policy.fp8.onnx"),
    (lambda m: m["members"].update({"verdict.dsse": {"sha256": "0" * 64, "size": 1}}), "list neither itself"),
    (lambda m: m["members"].update({"../x": {"sha256": "0" * 64, "size": 1}}), "members"),
    (lambda m: m["members"]["policy.onnx"].update(size=1), "the manifest says 1"),
    (lambda m: m["members"]["policy.onnx"].update(sha256="0" * 64), "the manifest says 000"),
]


@pytest.mark.parametrize(("change", "message"), MISFITS)
def test_manifests_that_do_not_fit(complete: bytes, change: Callable[[dict[str, Any]], object], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        read_bundle(remanifested(complete, change))


def relisted(data: bytes, name: str, content: bytes, **changes: Any) -> bytes:
    """The bundle with another member, which its manifest lists as it now is."""
    members = dict(read_bundle(data).members) | {name: content}
    document = json.loads(members["manifest.json"]) | changes
    document["members"][name] = {"sha256": sha256(content).hexdigest(), "size": len(content)}
    members["manifest.json"] = canonical_json(Manifest.model_validate_json(json.dumps(document)))
    return write_archive(members)


def test_json_has_one_form(complete: bytes) -> None:
    members = read_bundle(complete).members
    spaced = {name: json.dumps(json.loads(members[name])).encode() for name in ("manifest.json", "contract.json")}
    with pytest.raises(BundleError, match=r"manifest\.json is not in canonical JSON"):
        read_bundle(rewritten(complete, manifest__json=spaced["manifest.json"]))
    contract = spaced["contract.json"]
    fingerprint = sha256(contract).hexdigest()
    with pytest.raises(BundleError, match=r"contract\.json is not in canonical JSON"):
        read_bundle(relisted(complete, "contract.json", contract, contract_fingerprint=fingerprint))


def test_limits_are_those_of_the_contract(complete: bytes) -> None:
    """Whoever reads safety.json only must not read other limits than the guard keeps."""
    wider = read_bundle(complete).members["safety.json"].replace(b'"effort_limit":2.5', b'"effort_limit":25')
    with pytest.raises(BundleError, match="not the safety envelope of the contract"):
        read_bundle(relisted(complete, "safety.json", wider))


def test_attaching_keeps_the_id(workshop: Workshop) -> None:
    plain = workshop.unsigned()
    signed = workshop.published(plain)
    assert read_bundle(signed).id == read_bundle(plain).id
    assert read_bundle(signed).sha256 != read_bundle(plain).sha256
    with pytest.raises(BundleError, match=r"policy\.onnx cannot be attached"):
        attach(read_bundle(plain), {"policy.onnx": b""})


def test_files_are_read_and_bounded(complete: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.physai"
    path.write_bytes(complete)
    assert read_bundle(path).id == read_bundle(complete).id
    with pytest.raises(BundleError, match="cannot be read"):
        read_bundle(tmp_path / "none.physai")
    with pytest.raises(BundleError, match="cannot be read"):
        read_bundle(tmp_path)
    with path.open("wb") as file:
        file.truncate((512 << 20) + 1)
    with pytest.raises(BundleError, match="at most"):
        read_bundle(path)
