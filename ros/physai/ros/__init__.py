"""ROS 2: the policy node and the transport ros.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry

if TYPE_CHECKING:
    from physai.ros.transport import RosRobotEndpoint as RosRobotEndpoint
    from physai.ros.transport import RosTransport as RosTransport

__all__ = ["RosRobotEndpoint", "RosTransport"]

__getattr__ = lazy_exports(__name__)
