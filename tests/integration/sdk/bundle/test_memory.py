"""The verifier needs little more memory than the bundle itself takes, whatever is in the bundle."""

import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.bundle.archive import signature_file, write_archive
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.signing.attestation import bundle_statement

Workshop = Any

ALLOWED = 64 << 20
"""What the verifier may take beside the bundle [B]."""

MEASURE = """
import re, sys
from datetime import datetime
from pathlib import Path
from physai.sdk.bundle.manifest import read_file
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.verify import TrustStore, VerificationError, verify

trust, now = SignedTrust.load(sys.argv[1]).check(), datetime.fromisoformat(sys.argv[2])

def attempt(data):
    try:
        verify(data, trust, robot="pendulum", now=now, floor=0)
        return "accepted"
    except VerificationError as error:
        return error.rule.value

def most():
    return 1024 * int(re.search("VmHWM:.*?([0-9]+) kB", Path("/proc/self/status").read_text())[1])

attempt(Path(sys.argv[3]).read_bytes())
before = most()
data = read_file(Path(sys.argv[4]))
print(attempt(data), len(data), most() - before)
"""
"""Verifies a small bundle so that everything is loaded, then the large one, and says by how much memory grew."""


def signed(workshop: Workshop, members: dict[str, bytes]) -> bytes:
    """The members with a fresh publisher's signature: the deepest a hostile bundle can get."""
    kept = {name: data for name, data in members.items() if not name.startswith("signatures/")}
    statement = bundle_statement(sha256(kept["manifest.json"]).hexdigest())
    key = workshop.publisher
    return write_archive({**kept, signature_file(key.key_id): key.envelope(statement).encode()})


def large(workshop: Workshop, make_onnx: Callable[..., bytes]) -> bytes:
    variant = {"policy.int8.onnx": make_onnx(workshop.header(), graph=bytes(96 << 20))}
    return workshop.validated(workshop.published(workshop.unsigned(variants=variant)))


def listed(workshop: Workshop, name: str, content: bytes) -> bytes:
    """A bundle whose manifest vouches for a member of nonsense."""
    members = dict(read_bundle(workshop.complete()).members) | {name: content}
    manifest = json.loads(members["manifest.json"])
    manifest["members"][name] = {"sha256": sha256(content).hexdigest(), "size": len(content)}
    members["manifest.json"] = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
    return signed(workshop, members)


def metadata_bomb(_: Workshop) -> bytes:
    """An ONNX file of nothing but metadata."""
    value = b"\x12\xf0\xff\x7f" + b"\xff" * 0x1FFFF0
    entries = (b"\x0a\x04%04d" % index + value for index in range(30))
    return b"\x08\x08" + b"".join(b"\x72" + _varint(len(entry)) + entry for entry in entries)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def hostile(workshop: Workshop, case: str) -> bytes:
    base = dict(read_bundle(workshop.complete()).members)
    if case == "manifest of empty objects":
        return signed(workshop, base | {"manifest.json": b'{"format_version":1,"x":[' + b"{}," * 80_000 + b"{}]}"})
    if case == "contract of empty objects":
        return listed(workshop, "contract.json", b'{"format_version":1,"x":[' + b"{}," * 330_000 + b"{}]}")
    if case == "contract of as many objects as are allowed":
        return listed(workshop, "contract.json", b'{"format_version":1,"x":[' + b"{}," * 32_000 + b"{}]}")
    if case == "contract of numbers":
        return listed(workshop, "contract.json", b'{"format_version":1,"x":[' + b"0," * 500_000 + b"0]}")
    if case == "contract of brackets":
        return listed(workshop, "contract.json", b"[" * (1 << 20))
    if case == "metadata":
        return listed(workshop, "policy.onnx", metadata_bomb(workshop))
    if case == "verdict of numbers":
        payload = b'{"_type":[' + b"0," * 370_000 + b"0]}"
        return signed(workshop, base | {"verdict.dsse": workshop.validator.envelope(payload).encode()})
    if case == "verdict of empty objects":
        payload = b'{"_type":[' + b"{}," * 250_000 + b"{}]}"
        return signed(workshop, base | {"verdict.dsse": workshop.validator.envelope(payload).encode()})
    return signed(workshop, base | {"verdict.dsse": b'{"payload":"' + b"A" * ((1 << 20) - 100)})


CASES = [
    "manifest of empty objects",
    "contract of empty objects",
    "contract of as many objects as are allowed",
    "contract of numbers",
    "contract of brackets",
    "metadata",
    "verdict of empty objects",
    "verdict of numbers",
    "endless payload",
]


def grown(workshop: Workshop, small: bytes, data: bytes, folder: Path, now: str) -> tuple[str, int, int]:
    workshop.signed().save(folder / "trust.json")
    (folder / "small.physai").write_bytes(small)
    (folder / "large.physai").write_bytes(data)
    words = [str(folder / "trust.json"), now, str(folder / "small.physai"), str(folder / "large.physai")]
    result = subprocess.run([sys.executable, "-c", MEASURE, *words], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    outcome, size, growth = result.stdout.split()
    return outcome, int(size), int(growth)


@pytest.mark.slow
def test_a_large_bundle_is_held_once(
    workshop: Workshop, complete: bytes, make_onnx: Callable[..., bytes], tmp_path: Path, now: Any
) -> None:
    outcome, size, growth = grown(workshop, complete, large(workshop, make_onnx), tmp_path, now.isoformat())
    assert outcome == "accepted"
    assert size > 96 << 20
    assert growth < size + (16 << 20)


@pytest.mark.parametrize("case", CASES)
def test_hostile_documents_stay_small(workshop: Workshop, complete: bytes, tmp_path: Path, now: Any, case: str) -> None:
    outcome, size, growth = grown(workshop, complete, hostile(workshop, case), tmp_path, now.isoformat())
    assert outcome != "accepted"
    assert growth < size + ALLOWED
