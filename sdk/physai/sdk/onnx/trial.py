"""Trial inference of a policy in a subprocess with a time and a memory limit.

`check_policy` ensures that a graph's cost does not depend on its inputs, but does not bound it: onnxruntime may hang or
exhaust the memory while it loads or runs a graph.
"""

import sys
from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PolicyError

TRIAL_S = 8.0
"""Maximum time to load a policy, and for each inference [s]."""

TRIAL_STATES = 64
"""Batch size of the second inference; that of the first is 1."""

_END = b"\0"
"""Separates the name of a policy from its content."""

_tried: set[bytes] = set()
"""SHA-256 of the policies that this process has tried."""


def try_policy(data: bytes, *, source: str) -> None:
    """Load and run a policy in a subprocess, to find out whether it is safe to load in this process.

    Args:
        data: the ONNX file.
        source: origin of the file, for messages.

    Raises:
        PolicyError: the file is rejected.
        ContractError: its contract is malformed.
        ApartError: it hung, used too much memory or crashed, or onnxruntime cannot load or run it.
    """
    digest = sha256(data).digest()
    if digest in _tried:
        return
    check_policy(data, source=source)
    what = f"the first inference of {source}"
    call_apart(__name__, source.encode() + _END + data, what=what, limit_s=lambda _: TRIAL_S)
    _tried.add(digest)


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    from physai.sdk.onnx.session import first_line, open_session

    name, _, data = request.partition(_END)
    source = name.decode()
    report({"stage": "loading"})
    session, header = open_session(data, source=source)
    for rows in (1, TRIAL_STATES):
        report({"stage": f"computing {rows} states"})
        states = {field: np.zeros((rows, size), np.float32) for field, size in header.inputs.items()}
        try:
            session.run(None, states)
        except Exception as error:  # onnxruntime has a dozen exception types without a common base
            raise PolicyError(f"{source}: onnxruntime cannot compute it: {first_line(error)}") from error
    return {}, []


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
