"""Imports a policy that was trained elsewhere: one graph with a contract, in a run folder like a trained one."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.foreign.errors import ForeignPolicyError, OpenQuestionsError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.foreign.conversion.import_page import PolicyImport
    from physai.foreign.description import PolicyDescription
    from physai.foreign.reading import PolicyReading


def import_policy(
    policy: Annotated[Path | str, Option(metavar="FILE|FOLDER")],
    *,
    model: Path | str | None = None,
    out: Annotated[Path | str | None, Option(flags=("-o",))] = None,
    family: str | None = None,
    settings: Annotated[Mapping[str, object] | None, Option(flags=("--set",))] = None,
    ask: Callable[[str, str], str] | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> PolicyImport:
    """Import a policy that was trained elsewhere: one that follows a command or a motion.

    Nothing is guessed: what no file states has to be stated in `settings`, and what is stated twice must agree.

    Args:
        policy: the ONNX or TorchScript file, where its framework keeps it, the folder with it, or a description in
            YAML that names one.
        model: MJCF or URDF file of the robot, as its maker publishes it, or a built-in robot.
        out: folder of the run; must not exist or be empty (default: the policy's name).
        family: reader of the policy's family; None to find it out.
        settings: what no file states, such as control_dt=0.02; lists as JSON. See `physai.foreign.PolicyDescription`.
        ask: called with the name of a field that no file states and its meaning, returns its value; empty to give up.
        progress: called with the share of the work done.

    Raises:
        ForeignPolicyError: the policy cannot be read, contradicts itself, or does not fit.
        OpenQuestionsError: it leaves something open.
        PhysaiError: the robot cannot be loaded, or the folder cannot be written.
    """
    from physai.foreign.body.apart import require_onnx

    require_onnx()
    file = Path(policy).expanduser()
    folder = Path(out or file.stem)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ForeignPolicyError(f"{folder}: exists and is not an empty folder; choose another one")
    reading = _read(file, family)
    if not reading.network.is_file():
        raise ForeignPolicyError(f"{file}: names the network {reading.network}, and there is no such file")
    described = _completed(reading, {name: _value(given) for name, given in (settings or {}).items()}, ask)
    if model is None:
        raise ForeignPolicyError(
            "name the robot with `model`: the MJCF or URDF file as its maker publishes it, or a built-in robot"
        )
    from physai.foreign.conversion.assembly import assembled

    if Path(model).exists():
        # MuJoCo does not find the files of a file that another one includes from a relative path.
        model = Path(model).resolve()
    return assembled(reading, described, model, folder, progress)


def _completed(
    reading: PolicyReading, given: dict[str, object], ask: Callable[[str, str], str] | None
) -> PolicyDescription:
    """The whole description, with questions asked one at a time: an answer may settle others."""
    from physai.foreign.description import QUESTIONS

    while True:
        try:
            return reading.complete(given)
        except OpenQuestionsError as error:
            name = error.names[0]
            answer = "" if ask is None else ask(name, QUESTIONS[name])
            if not answer.strip():
                raise
            given = {**given, name: _value(answer.strip())}


def _value(given: object) -> object:
    """A setting's value; words of the command line are JSON, or text."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given
    except RecursionError:
        raise ForeignPolicyError(f"a setting has too many brackets: {given[:40]}…") from None


def _read(file: Path, family: str | None) -> PolicyReading:
    from physai.foreign.body.apart import read_body
    from physai.foreign.body.torch_files import TORCH_SUFFIXES
    from physai.foreign.reading import PolicySource, read
    from physai.sdk.base.file_names import MAX_POLICY_BYTES
    from physai.sdk.base.files import read_bounded

    metadata: Mapping[str, str] = {}
    inputs: tuple[str, ...] = ()
    if file.suffix.lower() == ".onnx":
        data = read_bounded(file, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
        facts, _ = read_body(data, source=file.name, folder=file.parent)
        metadata, inputs = facts["metadata"], tuple(each["name"] for each in facts["inputs"])
    elif file.suffix.lower() in TORCH_SUFFIXES and file.is_file() and not zipfile.is_zipfile(file):
        raise ForeignPolicyError(f"{file}: no whole archive, as torch.save and torch.jit.save write it; copy it again")
    return read(PolicySource(file=file, metadata=metadata, inputs=inputs), family)
