"""Canonical JSON against the example of RFC 8785."""

import hashlib

from pydantic import BaseModel

from physai.sdk.base.formats.canonical import canonical_json, sha256_hex


class Example(BaseModel):
    """The document of RFC 8785, section 3.2.2."""

    numbers: list[float]
    string: str
    literals: list[bool | None]


def test_the_example_of_the_rfc() -> None:
    example = Example(
        numbers=[333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        string="\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        literals=[None, True, False],
    )
    # Section 3.2.4, the bytes of the canonical form, as hexadecimal.
    expected = bytes.fromhex(
        """
        7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65 5d 2c
        22 6e 75 6d 62 65 72 73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31
        65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22
        3a 22 e2 82 ac 24 5c 75 30 30 30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d
        """
    )
    assert canonical_json(example) == expected


def test_defaults_are_written() -> None:
    class Defaults(BaseModel):
        b: float = 1.0
        a: int | None = None

    assert canonical_json(Defaults()) == b'{"a":null,"b":1}'


def test_sha256_of_the_standard() -> None:
    # FIPS 180-2, appendix B.1.
    assert sha256_hex(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_hex(b"") == hashlib.sha256().hexdigest()
