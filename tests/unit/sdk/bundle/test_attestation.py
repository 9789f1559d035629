"""Statements and envelopes: the bytes that are signed, their one form, and that other implementations agree."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.requirements import DEFAULT_GATES_SHA256
from physai.sdk.signing.attestation import (
    PAYLOAD_TYPE,
    AttestationError,
    Envelope,
    Signature,
    bundle_statement,
    is_signed_by,
    is_weak_key,
    key_id_of,
    parse_envelope,
    parse_verdict_statement,
    pre_authentication,
    verdict_statement,
)
from physai.sdk.signing.ed25519 import PublicKey, SigningKey

Workshop = Any

SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
"""Key of test 1 in RFC 8032, section 7.1."""


def test_what_is_signed_byte_for_byte() -> None:
    """The protocol of DSSE: https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md."""
    assert pre_authentication(b"hello world") == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"
    assert pre_authentication(b"") == b"DSSEv1 28 application/vnd.in-toto+json 0 "


def test_the_publishers_statement_byte_for_byte() -> None:
    assert bundle_statement("ab" * 32) == (
        b'{"_type":"https://in-toto.io/Statement/v1","predicate":{},"predicateType":"urn:physai:bundle:1",'
        b'"subject":[{"digest":{"sha256":"' + b"ab" * 32 + b'"},"name":"manifest.json"}]}'
    )


def test_the_envelope_byte_for_byte() -> None:
    envelope = Envelope(b"{}", (Signature("cd" * 32, bytes(64)), Signature("ab" * 32, bytes(64))))
    value = b"A" * 86 + b"=="
    signatures = b",".join(b'{"keyid":"%b","sig":"%b"}' % (key * 32, value) for key in (b"ab", b"cd"))
    expected = b'{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[%b]}' % signatures
    assert envelope.encode() == expected
    assert json.loads(expected)["payloadType"] == PAYLOAD_TYPE
    assert parse_envelope(expected, source="x").encode() == expected


def test_signatures_are_those_of_ed25519() -> None:
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    assert is_signed_by(PUBLIC, private.sign(pre_authentication(b"payload")), b"payload")
    assert not is_signed_by(PUBLIC, private.sign(b"payload"), b"payload"), "the bare payload is another message"
    assert not is_signed_by(PUBLIC, bytes(64), b"payload")
    assert not is_signed_by(PUBLIC[:31], bytes(64), b"payload")


def test_a_signature_has_no_second_form() -> None:
    """S + L is the same residue as S; RFC 8032 refuses it."""
    order = 2**252 + 27742317777372353535851937790883648493
    signature = SigningKey(Ed25519PrivateKey.from_private_bytes(SEED)).sign(b"payload").value
    other = signature[:32] + (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")
    assert is_signed_by(PUBLIC, signature, b"payload")
    assert not is_signed_by(PUBLIC, other, b"payload")


signatures = st.builds(
    Signature, st.binary(min_size=32, max_size=32).map(bytes.hex), st.binary(min_size=64, max_size=64)
)


@given(
    st.binary(min_size=1, max_size=200),
    st.lists(signatures, min_size=1, max_size=4, unique_by=lambda signature: signature.key_id),
)
def test_envelopes_round_trip(payload: bytes, signed: list[Signature]) -> None:
    data = Envelope(payload, tuple(signed)).encode()
    parsed = parse_envelope(data, source="x")
    assert parsed.payload == payload
    assert parsed.signatures == tuple(sorted(signed, key=lambda signature: signature.key_id))
    assert parsed.encode() == data
    assert data == json.dumps(json.loads(data), separators=(",", ":"), sort_keys=True).encode()


def test_one_more_signature_replaces_that_of_its_key() -> None:
    envelope = Envelope(b"x", (Signature("b" * 64, bytes(64)),))
    more = envelope.with_signature(Signature("a" * 64, bytes(64))).with_signature(Signature("b" * 64, b"1" * 64))
    assert [one.key_id[0] for one in more.signatures] == ["a", "b"]
    assert more.signatures[1].value == b"1" * 64


def malformed() -> dict[str, bytes]:
    good = Envelope(b"payload!", (Signature("a" * 64, bytes(64)), Signature("b" * 64, bytes(64)))).encode()
    one = json.dumps(json.loads(good)["signatures"][0], separators=(",", ":")).encode()
    return {
        "nothing": b"",
        "no JSON": b"junk",
        "spaces": good.replace(b":", b": "),
        "line feed at the end": good + b"\n",
        "another type": good.replace(b"in-toto", b"in-tota"),
        "no signature": good.split(b"[")[0] + b"[]}",
        "one key twice": good.split(b"[")[0] + b"[" + one + b"," + one + b"]}",
        "not ordered": good.replace(b"a" * 64, b"c" * 64),
        "upper case key": good.replace(b"b" * 64, b"B" * 64),
        "stray bits in base64": good.replace(base64.b64encode(b"payload!"), b"cGF5bG9hZCF="),
        "no padding": good.replace(b"cGF5bG9hZCE=", b"cGF5bG9hZCE"),
        "stray bits in a signature": good.replace(b"A" * 86 + b"==", b"A" * 85 + b"B==", 1),
        "short signature": good.replace(b"A" * 86 + b"==", b"A" * 84 + b"=="),
        "another field": good.replace(b'{"payload"', b'{"a":1,"payload"'),
        "too many": Envelope(b"x", tuple(Signature(f"{index:064x}", bytes(64)) for index in range(17))).encode(),
    }


@pytest.mark.parametrize("case", malformed())
def test_envelopes_have_one_form(case: str) -> None:
    with pytest.raises(AttestationError, match="verdict"):
        parse_envelope(malformed()[case], source="verdict.dsse")


def test_verdict_statements_round_trip(workshop: Workshop, complete: bytes) -> None:
    bundle = read_bundle(complete)
    statement = verdict_statement(workshop.predicate(complete), bundle.digests)
    data = statement.encode()
    assert parse_verdict_statement(data, source="x") == statement
    document = json.loads(data)
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "urn:physai:verdict:1"
    assert {one["name"]: one["digest"]["sha256"] for one in document["subject"]} == {
        name: bundle.digests[name] for name in ("manifest.json", "contract.json", "policy.onnx")
    }
    assert document["predicate"]["verdict"]["twin_hash"] == "c" * 64
    assert document["predicate"]["verdict"]["gates_sha256"] == DEFAULT_GATES_SHA256


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("_type", "https://in-toto.io/Statement/v2", "_type"),
        ("predicateType", "urn:physai:verdict:2", "predicateType"),
        ("subject", [], "subject"),
        ("extra", 1, "extra"),
        ("predicate", {}, "predicate"),
    ],
)
def test_other_statements_are_refused(
    workshop: Workshop, complete: bytes, field: str, value: Any, message: str
) -> None:
    document = json.loads(verdict_statement(workshop.predicate(complete), read_bundle(complete).digests).encode())
    document[field] = value
    data = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    with pytest.raises(AttestationError, match=message):
        parse_verdict_statement(data, source="verdict.dsse")


def test_a_statement_has_one_form(workshop: Workshop, complete: bytes) -> None:
    data = verdict_statement(workshop.predicate(complete), read_bundle(complete).digests).encode()
    doubled = data.replace(b'"robot":"pendulum"', b'"robot":"go2","robot":"pendulum"')
    by_name = data.replace(b'"_type"', b'"type"')
    for other in (data + b" ", data.replace(b",", b", "), doubled, by_name):
        with pytest.raises(AttestationError):
            parse_verdict_statement(other, source="x")


def test_other_implementations_verify_what_we_sign(workshop: Workshop, complete: bytes) -> None:
    dsse = pytest.importorskip("securesystemslib.dsse")
    signer = pytest.importorskip("securesystemslib.signer")
    keyval = {"public": workshop.validator.public.hex()}
    key = signer.SSlibKey(workshop.validator.key_id, "ed25519", "ed25519", keyval)
    envelope = dsse.Envelope.from_dict(json.loads(read_bundle(complete).members["verdict.dsse"]))
    assert list(envelope.verify([key], 1)) == [workshop.validator.key_id]
    envelope.payload += b" "
    with pytest.raises(Exception, match="threshold"):
        envelope.verify([key], 1)


def test_we_verify_what_other_implementations_sign() -> None:
    dsse = pytest.importorskip("securesystemslib.dsse")
    signer = pytest.importorskip("securesystemslib.signer").CryptoSigner.generate_ed25519()
    public = bytes.fromhex(signer.public_key.keyval["public"])
    assert key_id_of(public) == signer.public_key.keyid
    envelope = dsse.Envelope(b"payload", PAYLOAD_TYPE, {})
    envelope.sign(signer)
    data = json.dumps(envelope.to_dict(), separators=(",", ":"), sort_keys=True).encode()
    parsed = parse_envelope(data, source="x")
    assert is_signed_by(public, parsed.signatures[0].value, parsed.payload)


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
SMALL_ORDER = {
    "0000000000000000000000000000000000000000000000000000000000000000": 4,
    "0000000000000000000000000000000000000000000000000000000000000080": 4,
    "0100000000000000000000000000000000000000000000000000000000000000": 1,
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f": 2,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05": 8,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85": 8,
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a": 8,
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa": 8,
}
"""Order by encoding: Table 1 of Chalkias, Garillot, Nikolaenko: "Taming the many EdDSAs", SSR 2020."""
OTHER_FORMS = (
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)
"""Not in the one form of RFC 8032: a sign of x = 0, or y not below 2^255 - 19."""

Point = tuple[int, int]


def decompress(encoded: str) -> Point:
    """RFC 8032, 5.1.3."""
    value = int.from_bytes(bytes.fromhex(encoded), "little")
    y, sign = value % 2**255, value >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    return (x if x % 2 == sign else -x % P, y)


def add(a: Point, b: Point) -> Point:
    """The addition of the curve -x^2 + y^2 = 1 + d x^2 y^2."""
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P
    return (x, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P)


def test_the_list_of_small_orders_is_the_curve_s() -> None:
    points = {encoded: decompress(encoded) for encoded in SMALL_ORDER}
    assert len(set(points.values())) == 8
    for encoded, order in SMALL_ORDER.items():
        total: Point = (0, 1)
        multiples: list[Point] = []
        for _ in range(order):
            total = add(total, points[encoded])
            multiples.append(total)
        assert multiples.index((0, 1)) == order - 1


@pytest.mark.parametrize("encoded", [*SMALL_ORDER, *OTHER_FORMS])
def test_a_weak_key_is_no_key(encoded: str) -> None:
    public = bytes.fromhex(encoded)
    assert is_weak_key(public)
    with pytest.raises(ValidationError, match="small order"):
        PublicKey(key_id=key_id_of(public), public=encoded, role="publisher")
    # R = the neutral point, S = 0: it holds for a key of order 1 whatever was signed, and for others often.
    neutral = bytes([1]) + bytes(63)
    assert not any(is_signed_by(public, neutral, str(number).encode()) for number in range(20))


def test_honest_keys_are_not_weak() -> None:
    assert not is_weak_key(PUBLIC)
    assert not any(is_weak_key(SigningKey.generate().public) for _ in range(50))
