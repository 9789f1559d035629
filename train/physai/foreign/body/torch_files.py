"""Files of torch."""

TORCH_SUFFIXES = (".pt", ".pth", ".jit", ".torchscript")
"""Endings of TorchScript and of pickles."""
