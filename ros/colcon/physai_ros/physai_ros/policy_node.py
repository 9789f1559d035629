"""`ros2 run physai_ros policy_node`."""

import sys


def main() -> int:
    """Runs the node; says what to install where physai is not in this Python."""
    try:
        from physai.ros.main import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "physai":
            raise
        print(
            f"physai_ros: physai is not installed for {sys.executable}; install it for that Python: "
            "pip install 'physai-sdk[ros]'",
            file=sys.stderr,
        )
        return 2
    return run()
