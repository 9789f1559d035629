"""Reader of mjlab's exported policies: all in the metadata of the ONNX file, as lists between commas.

Its exporter rounds numbers to three decimals (`mjlab/rl/exporter_utils.py` of 1.6.0), and leaves out the control period
and the ranges of the commands.
"""

from collections.abc import Mapping
from typing import Any

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.reading import PolicyReading, PolicySource

KEYS = {"joint_names", "joint_stiffness", "joint_damping", "default_joint_pos", "observation_names", "action_scale"}
FIELDS = {
    "default_pos": "default_joint_pos",
    "stiffness": "joint_stiffness",
    "damping": "joint_damping",
    "action_scale": "action_scale",
}
TERMS = {
    "base_ang_vel": "ang_vel",
    "base_lin_vel": "base_lin_vel",
    "projected_gravity": "gravity",
    "joint_pos": "joint_pos",
    "joint_vel": "joint_vel",
    "actions": "last_action",
    "command": "command",
}
UNBOUNDED = 1e6
"""Clips beyond are none."""


def read(source: PolicySource) -> PolicyReading | None:
    """Read a policy; None if the file is not of this family.

    Raises:
        ForeignPolicyError: a term of the observation is not known, or its scale or clip cannot be expressed.
    """
    metadata = source.metadata
    if not set(metadata) >= KEYS:
        return None
    file = source.file
    place = file.resolve().parent
    if place.name == "exported" and (place.parent / "params" / "deploy.yaml").is_file():
        # Unitree's: its program goes by that file, with which its reader compares the metadata.
        return None
    reading = PolicyReading(family="mjlab", network=file, files={file})
    reading.state("joints", _words(metadata["joint_names"]), f"{file.name}: joint_names")
    for name, key in FIELDS.items():
        numbers = [float(word) for word in _words(metadata[key])]
        value: Any = numbers[0] if name == "action_scale" and len(numbers) == 1 else numbers
        reading.state(name, value, f"{file.name}: {key}, rounded to three decimals by its exporter")
    if not any(key.startswith("observation_terms_") for key in metadata):
        reading.unread.append("the file states no scales, clips and histories of the terms: taken as 1, none and none")
    reading.state("observation", _terms(source), f"{file.name}: observation_names and observation_terms_…")
    return reading


def _terms(source: PolicySource) -> list[dict[str, Any]]:
    metadata = source.metadata
    names = _words(metadata["observation_names"])
    scales = _listed(metadata, "observation_terms_scale", len(names), "1.0")
    clips = _listed(metadata, "observation_terms_clip", len(names), "-inf;inf")
    lengths = _listed(metadata, "observation_terms_history_length", len(names), "0")
    terms: list[dict[str, Any]] = []
    for name, scale, clip, length in zip(names, scales, clips, lengths, strict=True):
        if name not in TERMS:
            raise ForeignPolicyError(
                f"{source.file}: the observation has the term {name!r}, which the reader does not know; describe the "
                "policy in a physai.yaml"
            )
        low, high = (float(word) for word in clip.split(";"))
        if low != -high:
            raise ForeignPolicyError(f"{source.file}: {name} is clipped to {low:g} to {high:g}, which is not symmetric")
        if len(set(scale.split(";"))) > 1:
            raise ForeignPolicyError(f"{source.file}: {name} has a scale for each element, {scale}, so far one is read")
        term: dict[str, Any] = {"of": TERMS[name], "scale": float(scale.split(";")[0])}
        terms.append(
            term
            | ({"clip": high} if high < UNBOUNDED else {})
            | ({"history": int(float(length))} if float(length) > 1.0 else {})
        )
    return terms


def _listed(metadata: Mapping[str, str], key: str, count: int, default: str) -> list[str]:
    words = _words(metadata[key]) if key in metadata else [default] * count
    if len(words) != count:
        raise ForeignPolicyError(f"{key} has {len(words)} entries for {count} observation_names")
    return words


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]
