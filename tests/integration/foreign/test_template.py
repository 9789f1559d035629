"""The template of a description: complete, valid, and what it says of its parts is true."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from physai.foreign import ForeignPolicyError, PolicyDescription, import_policy
from physai.foreign.cli.template import template
from physai.foreign.conversion.fitted_robot import fitted_robot
from physai.foreign.conversion.foreign_contract import foreign_contract
from physai.foreign.description import HeldJoint, TermDescription
from physai.foreign.readers.described import read
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.cli.main import main
from physai.sdk.contract.terms import GaitClock


def write(folder: Path, text: str) -> PolicyReading:
    file = folder / "physai.yaml"
    file.write_text(text, encoding="utf-8")
    found = read(PolicySource(file=file, metadata={}))
    assert found is not None
    return found


def models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model with those that its fields consist of."""
    found, waiting = set[type[BaseModel]](), [model]
    while waiting:
        one = waiting.pop()
        found.add(one)
        kinds: list[Any] = [field.annotation for field in one.model_fields.values()]
        while kinds:
            kind = kinds.pop()
            kinds += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
                waiting.append(kind)
    return found


def test_the_example_is_a_description(tmp_path: Path) -> None:
    described = write(tmp_path, template()).complete({})
    assert len(described.joints) == 12
    assert described.observation[2] == TermDescription(of="command", elements=(0, 1), scale=2.0)


def test_the_example_fits_a_robot(tmp_path: Path) -> None:
    described = write(tmp_path, template()).complete({})
    (tmp_path / "robot").mkdir()
    contract = foreign_contract(described, fitted_robot("go2", described, tmp_path / "robot"), task="velocity")
    stated = re.search(r"network reads (\d+) numbers", " ".join(template().replace("\n#", "").split()))
    assert stated is not None
    assert contract.observation_size == int(stated[1])


def test_every_key_is_there_with_a_comment() -> None:
    text = template()
    for name in ("network", *PolicyDescription.model_fields):
        # At the beginning of a line, commented out or not, below a line that explains it.
        assert re.search(rf"^#.*\n(# )?{name}:", text, re.MULTILINE), name
    for name in TermDescription.model_fields:
        assert re.search(rf"^#   ([a-z]+, )*{name}\b", text, re.MULTILINE), name
    for literal in get_args(TermDescription.model_fields["of"].annotation):
        assert re.search(rf"\b{literal}\b", text), literal


def test_every_part_of_a_key_is_there() -> None:
    found = models(PolicyDescription)
    assert {TermDescription, HeldJoint, GaitClock} < found
    for model in found:
        for name in model.model_fields:
            assert re.search(rf"\b{name}:", template()), f"{model.__name__}.{name}"


def optional() -> dict[str, str]:
    """Keys that are commented out, with the lines that state them."""
    found: dict[str, str] = {}
    for block in template().split("\n\n"):
        lines = block.splitlines()
        for number, line in enumerate(lines):
            if key := re.match(r"# ([a-z_]+): *[^ ]*", line):
                # Only the last lines of a block state a key; what is above explains it.
                stated = "\n".join(one.removeprefix("# ") for one in lines[number:])
                if key[1] in PolicyDescription.model_fields:
                    found[key[1]] = stated
    return found


@pytest.mark.parametrize("name", optional())
def test_what_is_commented_out_is_valid(tmp_path: Path, name: str) -> None:
    text = f"{template()}\n{optional()[name]}\n"
    # A policy has one network or several, and follows a command or a motion.
    instead = {"networks": "network", "motion": "command"}.get(name)
    if instead is not None:
        text = re.sub(rf"^{instead}: .+$", "", text, flags=re.MULTILINE)
    reading = write(tmp_path, text)
    assert reading.values[name] == yaml.safe_load(optional()[name])[name]
    assert getattr(reading.complete({}), name) is not None


def test_all_that_may_be_left_out_is_commented_out() -> None:
    given = set(yaml.safe_load(template()))
    assert set(optional()) | given == {"network", *PolicyDescription.model_fields}
    needed = {name for name, field in PolicyDescription.model_fields.items() if field.is_required()}
    assert given == {*needed, "network", "command", "format_version"}


@pytest.mark.parametrize("line", re.findall(r"^  # - (\{.+\})$", template(), re.MULTILINE))
def test_terms_that_are_commented_out_are_valid(line: str) -> None:
    term = TermDescription.model_validate_json(json.dumps(yaml.safe_load(line)))
    assert (term.of == "clock") == (term.clock is not None)


def test_new_writes_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "physai.yaml"
    assert main(["import", "--new", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == template()
    assert f"physai import {file} --model ROBOT" in capsys.readouterr().out
    file.write_text("mine", encoding="utf-8")
    assert main(["import", "--new", str(file)]) == 2
    assert "exists; choose another name" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "mine"
    assert main(["import", "--new", str(tmp_path / "missing" / "physai.yaml")]) == 2
    assert "cannot be written: no such file or directory" in capsys.readouterr().err


def test_a_network_that_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "physai.yaml"
    for text, words in (
        ("network: nothere.pt", f"names the network {tmp_path}/nothere.pt, and there is no such file"),
        ("control_dt: 0.02\nactivation: elu", "network is missing, which names the policy's file in its folder"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ForeignPolicyError) as caught:
            import_policy(file, out=tmp_path / "run")
        assert str(caught.value) == f"{file}: {words}"
    # Another program's file may have a key of the same name.
    file.write_text("control_dt: 0.02\nwheels: 4", encoding="utf-8")
    assert read(PolicySource(file=file, metadata={})) is None
