"""The one place in which onnxruntime gets a policy's bytes: checked first, nothing but the bytes, on the processor."""

import onnxruntime

from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PolicyError, PolicyHeader

Session = onnxruntime.InferenceSession


def open_session(data: bytes, *, source: str, num_threads: int = 1, spin: bool = True) -> tuple[Session, PolicyHeader]:
    """A policy that `check_policy` accepts, in onnxruntime, and its header.

    Args:
        data: the ONNX file.
        source: where it came from, for messages.
        num_threads: threads of one call.
        spin: whether threads wait by spinning, which takes the processor from other work.

    Raises:
        PolicyError: the file is refused, by us (GraphError) or by onnxruntime.
        ContractError: its contract is malformed.
    """
    header = check_policy(data, source=source)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Bytes can also look like onnxruntime's own format, which nothing has checked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    if not spin:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return Session(data, options, providers=["CPUExecutionProvider"]), header
    except Exception as error:  # onnxruntime raises a dozen types of its own
        raise PolicyError(f"{source}: onnxruntime cannot load it: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of what a library says went wrong."""
    return (str(error).splitlines() or ["no reason given"])[0]
