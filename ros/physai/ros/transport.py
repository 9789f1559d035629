"""The transport `ros`: both ends of a robot's ROS 2 topics through rclpy. The policy node uses it, too."""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from physai.ros.wire import RosMiddleware, relative
from physai.sdk.base.errors import MissingExtraError
from physai.sdk.transport.protocol import TransportError, WatchdogEndpoint
from physai.sdk.transport.simulation import Simulation
from physai.transport.binding import Binding, TopicBinding, find_binding
from physai.transport.dds.dds_ends import (
    COMPANION_OF,
    NODE,
    WATCHDOG_SUFFIX,
    DdsRobotEndpoint,
    DdsTransport,
)

DDS_MIDDLEWARE = ("rmw_cyclonedds_cpp", "rmw_fastrtps_cpp", "rmw_fastrtps_dynamic_cpp", "rmw_connextdds")
TRANSPORT_NODE = "physai_transport"
ROBOT_NODE = "physai_virtual_robot"


class RosTransport(DdsTransport):
    """The runtime's end, on its own node or on a given one."""

    name = "ros"

    def __init__(self, options: Mapping[str, str], node: Any = None) -> None:
        """Checks the options; connects nothing.

        Args:
            options: same options as the transport dds.
            node: rclpy node to use; None to create one.

        Raises:
            UnknownNameError: an option does not exist.
            TransportError: the domain is invalid.
            MissingExtraError: ROS 2 is not installed.
        """
        super().__init__(options)
        require_rclpy()
        self._given = node
        self._own: OwnNode | None = None
        self._wire: RosMiddleware | None = None
        # Descriptor of the file with the binding for the companion.
        self._resolved: int | None = None

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        return (*super().problems(), *(() if self._wire is None else self._wire.problems()))

    def forget(self) -> None:
        """See `Forgets`."""
        super().forget()
        if self._wire is not None:
            self._wire.forget()

    def _join(self) -> RosMiddleware:
        if self._given is not None:
            binding = find_binding(self._contract, self._options.get("binding"))
            frames = {one.topic: one.frame for one in binding.reads if one.frame is not None}
            self._wire = RosMiddleware(self._given, self._domain, frames=frames)
            return self._wire
        self._own = OwnNode(self._options.get(NODE, TRANSPORT_NODE), self._domain)
        return RosMiddleware(self._own.node, self._domain)

    def companion(self) -> WatchdogEndpoint:
        """See `SupportsWatchdog`: on DDS without ROS if that reaches the same robot, otherwise on its own node.

        Topic names are those after remapping.
        """
        node = self._given if self._own is None else self._own.node
        # Remappings apply to nodes of this process only, not to the watchdog's.
        binding = resolved(find_binding(self._contract, self._options.get("binding")), node)
        self._forget_binding()
        self._resolved = descriptor = os.memfd_create("physai-binding")
        # An anonymous file: the binding as resolved here exists nowhere else.
        os.write(descriptor, binding.model_dump_json().encode())
        options = {name: self._options[name] for name in ("range",) if name in self._options}
        options |= {"domain": str(self._domain), "binding": f"/dev/fd/{descriptor}"}
        options |= {NODE: str(node.get_name()) + WATCHDOG_SUFFIX, COMPANION_OF: self._opened().owner}
        return WatchdogEndpoint("dds" if speaks_dds() else self.name, options, (descriptor,))

    def _forget_binding(self) -> None:
        descriptor, self._resolved = self._resolved, None
        if descriptor is not None:
            os.close(descriptor)

    def diagnose(self, level: int, message: str, values: Mapping[str, str]) -> None:
        """See `SupportsDiagnostics`; a given node publishes its own diagnostics."""
        if self._given is None:
            super().diagnose(level, message, values)

    def close(self) -> None:
        """See `Transport.close`; a given node is not destroyed."""
        super().close()
        self._forget_binding()
        if self._own is not None:
            self._own.close()
            self._own = None


def resolved(binding: Binding, node: Any) -> Binding:
    """A binding with the topics' full names in the namespace of a node, after remapping."""

    def full(topics: tuple[TopicBinding, ...]) -> tuple[TopicBinding, ...]:
        return tuple(
            one.model_copy(update={"topic": str(node.resolve_topic_name(relative(one.topic)))}) for one in topics
        )

    return binding.model_copy(update={"reads": full(binding.reads), "writes": full(binding.writes)})


class RosRobotEndpoint(DdsRobotEndpoint):
    """The robot's end, on its own node."""

    name = "ros"

    def __init__(self, options: Mapping[str, str]) -> None:
        """See `RosTransport`."""
        super().__init__(options)
        require_rclpy()
        self._own: OwnNode | None = None

    def _join(self) -> RosMiddleware:
        self._own = OwnNode(ROBOT_NODE, self._domain)
        return RosMiddleware(self._own.node, self._domain)

    def serve(self, simulation: Simulation) -> str:
        """See `ServesSimulation`: the services of the package simulation_interfaces, if that is installed."""
        if self._own is None:
            raise TransportError("the transport ros is not open")
        try:
            from physai.ros.simulation import SimulationServices
        except ImportError as error:
            return (
                f"no services to pause, step or reset ({error}); to have them, install "
                "ros-$ROS_DISTRO-simulation-interfaces"
            )
        services = SimulationServices(self._own.node, simulation)
        self._own.spin()
        return f"services: {', '.join(services.names)}"

    def close(self) -> None:
        """See `RobotEndpoint.close`."""
        super().close()
        if self._own is not None:
            self._own.close()
            self._own = None


class OwnNode:
    """A node in a separate context, whose subscriptions are read directly; it is spun only for its services."""

    def __init__(self, name: str, domain: int) -> None:
        """Joins the domain; the process's ROS arguments (remappings) apply."""
        import rclpy
        from rclpy.context import Context

        self._context = Context()
        # A context of its own, so that closing it leaves other nodes of the process alone.
        rclpy.init(context=self._context, domain_id=domain)
        self.node: Any = rclpy.create_node(name, context=self._context)
        self._executor: Any = None
        self._spinner = threading.Thread(target=self._spin, name="physai-ros", daemon=True)

    def spin(self) -> None:
        """Serves its services in a separate thread."""
        from rclpy.executors import SingleThreadedExecutor

        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._spinner.start()

    def _spin(self) -> None:
        from rclpy.executors import ExternalShutdownException

        with suppress(ExternalShutdownException):
            self._executor.spin()

    def close(self) -> None:
        """Leaves the domain."""
        if self._executor is not None:
            self._executor.shutdown()
            self._spinner.join()
        self.node.destroy_node()
        self._context.try_shutdown()


def speaks_dds() -> bool:
    """Whether Cyclone DDS is installed and interoperates with ROS 2's middleware."""
    # The default middleware of ROS 2 Jazzy.
    middleware = os.environ.get("RMW_IMPLEMENTATION") or "rmw_fastrtps_cpp"
    return middleware in DDS_MIDDLEWARE and find_spec("cyclonedds") is not None


def require_rclpy() -> None:
    """Raises MissingExtraError if rclpy cannot be imported."""
    try:
        import rclpy
    except ImportError as error:
        raise MissingExtraError(
            f"the transport ros needs ROS 2 ({error}): source its setup file first "
            "(. /opt/ros/$ROS_DISTRO/setup.bash), or use --transport dds, which uses the same topics without it"
        ) from error
    del rclpy
