"""Messages: what is said is understood, what was never said is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.deploy_jetson.update.flash.protocol import (
    MAX_LINE_BYTES,
    MAX_NUMBER,
    MAX_TEXT,
    Offer,
    OfferedMember,
    ProtocolError,
    check_protocol,
    decode,
    digest,
    encode,
    flag,
    number,
    seconds,
    share,
    text,
)
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, MAX_MEMBERS

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
NAMES = st.sampled_from(
    ["manifest.json", "policy.onnx", "policy.int8.onnx", "golden.npz", f"signatures/{'0' * 64}.json"]
)
OFFERS = st.builds(
    Offer,
    DIGESTS,
    st.integers(0, MAX_NUMBER),
    st.text(max_size=20),
    st.dictionaries(
        NAMES, st.builds(OfferedMember, DIGESTS, st.integers(0, MAX_BUNDLE_BYTES // MAX_MEMBERS)), min_size=1
    ),
    st.floats(0.0, 86400.0),
)


@given(OFFERS)
def test_an_offer_is_understood_as_it_was_meant(offer: Offer) -> None:
    line = offer.encode()
    assert len(line) <= MAX_LINE_BYTES
    assert Offer.parse(decode(line)) == offer


def test_the_largest_offer_fits_a_line() -> None:
    members = {
        f"{index:0128d}": OfferedMember("f" * 64, MAX_BUNDLE_BYTES // MAX_MEMBERS) for index in range(MAX_MEMBERS)
    }
    offer = Offer("f" * 64, MAX_NUMBER, "r" * 128, members, 86400.0)
    assert len(offer.encode()) < MAX_LINE_BYTES
    assert Offer.parse(decode(offer.encode())) == offer


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
FIELDS = ["protocol", "bundle", "version", "robot", "members", "wait_s"]


@given(OFFERS, st.sampled_from(FIELDS), JSON)
def test_a_field_of_another_kind_is_refused_or_valid(offer: Offer, name: str, value: Any) -> None:
    message = decode(offer.encode())
    message[name] = value
    try:
        parsed = Offer.parse(message)
    except ProtocolError:
        return
    assert Offer.parse(decode(parsed.encode())) == parsed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bundle", "F" * 64),
        ("version", -1),
        ("version", True),
        ("version", MAX_NUMBER + 1),
        ("robot", "r" * (MAX_TEXT + 1)),
        ("wait_s", float("nan")),
        ("wait_s", 86401.0),
        ("members", {}),
        ("members", {"../etc/passwd\n": ["0" * 64, 1]}),
        ("members", {"a": ["0" * 64, MAX_BUNDLE_BYTES + 1]}),
        ("members", {"a": ["0" * 64, MAX_BUNDLE_BYTES], "b": ["1" * 64, 1]}),
        ("members", {str(index): ["0" * 64, 1] for index in range(MAX_MEMBERS + 1)}),
    ],
)
def test_what_no_bundle_is_is_not_offered(name: str, value: Any) -> None:
    message = decode(Offer("0" * 64, 1, "pendulum", {"a": OfferedMember("0" * 64, 1)}).encode())
    message[name] = value
    with pytest.raises(ProtocolError):
        Offer.parse(message)


def test_equal_members_count_once() -> None:
    twice = Offer("0" * 64, 1, "pendulum", {"a": OfferedMember("1" * 64, 5), "b": OfferedMember("1" * 64, 5)})
    assert twice.sizes == {"1" * 64: 5}
    assert twice.size == 10


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"say": "hello"}',
        b"hello\n",
        b"[]\n",
        b"{}\n",
        b'{"say": 1}\n',
        b"[" * 60000 + b"\n",
        b'{"say": "x", "a": "' + b"x" * MAX_LINE_BYTES + b'"}\n',
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_message(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_texts_are_cut_to_what_a_line_may_hold() -> None:
    message = decode(encode("note", text="é\n" * MAX_LINE_BYTES))
    assert len(text(message, "text")) == MAX_TEXT


def test_fields_have_bounds() -> None:
    message = json.loads('{"say": "x", "a": 1.5, "b": -1, "c": "true", "d": NaN, "e": 7, "f": true}')
    for check, name in ((number, "a"), (number, "b"), (number, "f"), (share, "a"), (share, "d"), (share, "f")):
        with pytest.raises(ProtocolError, match=f"'{name}'"):
            check(message, name)
    for check, name in ((seconds, "b"), (seconds, "f"), (flag, "c"), (flag, "e"), (digest, "c"), (text, "missing")):
        with pytest.raises(ProtocolError, match=f"'{name}'"):
            check(message, name)
    assert (number(message, "e"), flag(message, "f"), seconds(message, "a")) == (7, True, 1.5)
    with pytest.raises(ProtocolError, match="up to 6"):
        number(message, "e", 6)


def test_another_protocol_is_named() -> None:
    check_protocol({"say": "hello", "protocol": 2})
    with pytest.raises(ProtocolError, match="peer has protocol 3, this side 2"):
        check_protocol({"say": "hello", "protocol": 3})
