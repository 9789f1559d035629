"""The first computation of a policy on a machine: in a process of its own, with little time and bounded memory.

`check_policy` makes sure that a graph costs the same for every input, but not that it costs little: onnxruntime may
hang or take all memory while it loads a graph, before it computes the first state.
"""

import sys
from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from physai.sdk.base.isolation import JsonFacts, ReportProgress, call_apart, serve
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PolicyError

TRIAL_S = 8.0
"""Longest time to load a policy, and to compute it once [s]."""

TRIAL_STATES = 64
"""States that are computed at once, after a single one."""

_END = b"\0"
"""Between the name of a policy, which holds none, and its bytes."""

_tried: set[bytes] = set()
"""SHA-256 of what this process has tried."""


def try_policy(data: bytes, *, source: str) -> None:
    """Loads a policy and computes it twice in another process; what passes may be loaded here.

    Args:
        data: the ONNX file.
        source: where it came from, for messages.

    Raises:
        PolicyError: the file is refused.
        ContractError: its contract is malformed.
        ApartError: it hung, took too much memory or crashed, or onnxruntime cannot load or compute it.
    """
    digest = sha256(data).digest()
    if digest in _tried:
        return
    check_policy(data, source=source)
    what = f"the first computation of {source}"
    call_apart(__name__, source.encode() + _END + data, what=what, limit_s=lambda told: TRIAL_S)
    _tried.add(digest)


def _work(request: bytes, tell: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    from physai.sdk.onnx.session import first_line, open_session

    name, _, data = request.partition(_END)
    source = name.decode()
    tell({"stage": "loading"})
    session, header = open_session(data, source=source)
    for rows in (1, TRIAL_STATES):
        tell({"stage": f"computing {rows} states"})
        states = {field: np.zeros((rows, size), np.float32) for field, size in header.inputs.items()}
        try:
            session.run(None, states)
        except Exception as error:  # onnxruntime raises a dozen types of its own
            raise PolicyError(f"{source}: onnxruntime cannot compute it: {first_line(error)}") from error
    return {}, []


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
