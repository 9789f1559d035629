"""Executables of this package: `ros2 run physai_ros policy_node` and `ros2 run physai_ros physai`."""

import sys


def policy_node() -> int:
    """Runs the node."""
    try:
        from physai.ros.main import main
    except ModuleNotFoundError as error:
        return _missing(error)
    return main()


def physai() -> int:
    """Runs physai's command line in the node's Python."""
    try:
        from physai.sdk.cli.main import main
    except ModuleNotFoundError as error:
        return _missing(error)
    return main()


def _missing(error: ModuleNotFoundError) -> int:
    """Prints what to install if physai is missing in this Python."""
    if error.name is None or error.name.partition(".")[0] != "physai":
        raise error
    print(
        f"physai_ros: physai is not installed for {sys.executable}; install it for that Python: "
        "pip install 'physai-sdk[ros]'",
        file=sys.stderr,
    )
    return 2
