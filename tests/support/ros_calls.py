"""What other nodes of a ROS domain are asked, by a node of rclpy's in this process."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from physai.ros.transport import OwnNode

WAIT_S = 60.0
"""Longest wait for anything, on a busy machine."""

NAME = "tester"


def eventually(true: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Waits until it is true, and returns it."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"{what}: not within {timeout_s:g} s")


class RosCalls:
    """A node that is spun."""

    def __init__(self, domain: int) -> None:
        """Joins the domain."""
        self._own = OwnNode(NAME, domain)
        self._own.spin()
        self.node: Any = self._own.node
        self._clients: dict[str, Any] = {}

    def nodes(self) -> list[str]:
        """Full names of the nodes in the domain."""
        return [f"{folder.rstrip('/')}/{name}" for name, folder in self.node.get_node_names_and_namespaces()]

    def begin(self, service: str, kind: Any, **fields: Any) -> Any:
        """Calls a service, and returns the future of its response."""
        if service not in self._clients:
            self._clients[service] = self.node.create_client(kind, service)
        client = self._clients[service]
        assert client.wait_for_service(WAIT_S), f"no service {service}"
        return client.call_async(kind.Request(**fields))

    def call(self, service: str, kind: Any, **fields: Any) -> Any:
        """The response of a service."""
        future = self.begin(service, kind, **fields)
        # A transition to activate lasts as long as the node waits for samples, and ends itself.
        eventually(future.done, f"a response of {service}", 2 * WAIT_S)
        return future.result()

    def begin_transition(self, node: str, label: str) -> Any:
        """Asks a managed node for a transition, and returns the future of its response."""
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState

        return self.begin(f"{node}/change_state", ChangeState, transition=Transition(label=label))

    def transition(self, node: str, label: str) -> bool:
        """Whether a managed node's transition succeeded."""
        future = self.begin_transition(node, label)
        eventually(future.done, f"the end of {label}", 2 * WAIT_S)
        return bool(future.result().success)

    def state(self, node: str) -> str:
        """A managed node's."""
        from lifecycle_msgs.srv import GetState

        return str(self.call(f"{node}/get_state", GetState).current_state.label)

    def trigger(self, service: str) -> tuple[bool, str]:
        """Success and message of a std_srvs/Trigger."""
        from std_srvs.srv import Trigger

        response = self.call(service, Trigger)
        return bool(response.success), str(response.message)

    def parameters(self, node: str) -> list[str]:
        """Names of a node's parameters."""
        from rcl_interfaces.srv import ListParameters

        return list(self.call(f"{node}/list_parameters", ListParameters).result.names)

    def descriptor(self, node: str, name: str) -> Any:
        """Description and range of a node's parameter."""
        from rcl_interfaces.srv import DescribeParameters

        (found,) = self.call(f"{node}/describe_parameters", DescribeParameters, names=[name]).descriptors
        return found

    def set_parameter(self, node: str, name: str, value: Any) -> tuple[bool, str]:
        """Whether a node took a parameter's value, and why not."""
        from rcl_interfaces.srv import SetParameters
        from rclpy.parameter import Parameter

        message = Parameter(name, value=value).to_parameter_msg()
        (result,) = self.call(f"{node}/set_parameters", SetParameters, parameters=[message]).results
        return bool(result.successful), str(result.reason)

    def message(self, topic: str, kind: Any, *, latched: bool = False) -> Any:
        """The next message of a topic, or the latched one."""
        from rclpy.qos import DurabilityPolicy, QoSProfile

        durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
        found: list[Any] = []
        subscription = self.node.create_subscription(
            kind, topic, found.append, QoSProfile(depth=1, durability=durability)
        )
        eventually(lambda: found, f"a message of {topic}")
        self.node.destroy_subscription(subscription)
        return found[0]

    def close(self) -> None:
        """Leaves the domain."""
        self._own.close()
