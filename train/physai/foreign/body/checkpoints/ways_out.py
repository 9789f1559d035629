"""Advice for files that cannot be read."""

WAY_OUT = "export it to ONNX or TorchScript in its own framework"
