"""ROS 2: the policy node and the transport ros."""

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry
