"""Inference with onnxruntime on the CPU: the reference, and the engine without TensorRT."""

from collections.abc import Mapping

import onnxruntime

from physai.deploy_jetson.inference.engine import Floats, InferenceError
from physai.sdk.onnx.session import first_line, open_session


class OnnxEngine:
    """A policy file in onnxruntime; single-threaded."""

    def __init__(self, data: bytes, *, source: str) -> None:
        """Load a policy.

        Args:
            data: the ONNX file.
            source: the file's name, for messages.

        Raises:
            PolicyError: the file is invalid; see `open_session`.
            ContractError: its contract is malformed.
        """
        self._session, self.header = open_session(data, source=source)
        self._outputs = list(self.header.outputs)
        self._source = source

    @property
    def versions(self) -> dict[str, str]:
        """See `InferenceEngine`."""
        return {"onnxruntime": onnxruntime.__version__}

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """See `InferenceEngine`; accepts any batch size."""
        try:
            return dict(zip(self._outputs, self._session.run(None, dict(inputs)), strict=True))
        except Exception as error:
            raise InferenceError(f"{self._source}: onnxruntime cannot compute it: {first_line(error)}") from error
