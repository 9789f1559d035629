"""What the launch files have in common."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.substitutions import ExecutableInPackage

SHARE = Path(get_package_share_directory("physai_ros"))

PHYSAI = ExecutableInPackage("physai", "physai_ros")
"""physai's command line in the Python that runs the node, whether or not that is in PATH."""

POLICY_ARGUMENTS = {
    "root": ("", "the robot's tree of slots; empty: that of params_file"),
    "binding": ("", "YAML file of topics, or a built-in one's name; empty: that of params_file, else the robot's"),
    "namespace": ("", "of the node and its topics"),
    "params_file": (str(SHARE / "config" / "policy.yaml"), "parameters of the policy node"),
    "autostart": ("true", "whether to configure and activate it"),
    "watch": ("true", "whether to run `physai robot watch`, which ends trials; false where the robot's service does"),
}
"""Default and meaning of what every launch file with a policy takes."""


def policy_arguments() -> list[DeclareLaunchArgument]:
    """Declares them."""
    return [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in POLICY_ARGUMENTS.items()
    ]


def policy() -> IncludeLaunchDescription:
    """What `policy.launch.py` brings up, with the arguments of the file that includes it."""
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "policy.launch.py")),
        launch_arguments={name: LaunchConfiguration(name) for name in POLICY_ARGUMENTS}.items(),
    )


def values(context: LaunchContext, *names: str) -> tuple[str, ...]:
    """Launch arguments as they were given."""
    return tuple(LaunchConfiguration(name).perform(context) for name in names)


def end_all(reason: str) -> OpaqueFunction:
    """Ends the whole launch, unless it is about to end already: launch_ros fails on a second shutdown."""
    return unless_ending(Shutdown(reason=reason))


def unless_ending(action: LaunchDescriptionEntity) -> OpaqueFunction:
    """Does something, unless the launch is about to end."""

    def act(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        return [] if context.is_shutdown else [action]

    return OpaqueFunction(function=act)
