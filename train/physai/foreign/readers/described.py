"""Reader of `physai.yaml`, our own description of a policy from anywhere."""

from typing import Any, cast

from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.isaac.weights_reading import WeightsReading
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.base.errors import unknown_name
from physai.sdk.base.formats.yaml_file import read_yaml

NAME = "physai.yaml"
"""Name of the description in a folder that is given."""
MAX_BYTES = 1 << 18
NETWORK, NETWORKS = "network", "networks"
"""Keys of the name of an ONNX or TorchScript file or of a checkpoint, relative to the description, and of several
networks."""


def read(source: PolicySource) -> PolicyReading | None:
    """Read a description; None for other files, and for one that names no network.

    Raises:
        ForeignPolicyError: it is no description, or names a network outside its folder.
    """
    file = source.file / NAME if source.file.is_dir() else source.file
    if source.file.is_dir() and not file.is_file():
        return None
    if file.suffix.lower() not in (".yaml", ".yml"):
        return None
    found = read_yaml(file, what="a description of a policy", max_bytes=MAX_BYTES, error=ForeignPolicyError, tags=True)
    if not isinstance(found, dict):
        return None
    values = {str(key): value for key, value in cast("dict[Any, Any]", found).items()}
    network = values.pop(NETWORK) if NETWORK in values else _last(values.get(NETWORKS))
    if network is None:
        if values and values.keys() <= PolicyDescription.model_fields.keys():
            raise ForeignPolicyError(f"{file}: {NETWORK} is missing, which names the policy's file in its folder")
        return None
    if not isinstance(network, str):
        raise ForeignPolicyError(f"{file}: {NETWORK} names the policy's file, got {network!r}")
    path = file.parent / network
    if not path.resolve().is_relative_to(file.parent.resolve()):
        raise ForeignPolicyError(f"{file}: {NETWORK} {network!r} is outside its folder")
    reading = WeightsReading(family="physai", network=path, files={file})
    for name, value in values.items():
        if name not in PolicyDescription.model_fields:
            raise unknown_name("key", name, (NETWORK, *PolicyDescription.model_fields))
        reading.state(name, value, f"{file.name}: {name}")
    reading.look()
    return reading


def _last(networks: Any) -> Any:
    """Return the file of the last of several networks; None if there is none."""
    listed = cast("list[Any]", networks) if isinstance(networks, list) else []
    last = listed[-1] if listed else None
    return cast("dict[Any, Any]", last).get("file") if isinstance(last, dict) else None
