"""Addresses of robots."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.deploy_jetson.update.flash.flash_errors import FlashError
from physai.deploy_jetson.update.flash.target import Target


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("cell-1", Target("cell-1")),
        ("jetson@10.0.0.7", Target("10.0.0.7", "jetson")),
        ("jetson@cell-2.example.org:2222", Target("cell-2.example.org", "jetson", 2222)),
        ("[::1]:22", Target("::1", None, 22)),
        ("root@[fe80::1%eth0]", Target("fe80::1%eth0", "root")),
    ],
)
def test_addresses(address: str, expected: Target) -> None:
    assert Target.parse(address) == expected


@pytest.mark.parametrize(
    "address",
    ["", "@cell", "cell:", "cell:0", "cell:65536", "cell:ssh", "-oProxyCommand=x", "a b", "a@b@c", "::1:22:x", "[::1"],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(FlashError, match=r"not a|is not \[user|a port"):
        Target.parse(address)


def test_root_and_command_are_kept() -> None:
    target = Target.parse("cell", root=PurePosixPath("/data"), physai="/opt/physai")
    assert (target.root, target.physai) == (PurePosixPath("/data"), "/opt/physai")


@pytest.mark.parametrize("physai", ["", "'physai"])
def test_what_is_no_command(physai: str) -> None:
    with pytest.raises(FlashError, match="is not a command"):
        Target.parse("cell", physai=physai)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.none() | st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True), st.none() | st.integers(1, 65535))
def test_an_address_is_what_its_target_is_written_as(host: str, user: str | None, port: int | None) -> None:
    target = Target(host, user, port)
    assert Target.parse(str(target)) == target
