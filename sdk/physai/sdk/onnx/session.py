"""Load policies into onnxruntime, after `check_policy`; nothing else passes policy files to onnxruntime."""

import onnxruntime

from physai.sdk.base.errors import DeviceError
from physai.sdk.onnx.device import CPU, PolicyDevice, configure, require_computed_on, require_provider
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PolicyError, PolicyHeader

Session = onnxruntime.InferenceSession


def open_session(
    data: bytes, *, source: str, num_threads: int = 1, spin: bool = True, device: PolicyDevice = CPU
) -> tuple[Session, PolicyHeader]:
    """Check a policy and load it into onnxruntime.

    Args:
        data: the ONNX file.
        source: origin of the file, for messages.
        num_threads: number of intra-op threads.
        spin: whether idle threads spin, which takes CPU time from other work.
        device: what computes the policy; never anything else in its place.

    Raises:
        DeviceError: the device cannot compute all of it.
        PolicyError: the file is rejected by `check_policy` (GraphError) or by onnxruntime.
        ContractError: its contract is malformed.
    """
    header = check_policy(data, source=source)
    require_provider(device)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Otherwise onnxruntime also accepts its own ORT format, which `check_policy` does not cover.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    if not spin:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    configure(options, device)
    try:
        # No second try with other providers, and no options from the metadata of the file.
        session = Session(data, options, providers=device.providers, enable_fallback=0, read_config_from_model=0)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        if device.kind != "cpu":
            raise DeviceError(
                f"{source}: ONNX Runtime's {device.provider} cannot load it for `device` {device}: "
                f"{first_line(error)}; install the libraries that it names, or use `device` cpu"
            ) from error
        raise PolicyError(f"{source}: onnxruntime cannot load it: {first_line(error)}") from error
    require_computed_on(device, session, source=source)
    return session, header


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return (str(error).splitlines() or ["no reason given"])[0]
