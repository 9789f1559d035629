"""Statements of the file of somebody else's policy about itself, and the questions that it leaves open."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from physai.foreign.body.torch_files import TORCH_SUFFIXES
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.file_names import MAX_POLICY_BYTES
from physai.sdk.base.files import read_bounded

BOUNDED = ("Tanh", "Clip", "Sigmoid", "HardSigmoid", "Softsign")
JOINT_KEYS = ("dof_names", "joint_names")
"""Metadata of the families that name their joints."""
LIST_KEYS = ("kp", "kd", "joint_stiffness", "joint_damping", "default_joint_pos", "action_scale")
"""Metadata with one number per joint, or one for all."""

OPEN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("order and names of the joints", JOINT_KEYS),
    ("terms of the observation, their order, scales and clips", ("observation_names", "observation_terms")),
    ("history: length, layout, and which sample is first", ("observation_history_lengths", "history_length")),
    ("frame of the angular velocity, and order of quaternions", ()),
    ("scale and offset of the actions, and which last action is observed", ("action_scale",)),
    ("default pose, to which positions are relative", ("default_joint_pos",)),
    ("gains of the motors", ("kp", "joint_stiffness")),
    ("armature and effort limits", ("armature", "effort_limit")),
    ("control period", ("control_dt", "step_dt")),
    ("clock of a gait: period and phases", ("gait_period",)),
    ("ranges of the commands", ("command_ranges",)),
    ("the pose from which the policy starts, and what was observed before", ()),
)
"""What a policy needs to run, and the metadata that state it."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph."""

    name: str
    shape: tuple[int | str, ...]

    @property
    def width(self) -> int | None:
        """Number of elements per robot; None if the file does not state it."""
        last = self.shape[-1] if self.shape else None
        return last if isinstance(last, int) and last > 0 else None


@dataclass(frozen=True)
class PolicyDiagnosis:
    """A policy's file as it is."""

    file: Path
    sha256: str
    size_bytes: int
    producer: str
    ir_version: int
    opset: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: Mapping[str, int]
    """Number of nodes by operator."""
    refused: str
    """Why the graph cannot be admitted; empty if it can."""
    changes: tuple[str, ...]
    """What was rewritten to admit it."""
    parity: float | None
    """Greatest difference of the rewritten graph's outputs to those of the file, in random states; None if refused."""
    stated: Mapping[str, str]
    """Metadata by key, shortened."""
    findings: tuple[str, ...]
    """What the graph itself shows."""
    contradictions: tuple[str, ...]
    """Statements of the file that cannot be true together."""
    left_open: tuple[str, ...]
    """What a policy needs to run and the file does not state."""

    @property
    def admitted(self) -> bool:
        """Whether the graph is one that a policy of ours may contain, and the file does not contradict itself."""
        return not self.refused and not self.contradictions


def diagnose(file: str | Path) -> PolicyDiagnosis:
    """Read the file of somebody else's policy and tell what it states, what its graph shows, and what is left open.

    The file is read, rewritten and run in a child process with limits of time and memory. An order of joints is never
    inferred: a graph does not show one.

    Args:
        file: an ONNX file, whose weights may lie in other files of the same folder, a TorchScript file, or a
            checkpoint.

    Returns:
        The diagnosis. A graph that cannot be admitted is one, too.

    Raises:
        ForeignPolicyError: the file cannot be read, is no ONNX file, or holds weights that do not show a whole graph.
        ApartError: it is no TorchScript file or no checkpoint of a known layout, or the child process hung, crashed or
            used too much memory.
        MissingExtraError: the package `onnx` is not installed.
    """
    from physai.foreign.body.apart import read_body, require_onnx

    path = Path(file).expanduser()
    require_onnx()
    data = read_bounded(path, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
    converted, changes = data, list[str]()
    from physai.foreign.body.checkpoints.weights import is_weights

    if is_weights(data, path.suffix):
        converted, changes = _of_weights(path, data)
    elif path.suffix.lower() in TORCH_SUFFIXES:
        from physai.foreign.body.torchscript import convert_torchscript, torchscript_changes

        program, converted = convert_torchscript(data, source=path.name, width=None)
        changes = torchscript_changes(program)
    facts, _ = read_body(converted, source=path.name, folder=path.parent)
    return _diagnosis(path, data, {**facts, "changes": [*changes, *facts.get("changes", ())]})


def _of_weights(path: Path, data: bytes) -> tuple[bytes, list[str]]:
    """Return a graph of weights alone, if they show all of it."""
    from physai.foreign.body.checkpoints.weights import convert_weights, weights_changes

    facts, converted = convert_weights(data, source=path.name, settings={})
    if not converted:
        parts = [f"{facts['observations']} observations", *map(str, facts["hidden"]), f"{facts['actions']} actions"]
        extra = [f"memory {facts['memory']}"] * bool(facts["memory"])
        extra += [f"normaliser {facts['normaliser']}"] * bool(facts["normaliser"])
        missing = [name for name in ("activation", "squash") if name not in facts["stated"]]
        raise ForeignPolicyError(
            f"{path}: weights alone of {facts['library']}, {' → '.join(parts)}{''.join(f', {one}' for one in extra)}; "
            f"they do not show {' and '.join(missing)}, which a physai.yaml with this `network` states"
        )
    settings = {name: value for name, (value, _) in facts["stated"].items()}
    return converted, weights_changes(facts, settings)


def _diagnosis(path: Path, data: bytes, facts: Mapping[str, Any]) -> PolicyDiagnosis:
    inputs, outputs = (
        tuple(Tensor(each["name"], tuple(each["shape"])) for each in facts[label]) for label in ("inputs", "outputs")
    )
    metadata: Mapping[str, str] = facts["metadata"]
    versions: dict[str, int] = dict(facts["opset"])
    return PolicyDiagnosis(
        file=path,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        producer=facts["producer"],
        ir_version=facts["ir_version"],
        opset=versions.get("", versions.get("ai.onnx", 0)),
        inputs=inputs,
        outputs=outputs,
        operators=facts["operators"],
        refused=facts.get("refused", ""),
        changes=tuple(facts.get("changes", ())),
        parity=facts.get("parity"),
        stated={key: _short(value) for key, value in metadata.items()},
        findings=tuple(_findings(inputs, outputs, facts)),
        contradictions=tuple(_contradictions(outputs, metadata)),
        left_open=tuple(text for text, keys in OPEN if not any(_states(metadata, key) for key in keys)),
    )


def _short(value: str) -> str:
    return value if len(value) <= 100 else f"{value[:97]}…"


def _states(metadata: Mapping[str, str], key: str) -> bool:
    return metadata.get(key, "").strip() not in ("", "null", "None", "[]", "{}")


def _findings(inputs: Sequence[Tensor], outputs: Sequence[Tensor], facts: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    if outputs and outputs[0].width is not None:
        last = facts["last_operator"]
        bounded = f"a {last} bounds" if last in BOUNDED else "no operator at its end bounds"
        found.append(f"{outputs[0].name} has {outputs[0].width} numbers, and {bounded} them")
    fed_back = [(a.name, b.name) for a in inputs for b in outputs[1:] if a.shape == b.shape and a.width != 1]
    if fed_back:
        pairs = ", ".join(f"{after} → {before}" for before, after in fed_back)
        found.append(f"of equal shapes, and perhaps a memory that is fed back: {pairs}")
    for name, columns in facts.get("unused", {}).items():
        width = next((tensor.width for tensor in inputs if tensor.name == name), None)
        if len(columns) == width:
            found.append(f"{name} has no effect")
        elif columns:
            found.append(f"{len(columns)} of {width} numbers of {name} have no effect: {_ranges(columns)}")
    return found


def _ranges(columns: Sequence[int]) -> str:
    """Return ascending numbers as ranges, such as 3-5, 9."""
    parts: list[list[int]] = []
    for column in columns:
        if parts and column == parts[-1][-1] + 1:
            parts[-1].append(column)
        else:
            parts.append([column])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _contradictions(outputs: Sequence[Tensor], metadata: Mapping[str, str]) -> list[str]:
    width = outputs[0].width if outputs else None
    if width is None:
        return []
    found: list[str] = []
    for key in JOINT_KEYS:
        names = _list(metadata.get(key, ""))
        if names is None:
            continue
        if len(names) != width:
            found.append(f"{key} has {len(names)} names, {outputs[0].name} has {width} numbers")
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        if twice:
            found.append(f"{key} has {twice[0]} twice")
    for key in LIST_KEYS:
        numbers = _list(metadata.get(key, ""))
        if numbers is None:
            continue
        if len(numbers) not in (1, width):
            found.append(f"{key} has {len(numbers)} numbers, {outputs[0].name} has {width}")
        wrong = [number for number in numbers if not _is_finite(number)]
        if wrong:
            found.append(f"{key} has {_short(str(wrong[0]))}, which is not a finite number")
    return found


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _list(text: str) -> list[Any] | None:
    """Return a list in JSON, or of words between commas; None for anything else."""
    text = text.strip()
    if not text or text in ("null", "None"):
        return None
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return cast("list[Any]", found) if isinstance(found, list) else None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 2:
        return None
    try:
        return [float(part) for part in parts]
    except ValueError:
        return list(parts)
