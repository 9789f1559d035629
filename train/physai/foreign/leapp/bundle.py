"""A LEAPP bundle: its models in their order, and what each of their inputs gets.

LEAPP's program (`leapp/inference_manager.py` of 0.7.2) runs the models in the order of the file, and gives outputs to
inputs at once; an input of an earlier model sees them in the next period.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from physai.foreign.body.probe import Floats
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.leapp.document import Flow, LeappDocument, LeappModel, LeappTensor, read_document
from physai.foreign.leapp.initial_values import read_initial_values
from physai.sdk.base.file_names import MAX_POLICY_BYTES
from physai.sdk.base.files import read_bounded

MAX_WIDTH = 1 << 20
"""Greatest number of elements of all tensors together."""


@dataclass(frozen=True, kw_only=True)
class LeappBundle:
    """A bundle whose parts fit together. Tensors have the keys `MODEL/NAME`."""

    file: Path
    models: dict[str, LeappModel]
    """Models by name, in their order."""
    networks: dict[str, Path]
    """Files of the models."""
    flow: dict[str, str]
    """Output that an input gets in the same period."""
    feedback: dict[str, str]
    """Output of the period before that an input gets."""
    initial: dict[str, Floats]
    """Values of inputs with feedback in the first period, zeros for the others."""
    inputs: dict[str, LeappTensor]
    """Tensors that come from the robot or an operator."""
    outputs: dict[str, LeappTensor]
    """Tensors that go to the robot."""
    frequency: float | None
    """Number of periods per second [Hz]; None if it is not stated."""
    files: set[Path]
    unread: list[str]


def read_bundle(file: Path) -> LeappBundle:
    """Read a bundle.

    Raises:
        ForeignPolicyError: a file of it is damaged, its parts do not fit together, or it has what is not supported.
    """
    document = read_document(file)
    try:
        return _checked(file, document)
    except ValueError as problem:
        raise ForeignPolicyError(f"{file}: {problem}") from None


def _checked(file: Path, document: LeappDocument) -> LeappBundle:
    models, pipeline = document.models, document.pipeline
    inputs, outputs = (
        {f"{name}/{one.name}": one for name, model in models.items() for one in getattr(model, label)}
        for label in ("inputs", "outputs")
    )
    stated = [one for model in models.values() for one in (*model.inputs, *model.outputs)]
    if len(inputs) + len(outputs) != len(stated) or sum(one.width for one in stated) > MAX_WIDTH:
        raise ValueError(f"two tensors of a model have one name, or all have more than {MAX_WIDTH} elements")
    unread = document.unread()
    networks = {name: _network(file, name, model, unread) for name, model in models.items()}
    flow, feedback = _edges(pipeline.data_flow), _edges(pipeline.feedback_flow, pipeline.feedback_connections)
    order = list(models)
    _require_edges(flow, inputs, outputs, order, "data_flow")
    _require_edges(feedback, inputs, outputs, order, "feedback")
    ends = [
        {f"{model}/{name}" for model, names in each.items() for name in names}
        for each in (pipeline.inputs, pipeline.outputs)
    ]
    if unknown := [*(ends[0] - set(inputs)), *(ends[1] - set(outputs))]:
        raise ValueError(f"pipeline names {unknown[0]}, which no model has")
    if not ends[0]:
        raise ValueError("pipeline.inputs names nothing that the robot measures")
    for key in inputs:
        if (ways := (key in flow) + (key in feedback) + (key in ends[0])) != 1:
            raise ValueError(f"the input {key} gets {ways} values in pipeline, expected 1")
    files, initial = {file, *networks.values()}, dict[str, Floats]()
    if pipeline.initial_values is not None:
        path = _inside(file, pipeline.initial_values, "pipeline.initial_values")
        files.add(path)
        initial = read_initial_values(path)
    for key, value in initial.items():
        if key not in feedback or value.size != inputs[key].width:
            stated = inputs[key].width if key in feedback else "no feedback"
            raise ValueError(f"initial_values has {value.size} numbers for {key}, whose input has {stated}")
    return LeappBundle(
        file=file,
        models=models,
        networks=networks,
        flow=flow,
        feedback=feedback,
        initial=initial,
        inputs={key: one for key, one in inputs.items() if key in ends[0]},
        outputs={key: one for key, one in outputs.items() if key in ends[1]},
        frequency=pipeline.configs.frequency,
        files=files,
        unread=unread,
    )


def _network(file: Path, name: str, model: LeappModel, unread: list[str]) -> Path:
    """File of a model, after comparing its hash."""
    path = _inside(file, model.parameters.model_path, f"models.{name}.parameters.model_path")
    data = read_bounded(path, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
    found, stated = hashlib.sha256(data).hexdigest(), model.parameters.sha256sum
    if stated is None:
        unread.append(f"models.{name} has no sha256sum that {path.name} could be compared with")
    elif stated != found:
        raise ValueError(f"{path.name} has the SHA-256 {found[:12]}…, models.{name} states {stated[:12]}…")
    return path


def _inside(file: Path, name: str, where: str) -> Path:
    home = file.resolve().parent
    path = home if "\0" in name else (home / name).resolve()
    if path == home or not path.is_relative_to(home):
        raise ValueError(f"{where} is {name!r}, expected a file in the bundle's folder")
    return path


def _edges(*sections: Flow) -> dict[str, str]:
    """Outputs by the inputs that get them."""
    edges: dict[str, str] = {}
    for source, targets in (pair for section in sections for pair in section.items()):
        for target in targets:
            if edges.setdefault(target, source) != source:
                raise ValueError(f"{target} gets both {edges[target]} and {source}")
    return edges


def _require_edges(
    edges: Mapping[str, str],
    inputs: Mapping[str, LeappTensor],
    outputs: Mapping[str, LeappTensor],
    order: list[str],
    what: str,
) -> None:
    """Check that edges connect tensors of one shape, and lead the way that they are said to."""
    for target, source in edges.items():
        if target not in inputs or source not in outputs:
            raise ValueError(f"{what} leads from {source} to {target}, and the models have no such tensors")
        ahead = order.index(source.partition("/")[0]) < order.index(target.partition("/")[0])
        if ahead != (what == "data_flow"):
            raise ValueError(f"{what} leads from {source} to {target}, against the order of the models")
        one, other = outputs[source], inputs[target]
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise ValueError(
                f"{source} is {one.dtype} {list(one.shape)}, {target}, which gets it, {other.dtype} {list(other.shape)}"
            )
