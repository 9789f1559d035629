"""Files that are no robot model end in one line that says why."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import ModelError
from physai.sim.robots import load_robot
from physai.sim.robots.files import xmlfile

GOOD = load_robot("cartpole").path.read_text()
BARE = re.sub(r"<!--.*?-->", "", GOOD, flags=re.DOTALL)


def refusal(folder: Path, content: str | bytes) -> str:
    file = folder / "robot.xml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError) as caught:
        load_robot(file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(file))
    return message


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nothing\.urdf: no such file or directory"):
        load_robot(tmp_path / "nothing.urdf")
    with pytest.raises(ModelError, match=r"~none/robot\.xml: no such file or directory"):
        load_robot("~none/robot.xml")
    with pytest.raises(ModelError, match="has no MJCF file"):
        load_robot(tmp_path)
    (tmp_path / "socket.urdf").mkdir()
    with pytest.raises(ModelError, match="has no MJCF file"):
        load_robot(tmp_path / "socket.urdf")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ":1: not well-formed XML: no element found"),
        ("hello", ":1: not well-formed XML: syntax error"),
        ("<mujoco>\n<worldbody>\n</mujoco>", ":3: not well-formed XML: mismatched tag"),
        (b"\xff\xfe\x00", "not well-formed XML"),
        ("<sdf/>", ":1: root element <sdf>; expected <mujoco> (MJCF) or <robot> (URDF)"),
        ("<mujoco/>", "no hinge or slide joint"),
        ("<mujoco><wordbody/></mujoco>", "unrecognized element"),
        (BARE.replace('range="-2.4 2.4"', 'range="-2.4 nan"'), "<joint> range='-2.4 nan' is not a finite number"),
        (BARE.replace('mass="0.1"', 'mass="inf"'), "<inertial> mass='inf' is not a finite number"),
        (BARE.replace('mass="0.1"', 'mass="0"'), "mass and inertia of moving bodies must be larger"),
        (BARE.replace("0.00453 0.00870", "0.00153 0.00870"), "inertia must satisfy A + B >= C"),
        (BARE.replace('joint name="pole"', 'joint name="slider"'), "repeated name 'slider' in joint"),
        (BARE.replace('joint="slider"', 'joint="sliders"'), "unknown transmission target"),
        (BARE.replace('qpos="0 3.141592653589793"', 'qpos="0 1 2"'), "invalid qpos size, expected 2, got 3"),
        (BARE.replace('qpos="0 3.141592653589793"', 'qpos="3 0"'), "default_pos 3.0 lies outside [-2.4, 2.4]"),
    ],
)
def test_content_that_is_no_model(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert expected in refusal(tmp_path, content)


@pytest.mark.parametrize("encoding", ["utf-7", "utf-32", "idna", "punycode", "zip", "rot13", "hex", "cp037", "martian"])
def test_encodings_other_than_unicode_are_refused(tmp_path: Path, encoding: str) -> None:
    for text in (BARE, "<robot/>"):
        message = refusal(tmp_path, f'<?xml version="1.0" encoding="{encoding}"?>{text}')
        assert f":1: encoding '{encoding}'; save the file as UTF-8" in message


def test_nul_bytes_are_no_part_of_a_model(tmp_path: Path) -> None:
    assert "not well-formed XML" in refusal(tmp_path, BARE.replace("slider", "sli\0der"))
    assert "not well-formed XML" in refusal(tmp_path, BARE.replace("slider", "sli&#0;der"))
    with pytest.raises(ModelError, match="invalid path: embedded null byte"):
        load_robot("a\0b.xml")


def test_entity_bombs_are_refused_before_they_expand(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n<mujoco model="&b;"/>'
    assert ":1: a model file may not have a <!DOCTYPE>" in refusal(tmp_path, bomb)


def test_nesting_is_bounded(tmp_path: Path) -> None:
    deep = "<mujoco>" + "<a>" * 300 + "</a>" * 300 + "</mujoco>"
    assert "nested deeper than 256" in refusal(tmp_path, deep)


def test_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xmlfile, "MAX_FILE_BYTES", 1000)
    assert f"{len(GOOD.encode())} bytes; the maximum for a model file is 1000" in refusal(tmp_path, GOOD)


def test_names_may_look_like_numbers(tmp_path: Path) -> None:
    file = tmp_path / "robot.xml"
    file.write_text(BARE.replace('"slider"', '"inf"'))
    assert load_robot(file).spec.joint_names == ("inf", "pole")


def outcome(file: Path) -> str:
    try:
        load_robot(file)
    except ModelError as error:
        return "several lines" if "\n" in str(error) else "one line"
    return "loaded"


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_loads_or_is_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Nothing but ModelError leaves the loader, wherever a file is cut or overwritten."""
    start = data.draw(st.integers(0, len(BARE) - 1))
    length = data.draw(st.integers(0, 40))
    patch = data.draw(st.sampled_from(["", "0", "-1", '"', ">", "<a/>", " x=", "1e30"]))
    file = tmp_path_factory.mktemp("damaged") / "robot.xml"
    file.write_text(BARE[:start] + patch + BARE[start + length :])
    assert outcome(file) in ("loaded", "one line")
