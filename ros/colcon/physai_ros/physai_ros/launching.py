"""Code shared by the launch files."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.substitutions import ExecutableInPackage

SHARE = Path(get_package_share_directory("physai_ros"))

# The `physai` executable of the node's Python, which need not be in PATH.
PHYSAI = ExecutableInPackage("physai", "physai_ros")

# Default and description of the arguments of every launch file with a policy.
POLICY_ARGUMENTS = {
    "root": ("", "folder of the robot's slots; empty: as in params_file"),
    "binding": ("", "YAML file of topics, or name of a built-in one; empty: as in params_file, or the robot's"),
    "namespace": ("", "namespace of the node and its topics"),
    "params_file": (str(SHARE / "config" / "policy.yaml"), "parameters of the policy node"),
    "autostart": ("true", "whether to configure and activate the node"),
    "watch": ("true", "whether to run `physai robot watch`, which ends trials; false if a service runs it"),
}


def policy_arguments() -> list[DeclareLaunchArgument]:
    """Declarations of POLICY_ARGUMENTS."""
    return [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in POLICY_ARGUMENTS.items()
    ]


def policy() -> IncludeLaunchDescription:
    """Includes `policy.launch.py` with the arguments of the including file."""
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "policy.launch.py")),
        launch_arguments={name: LaunchConfiguration(name) for name in POLICY_ARGUMENTS}.items(),
    )


def values(context: LaunchContext, *names: str) -> tuple[str, ...]:
    """Values of launch arguments."""
    return tuple(LaunchConfiguration(name).perform(context) for name in names)


def end_all(reason: str) -> OpaqueFunction:
    """Shuts the launch down, unless it is already shutting down: launch_ros fails on a second shutdown."""
    return unless_ending(Shutdown(reason=reason))


def unless_ending(action: LaunchDescriptionEntity) -> OpaqueFunction:
    """Performs an action, unless the launch is shutting down."""

    def act(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        return [] if context.is_shutdown else [action]

    return OpaqueFunction(function=act)
