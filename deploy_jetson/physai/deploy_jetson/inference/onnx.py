"""A policy computed by onnxruntime on the processor: the reference, and the engine where there is no TensorRT."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from physai.deploy_jetson.inference.engine import EngineError, Floats
from physai.sdk.policy_file import MAX_POLICY_BYTES, PolicyHeader, parse_header


class OnnxEngine:
    """A policy file in onnxruntime, one thread."""

    def __init__(self, data: bytes, *, source: str) -> None:
        """Loads a policy.

        Args:
            data: the ONNX file.
            source: where it came from, for messages.

        Raises:
            EngineError: it is no ONNX file, or its inputs and outputs are not those of its contract.
            PolicyError: its metadata are missing or malformed.
            ContractError: its contract is malformed.
        """
        if not len(data) <= MAX_POLICY_BYTES:
            raise EngineError(f"{source}: {len(data)} bytes, a policy has at most {MAX_POLICY_BYTES}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen types of its own for a damaged model
            raise EngineError(f"{source}: onnxruntime cannot load it: {_first_line(error)}") from error
        self._header = parse_header(self._session.get_modelmeta().custom_metadata_map, source=source)
        _require("inputs", self._session.get_inputs(), self._header.inputs, source)
        _require("outputs", self._session.get_outputs(), self._header.outputs, source)
        self._outputs = list(self._header.outputs)
        self._source = source

    @property
    def header(self) -> PolicyHeader:
        """See Engine."""
        return self._header

    @property
    def versions(self) -> dict[str, str]:
        """See Engine."""
        return {"onnxruntime": onnxruntime.__version__}

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """See Engine; any number of states at once."""
        try:
            return dict(zip(self._outputs, self._session.run(None, dict(inputs)), strict=True))
        except Exception as error:
            raise EngineError(f"{self._source}: onnxruntime cannot compute it: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]


def _require(label: str, found: Sequence[Any], expected: Mapping[str, int], source: str) -> None:
    shapes = {tensor.name: (tensor.type, list(tensor.shape)[1:]) for tensor in found}
    wanted = {name: ("tensor(float)", [size]) for name, size in expected.items()}
    if shapes != wanted:
        raise EngineError(f"{source}: {label} are {shapes}, its contract asks for {wanted}")
