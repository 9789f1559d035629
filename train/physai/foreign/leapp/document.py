"""The YAML file of a LEAPP bundle, as NVIDIA's exporter writes it, and as Isaac ROS Deploy does.

Keys that have no field here are kept as extra ones.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.formats.yaml_file import read_yaml

MAX_BYTES = 1 << 20
MAX_FILES = 32
"""Greatest number of YAML files of a folder that are looked into."""
REMARKS = {
    "warp_segments": ": Warp segments are native code and no graph",
    "backend": ": a graph is needed, and neither native code (`warp`) nor a program of Python (`pt2`)",
    "controller_owned_writes": ": the policy asks the controller for more than targets",
    "shape": ": one axis has size 1, for the robot",
    "history": ": a history outside the network",
    "history_length": ": a history outside the network",
}
"""Reasons why values of fields are not supported."""


def _sizes(value: Any) -> Any:
    # Older exporters write them as text.
    return json.loads(value) if isinstance(value, str) else value


Key = Annotated[str, Field(pattern=r"^[^/\x00]{1,256}$")]
"""Name of a model or tensor; a slash joins the two."""
Port = Annotated[str, Field(pattern=r"^[^/\x00]{1,256}/[^/\x00]{1,256}$")]
Flow = dict[Port, Annotated[list[Port], Field(max_length=64)]]
Ends = dict[Key, Annotated[list[Key], Field(max_length=64)]]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)


class LeappTensor(_Part):
    """An input or output of a model."""

    name: Key
    dtype: Literal["float32", "int32", "int64", "bool"] = "float32"
    shape: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_sizes), Field(min_length=2, max_length=6)
    ]
    """Sizes of the axes, of which one is that of the robots and has 1."""
    type: Literal["tensor"] = "tensor"
    kind: str = "none"
    element_names: list[Any] | None = None
    isaaclab_connection: str = ""
    """Property that Isaac Lab reads or writes there."""
    history: Literal[0] = 0
    history_length: Literal[0] = 0
    """Number of past samples that Isaac ROS Deploy keeps for the network."""

    @property
    def width(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class LeappParameters(_Part):
    """File of a model."""

    model_path: str
    sha256sum: str | None = None
    md5sum: str | None = None
    backend: Literal["onnx", "triton", "jit"]
    """`triton` is Isaac ROS Deploy's name of ONNX, `jit` is TorchScript."""
    warp_segments: Literal[0] = 0
    opset_version: int | None = None


class LeappModel(_Part):
    """A network with its tensors in their order."""

    inputs: Annotated[tuple[LeappTensor, ...], Field(min_length=1, max_length=64)]
    outputs: Annotated[tuple[LeappTensor, ...], Field(min_length=1, max_length=64)]
    parameters: LeappParameters


class LeappIsaacLab(_Part):
    """Settings of Isaac Lab's exporter."""

    controller_owned_writes: None = None


class LeappConfigs(_Part):
    """Settings of the pipeline."""

    frequency: Annotated[float | None, Field(gt=0.0, le=1e6)] = None
    """Number of periods per second [Hz]."""
    isaaclab: LeappIsaacLab = LeappIsaacLab()


class LeappPipeline(_Part):
    """Connections between the models, and those to the robot."""

    data_flow: Flow = {}
    feedback_flow: Flow = {}
    feedback_connections: Flow = {}
    """The same, as Isaac ROS Deploy calls it."""
    initial_values: str | None = None
    inputs: Ends
    outputs: Ends
    configs: LeappConfigs = LeappConfigs()


class LeappSystem(_Part):
    """Provenance of the bundle."""

    version: Annotated[
        Literal["1.0", "1.1", "1.2", "1.3"], BeforeValidator(str), Field(alias="leapp config version")
    ] = "1.3"


class LeappDocument(_Part):
    """The whole file."""

    models: Annotated[dict[Key, LeappModel], Field(min_length=1, max_length=16)]
    pipeline: LeappPipeline
    system: LeappSystem = Field(default=LeappSystem(), alias="system information")

    def unread(self) -> list[str]:
        """Return the paths of keys that have no field."""
        return [*(self.model_extra or {}), *_extra(self.models, "models"), *_extra(self.pipeline, "pipeline")]


def _extra(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{where}.{key}" for key in value.model_extra or {})
        value = {key: getattr(value, key) for key in type(value).model_fields}
    if isinstance(value, tuple):
        value = {one.name: one for one in cast("tuple[Any, ...]", value) if isinstance(one, LeappTensor)}
    if isinstance(value, dict):
        for key, one in cast("dict[str, Any]", value).items():
            yield from _extra(one, f"{where}.{key}")


def read_document(file: Path) -> LeappDocument:
    """Read the YAML file of a bundle.

    Raises:
        ForeignPolicyError: it is damaged, or not as the format has it.
    """
    found = read_yaml(file, what="a LEAPP bundle", max_bytes=MAX_BYTES, error=ForeignPolicyError, tags=True)
    try:
        return LeappDocument.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:80] for part in first["loc"]) or "the file"
        remark = REMARKS.get(str(first["loc"][-1]), "") if first["loc"] else ""
        raise ForeignPolicyError(f"{file}: {where} is {str(first['input'])[:60]}: {first['msg']}{remark}") from None


def find_document(file: Path) -> Path | None:
    """Return the YAML file of the bundle that a file or folder belongs to; None if there is none.

    Raises:
        ForeignPolicyError: there are several.
    """
    if file.suffix.lower() in (".yaml", ".yml"):
        return file if _is_bundle(file) else None
    folder, name = (file, "") if file.is_dir() else (file.parent, file.name)
    if not folder.is_dir():
        return None
    names = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))[:MAX_FILES]
    found = [path for path in names if _is_bundle(path, name)]
    if len(found) > 1:
        raise ForeignPolicyError(f"{file}: give one LEAPP bundle: {', '.join(path.name for path in found)}")
    return found[0] if found else None


def _is_bundle(path: Path, model: str = "") -> bool:
    """Whether a file has the sections of a bundle, and the name of a model's file."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return False
    data = path.read_bytes()
    lines = {line.rstrip() for line in data.splitlines()}
    return {b"models:", b"pipeline:"} <= lines and b"model_path:" in data and model.encode("utf-8", "ignore") in data
