"""The child process that makes an ONNX file of weights alone, as checkpoints hold them."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from physai.foreign.body.torch_files import TORCH_SUFFIXES
from physai.foreign.body.torchscript import ACTION, HIDDEN, NEXT, OBSERVATION, parity, unable_to_write
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve

STEP_S = 15.0
"""Maximum time of each step in the child [s]."""
ARCHIVE, SAFETENSORS = ".zip", ".safetensors"
"""Endings of files of Stable-Baselines3 and of safetensors, which hold nothing but weights."""
_END = b"\0"
_ZIP = b"PK\x03\x04"
_PROGRAM = b"/constants.pkl"
"""Name that archives of TorchScript contain and those of weights do not."""


def is_weights(data: bytes, suffix: str) -> bool:
    """Whether a file is to hold weights alone: by its ending, or as an archive of torch without a program."""
    if suffix.lower() in TORCH_SUFFIXES:
        return data.startswith(_ZIP) and _PROGRAM not in data
    return suffix.lower() in (ARCHIVE, SAFETENSORS)


def convert_weights(data: bytes, *, source: str, settings: Mapping[str, Any]) -> tuple[JsonFacts, bytes]:
    """Make an ONNX file of a checkpoint in a child process with limits of time and memory.

    Args:
        data: the file.
        source: its name, for messages and for its kind.
        settings: `activation`, `squash` and `observation_clip`, as far as they are known; the last one bounds the
            observation before its normaliser.

    Returns:
        Facts (`library`, `observations`, `actions`, widths of the `hidden` layers, name of the `normaliser`, kind of
        the `memory`, whether it is after the other layers (`memory_after`), number of `norms` of layers, `bound` of the
        actions; `stated`: activation and squash with their sources, as far as the file or its library's program states
        them), and an ONNX file
        as `convert_torchscript` writes it, empty if activation or squash are not known.

    Raises:
        ApartError: it is no checkpoint of a known layout, or the child hung, crashed or used too much memory.
    """
    request = json.dumps({"source": source, **settings}).encode() + _END + data
    facts, blobs = call_apart(__name__, request, what=f"reading {source}", limit_s=lambda _: STEP_S)
    return facts, blobs[0]


def weights_changes(facts: JsonFacts, settings: Mapping[str, Any]) -> list[str]:
    """Return what the conversion of weights did, from its facts and settings."""
    bound = "" if facts["bound"] == 1.0 else f" of ±{facts['bound']:g}"
    changes = [
        f"weights of {facts['library']} became a graph, with {settings['activation']} between its layers and "
        f"{settings['squash']}{bound} after them"
    ]
    if facts["normaliser"]:
        changes.append(f"observations are normalised as {facts['library']} does ({facts['normaliser']})")
    if settings.get("observation_clip") is not None:
        changes.append(f"observations are clipped to ±{settings['observation_clip']:g} before")
    if facts["memory"]:
        where = "before the last layer" if facts["memory_after"] else "before the first layer"
        changes.append(f"its memory ({facts['memory']}, {where}) is an input and an output, and begins at zero")
    if facts["norms"]:
        changes.append(f"{facts['norms']} normalisations are over layers, with torch's constant 1e-5")
    return changes


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    head, _, data = request.partition(_END)
    settings = json.loads(head)
    source = str(settings["source"])
    report({"stage": "loading torch"})
    import torch

    torch.set_num_threads(1)
    report({"stage": "reading the weights"})
    try:
        return _converted(data, settings, report)
    except ForeignPolicyError as error:
        raise ForeignPolicyError(f"{source}: {error}") from None


def _converted(data: bytes, settings: dict[str, Any], report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    import torch

    from physai.foreign.body.checkpoints.actor import ACTIVATIONS, WeightsActor
    from physai.foreign.body.checkpoints.baselines import Stated, stated_by_baselines
    from physai.foreign.body.checkpoints.layouts import actor_weights
    from physai.foreign.body.checkpoints.tensors import read_checkpoint
    from physai.train.onnx_export.onnx_graph import export_flat

    with unable_to_write():
        contents = read_checkpoint(data, safetensors=str(settings["source"]).lower().endswith(SAFETENSORS))
    weights = actor_weights(contents.tensors)
    layout, stated = weights.layout, Stated()
    if layout.library == "stable_baselines3":
        stated = stated_by_baselines(contents.settings, weights)
    elif layout.squash:
        stated["squash"] = layout.squash, f"code: {layout.library}"
    known = {name: value for name, (value, _) in stated.items()}
    known |= {name: value for name, value in settings.items() if value is not None}
    facts: JsonFacts = {
        "library": layout.library,
        "observations": weights.observations,
        "actions": len(weights.layers[-1][0]),
        "hidden": weights.hidden,
        "normaliser": weights.normaliser,
        "memory": weights.kind,
        "memory_after": weights.place.after,
        "norms": len(weights.norms) + (weights.memory_norm is not None),
        "bound": known.get("bound", 1.0),
        "stated": {name: entry for name, entry in stated.items() if name != "bound"},
    }
    if not {"activation", "squash"} <= set(known):
        return facts, [b""]
    if known["activation"] not in ACTIVATIONS:
        raise ForeignPolicyError(f"the activation {known['activation']} is none of {', '.join(ACTIVATIONS)}")
    report({"stage": "writing ONNX"})
    actor = WeightsActor(
        weights,
        activation=known["activation"],
        squash=known["squash"],
        bound=facts["bound"],
        observation_clip=settings.get("observation_clip"),
    ).eval()
    hidden = actor.remembered
    inputs = {OBSERVATION: weights.observations, **({HIDDEN: hidden} if hidden else {})}
    onnx = export_flat(actor, inputs, [ACTION, *([NEXT] if hidden else [])]).SerializeToString(deterministic=True)
    report({"stage": "comparing"})
    memory = [torch.zeros(1, hidden)]

    def program(observation: torch.Tensor) -> torch.Tensor:
        found = actor(observation, *memory[: bool(hidden)])
        action, memory[0] = found if hidden else (found, memory[0])
        return action

    facts["parity"] = parity(program, onnx, weights.observations)
    return facts, [onnx]


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
