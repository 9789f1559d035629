"""Names of the files that an import adds to a run folder, and endings of those that it reads."""

REPORT_FILE = "import.md"
"""Each field with its source, for people."""

RECORD_FILE = "import.json"
"""The same for machines, with the hashes of the files that were read."""

TORCH_SUFFIXES = (".pt", ".pth", ".jit", ".torchscript")
"""Endings of files of torch, which are TorchScript or pickles."""
