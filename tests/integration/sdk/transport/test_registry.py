"""Transports by name: what is there, what is meant, what is missing."""

import re
import sys
from pathlib import Path

import pytest

from physai.sdk.base.errors import MissingExtraError, UnknownNameError
from physai.sdk.transport.protocol import TransportError
from physai.sdk.transport.registry import open_robot_link, open_transport, robot_link_names, transport_names

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_names() -> None:
    assert {"dds", "sim", "udp"} <= set(transport_names())
    assert {"dds", "udp"} <= set(robot_link_names())
    assert "sim" not in robot_link_names()


def test_a_name_that_is_none() -> None:
    with pytest.raises(UnknownNameError, match="no transport named 'upd'; did you mean udp"):
        open_transport("upd", {})
    with pytest.raises(UnknownNameError, match="no transport with a robot endpoint named 'sim'; known: dds"):
        open_robot_link("sim", {})


def test_an_option_that_is_none() -> None:
    with pytest.raises(UnknownNameError, match="no option of transport udp named 'robt'; did you mean robot"):
        open_transport("udp", {"robt": "127.0.0.1:1"})


def test_a_library_that_is_missing_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "physai.twin.virtual_robot.transport", None)
    with pytest.raises(
        MissingExtraError, match=r"transport sim needs physai\.twin\.virtual_robot\.transport, .*physai-sdk\[sim\]"
    ):
        open_transport("sim", {})


def test_a_contributed_transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[physai.transports]\nserial = builtins:dict\nbroken = no_such_library.ends:Transport\n"
        "example = custom_transport:Loopback\nclass = builtins:type\nnothing = builtins:no_such_name\n"
        "plain = builtins:ord\n"
        "[physai.robot_links]\nserial = builtins:dict\nexample = custom_transport:Loopback\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(EXAMPLES), *sys.path])
    assert {"serial", "broken", "udp"} <= set(transport_names())
    assert open_transport("example", {}).name == "loopback"
    assert open_robot_link("example", {}).name == "loopback"
    with pytest.raises(
        TransportError, match=r"serial \(builtins:dict\): dict lacks close, missing, name, open, poll, p"
    ):
        open_transport("serial", {"port": "3"})
    with pytest.raises(
        TransportError, match=r"serial \(builtins:dict\): dict lacks .* of physai.sdk.RobotEndpoint; exa"
    ):
        open_robot_link("serial", {"port": "3"})
    for name, told in (
        ("class (builtins:type)", "dict is a class, expected an object of it"),
        ("nothing", "builtins:no_such_name cannot be loaded: "),
        ("plain", "builtins:ord cannot be made with its options: "),
    ):
        with pytest.raises(TransportError, match=re.escape(f"transport {name}: {told}")):
            open_transport(name.split()[0], {})
    with pytest.raises(
        MissingExtraError,
        match=r"transport broken needs no_such_library, which .*install what provides no_such_library$",
    ):
        open_transport("broken", {})
