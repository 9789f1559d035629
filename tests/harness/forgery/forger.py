"""Generators of forged bundles: by an outsider without keys, and by an insider with all keys."""

import base64
import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, cast

from physai.sdk.bundle.archive import SIGNATURE_FOLDER, signature_file, write_archive
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.signing.attestation import Envelope, bundle_statement, parse_envelope
from physai.sdk.signing.ed25519 import SigningKey

Parts = list[tuple[str, bytes]]
"""Names and contents of members in file order; names may repeat."""


def archive(parts: Parts) -> bytes:
    """A zip file with correct headers and checksums, and arbitrary names and order."""
    members, directory = bytearray(), bytearray()
    for name, content in parts:
        raw = name.encode("utf-8", "replace")[:65535]
        sizes = (zlib.crc32(content), len(content), len(content), len(raw), 0)
        directory += struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 788, 10, 0, 0, 0, 33, *sizes, 0, 0, 0, 0x81A40000, len(members)
        )
        directory += raw
        members += struct.pack("<4s5H3I2H", b"PK\3\4", 10, 0, 0, 0, 33, *sizes) + raw + content
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(parts), len(parts), len(directory), len(members), 0)
    return bytes(members + directory + end)


class Forger:
    """Generates random forgeries, reproducible by seed."""

    def __init__(
        self,
        originals: Sequence[bytes],
        publisher: SigningKey,
        validator: SigningKey,
        seed: int,
        *,
        donors: Sequence[bytes] = (),
    ) -> None:
        """Reads the bundles to modify.

        Args:
            originals: bundles that the robot accepts.
            publisher: key that signed them; used only by `insider`.
            validator: key that signed their verdicts; used only by `insider`.
            seed: seed of the random numbers.
            donors: further bundles to recombine: too old, expired, signed by other keys.
        """
        self.random = random.Random(seed)
        self.publisher, self.validator = publisher, validator
        self.originals = tuple(originals)
        self.stranger = SigningKey.generate()
        self.members = [dict(read_bundle(data).members) for data in self.originals]
        self.pool = self.members + [dict(read_bundle(data).members) for data in donors]
        self.raw: list[Callable[[bytes], bytes]] = [
            self.flip,
            self.insert,
            self.delete,
            self.repeat,
            self.overwrite,
            self.splice,
            self.field,
        ]
        self.structural: list[Callable[[Parts], Parts]] = [
            self.drop,
            self.double,
            self.rename,
            self.exchange,
            self.reorder,
            self.transplant,
            self.change_content,
            self.change_json,
            self.change_json,
            self.change_envelope,
            self.change_envelope,
        ]

    def outsider(self) -> bytes:
        """A forgery by an outsider without keys."""
        if self.random.random() < 0.3:
            data = self.random.choice(self.originals)
            for _ in range(self.random.randint(1, 3)):
                data = self.random.choice(self.raw)(data)
            return data
        parts = list(self.random.choice(self.members).items())
        for _ in range(self.random.randint(1, 3)):
            parts = self.random.choice(self.structural)(parts)
        if self.random.random() < 0.5:
            parts = self.repaired(parts)
        if self.random.random() < 0.3:
            parts = self.signed(parts, self.stranger, self.stranger)
        return archive(parts)

    def recombined(self) -> bytes:
        """A recombination of unmodified members of properly signed bundles, under their own names."""
        members = dict(self.random.choice(self.pool))
        names = sorted({name for bundle in self.pool for name in bundle})
        for name in self.random.sample(names, self.random.randint(1, 4)):
            donor = self.random.choice(self.pool)
            if name in donor:
                members[name] = donor[name]
            else:
                members.pop(name, None)
        parts = list(members.items())
        return write_archive(dict(self.repaired(parts) if self.random.random() < 0.3 else parts))

    def impersonated(self) -> bytes:
        """A modified bundle that claims the trusted key ids; only its signatures are invalid."""
        parts = list(self.random.choice(self.members).items())
        changed = self.repaired(self.change_json(parts) if self.random.random() < 0.5 else self.change_policy(parts))
        signed = self.signed(changed, self.stranger, self.stranger)
        keys = {signature_file(self.stranger.key_id): self.publisher.key_id, "verdict.dsse": self.validator.key_id}
        forged: Parts = []
        for name, content in signed:
            key_id = keys.get(name)
            if key_id is not None:
                content = content.replace(self.stranger.key_id.encode(), key_id.encode())
            forged.append((name.replace(self.stranger.key_id, self.publisher.key_id), content))
        return archive(forged)

    def change_policy(self, parts: Parts) -> Parts:
        """Flips bits of the policy."""
        index = next(i for i, (name, _) in enumerate(parts) if name == "policy.onnx")
        name, content = parts[index]
        return [*parts[:index], (name, self.flip(content)), *parts[index + 1 :]]

    def insider(self) -> bytes:
        """A malformed bundle signed with all trusted keys."""
        parts = list(read_bundle(self.random.choice(self.originals)).members.items())
        for _ in range(self.random.randint(1, 2)):
            parts = self.random.choice([self.change_json, self.change_json, self.change_content, self.transplant])(
                parts
            )
        if self.random.random() < 0.8:
            parts = self.repaired(parts)
        return archive(self.signed(parts, self.publisher, self.validator))

    def some_bytes(self, most: int = 40) -> bytes:
        return self.random.randbytes(self.random.randint(1, most))

    def cut(self, data: bytes, most: int = 100) -> tuple[int, int]:
        start = self.random.randrange(len(data) + 1)
        return start, min(len(data), start + self.random.randint(1, most))

    def flip(self, data: bytes) -> bytes:
        forged = bytearray(data)
        for _ in range(self.random.randint(1, 8) if data else 0):
            forged[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(forged)

    def insert(self, data: bytes) -> bytes:
        at = self.cut(data)[0]
        return data[:at] + self.some_bytes() + data[at:]

    def delete(self, data: bytes) -> bytes:
        start, stop = self.cut(data)
        return data[:start] + data[stop:]

    def repeat(self, data: bytes) -> bytes:
        start, stop = self.cut(data)
        return data[:stop] + data[start:]

    def overwrite(self, data: bytes) -> bytes:
        at, new = self.cut(data)[0], self.some_bytes()
        return data[:at] + new + data[at + len(new) :]

    def splice(self, data: bytes) -> bytes:
        other = self.random.choice(self.originals)
        return data[: self.cut(data)[0]] + other[self.cut(other)[0] :]

    def field(self, data: bytes) -> bytes:
        """Replaces a number in one of the zip headers."""
        marks = [at for mark in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for at in _find_all(data, mark)]
        if not marks:
            return data
        at = self.random.choice(marks) + self.random.randrange(4, 46)
        kind = self.random.choice(["<H", "<I"])
        width = struct.calcsize(kind)
        if at + width > len(data):
            return data
        limit = (1 << 8 * width) - 1
        old = struct.unpack_from(kind, data, at)[0]
        new = self.random.choice([0, 1, limit, limit >> 1, (old + 1) & limit, (old - 1) & limit, len(data) & limit])
        return data[:at] + struct.pack(kind, new) + data[at + width :]

    def drop(self, parts: Parts) -> Parts:
        index = self.random.randrange(len(parts)) if parts else 0
        return parts[:index] + parts[index + 1 :]

    def double(self, parts: Parts) -> Parts:
        if not parts:
            return parts
        name, content = self.random.choice(parts)
        other = self.random.choice([content, b"", self.flip(content)])
        at = self.random.randrange(len(parts) + 1)
        return [*parts[:at], (name, other), *parts[at:]]

    def rename(self, parts: Parts) -> Parts:
        names = [
            *self.members[0],
            signature_file(self.stranger.key_id),
            signature_file(self.validator.key_id),
            "../policy.onnx",
            "/etc/passwd",
            "policy.onnx\0",
            "POLICY.ONNX",
            "signatures/",
            "",
            "policy.fp8.onnx",
            "x" * 70_000,
        ]
        return self._replaced(parts, lambda name, content: (self.random.choice(names), content))

    def exchange(self, parts: Parts) -> Parts:
        if len(parts) < 2:
            return parts
        (i, a), (j, b) = self.random.sample(list(enumerate(parts)), 2)
        swapped = list(parts)
        swapped[i], swapped[j] = (a[0], b[1]), (b[0], a[1])
        return swapped

    def reorder(self, parts: Parts) -> Parts:
        return self.random.sample(parts, len(parts))

    def transplant(self, parts: Parts) -> Parts:
        """Replaces a member by that of another accepted bundle."""
        donor = self.random.choice(self.members)
        return self._replaced(parts, lambda name, content: (name, donor.get(name, content)))

    def change_content(self, parts: Parts) -> Parts:
        change = self.random.choice([*self.raw, lambda _: b"", lambda data: data + b"\n"])
        return self._replaced(parts, lambda name, content: (name, change(content)))

    def _replaced(self, parts: Parts, change: Callable[[str, bytes], tuple[str, bytes]]) -> Parts:
        if not parts:
            return parts
        index = self.random.randrange(len(parts))
        return [*parts[:index], change(*parts[index]), *parts[index + 1 :]]

    def change_json(self, parts: Parts) -> Parts:
        """Edits a value, a key or the layout of a JSON document, including the one in the signed verdict."""
        documents = [i for i, (name, _) in enumerate(parts) if name.endswith(".json") or name == "verdict.dsse"]
        if not documents:
            return parts
        index = self.random.choice(documents)
        name, content = parts[index]
        if name != "verdict.dsse":
            return [*parts[:index], (name, self.edited(content)), *parts[index + 1 :]]
        try:
            envelope = parse_envelope(content, source=name)
        except Exception:
            return parts
        changed = Envelope(self.edited(envelope.payload) or b"{}", envelope.signatures).encode()
        return [*parts[:index], (name, changed), *parts[index + 1 :]]

    def edited(self, data: bytes) -> bytes:
        try:
            document: Any = json.loads(data)
        except ValueError:
            return data
        places = list(_places(document))
        if places:
            container, key = self.random.choice(places)
            self._edit(container, key)
        if self.random.random() < 0.1:
            return data.replace(b'"robot":', b'"robot":"other","robot":', 1)
        compact = {"separators": (",", ":"), "sort_keys": True} if self.random.random() < 0.9 else {"indent": 1}
        return json.dumps(document, ensure_ascii=self.random.random() < 0.1, **cast("Any", compact)).encode(
            "utf-8", "surrogatepass"
        )

    def _edit(self, container: Any, key: Any) -> None:
        old = container[key]
        deep: Any = 0
        for _ in range(300 if self.random.random() < 0.1 else 3):
            deep = [deep]
        values = [
            None, True, 0, -1, 1, 2**53, 10**30, 1e308, float("nan"), "", "x", "PASS", "pendulum", "0" * 64, "\ud800",
            [], {}, deep, old, "é\u2028\x00", 1.5, [old], {"x": old}, "2099-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
        ]  # fmt: skip
        choice = self.random.random()
        if choice < 0.75:
            container[key] = self.random.choice(values)
        elif choice < 0.85:
            del container[key]
        elif isinstance(container, dict):
            container[self.random.choice(["x", "robot", "format_version", "policy.fp8.onnx"])] = old

    def change_envelope(self, parts: Parts) -> Parts:
        """Edits an envelope: signatures by other keys or of other payloads, additional ones, or none."""
        envelopes = [i for i, (name, _) in enumerate(parts) if name.startswith((SIGNATURE_FOLDER, "verdict"))]
        if not envelopes:
            return parts
        index = self.random.choice(envelopes)
        name, content = parts[index]
        try:
            document: Any = json.loads(content)
            signatures: list[Any] = document["signatures"]
            signature: Any = self.random.choice(signatures)
        except (ValueError, KeyError, IndexError, TypeError):
            return parts
        entry: object = signature
        if not isinstance(entry, dict) or "sig" not in entry:
            return parts
        other = json.loads(self.random.choice(self.members)[self.random.choice(["verdict.dsse", self._signature])])
        ids = [self.stranger.key_id, self.publisher.key_id, self.validator.key_id, "0" * 64, ""]
        edits: list[Callable[[], object]] = [
            lambda: signature.update(keyid=self.random.choice(ids)),
            lambda: signature.update(sig=other["signatures"][0]["sig"]),
            lambda: signature.update(sig=base64.b64encode(self.random.randbytes(64)).decode()),
            lambda: document.update(payload=other["payload"]),
            lambda: document.update(signatures=other["signatures"]),
            lambda: document.update(payloadType="text/plain"),
            lambda: signatures.extend(other["signatures"]),
            lambda: signatures.clear(),
            lambda: signatures.append({"keyid": self.random.choice(ids), "sig": signature["sig"]}),
            lambda: signatures.insert(0, {"keyid": "0" * 64, "sig": signature["sig"]}),
        ]
        self.random.choice(edits)()
        raw = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        return [*parts[:index], (name, raw), *parts[index + 1 :]]

    @property
    def _signature(self) -> str:
        return signature_file(self.publisher.key_id)

    def repaired(self, parts: Parts) -> Parts:
        """Updates hashes and sizes of the members in the manifest."""
        members = dict(parts)
        try:
            manifest: Any = json.loads(members["manifest.json"])
            listed: dict[str, Any] = {
                name: {"sha256": sha256(content).hexdigest(), "size": len(content)}
                for name, content in members.items()
                if name in manifest["members"]
            }
        except (ValueError, KeyError, TypeError):
            return parts
        manifest["members"] = listed
        manifest["contract_fingerprint"] = listed.get("contract.json", {}).get("sha256", "0" * 64)
        raw = json.dumps(manifest, separators=(",", ":"), sort_keys=True).encode()
        return [(name, raw if name == "manifest.json" else content) for name, content in parts]

    def signed(self, parts: Parts, publisher: SigningKey, validator: SigningKey) -> Parts:
        """Signs the parts again, with a verdict that matches the modified bundle."""
        members = dict(parts)
        kept = [(n, c) for n, c in parts if not n.startswith(SIGNATURE_FOLDER) and n != "verdict.dsse"]
        bundle_id = sha256(members.get("manifest.json", b"")).hexdigest()
        try:
            statement: Any = json.loads(parse_envelope(members["verdict.dsse"], source="x").payload)
            for subject in statement["subject"]:
                subject["digest"]["sha256"] = sha256(members[subject["name"]]).hexdigest()
            statement["predicate"]["verdict"]["policy_sha256"] = sha256(members["policy.onnx"]).hexdigest()
            statement["predicate"]["verdict"]["contract_fingerprint"] = sha256(members["contract.json"]).hexdigest()
            payload = json.dumps(statement, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
        except Exception:
            payload = b"{}"
        return [
            *kept,
            ("verdict.dsse", validator.envelope(payload).encode()),
            (signature_file(publisher.key_id), publisher.envelope(bundle_statement(bundle_id)).encode()),
        ]


def _find_all(data: bytes, mark: bytes) -> list[int]:
    offsets, at = list[int](), data.find(mark)
    while at >= 0:
        offsets.append(at)
        at = data.find(mark, at + 1)
    return offsets


def _places(node: Any) -> list[tuple[Any, Any]]:
    """All containers and keys below a node of a document."""
    places: list[tuple[Any, Any]] = []
    entries: Any = node
    if isinstance(node, dict):
        entries = entries.items()
    elif isinstance(node, list):
        entries = enumerate(entries)
    else:
        return places
    for key, value in entries:
        places.append((cast("Any", node), key))
        places += _places(value)
    return places
