"""The robot's side: runtime, transports, updates.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

# Libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry

if TYPE_CHECKING:
    from physai.deploy_jetson.driving import RobotRun as RobotRun
    from physai.deploy_jetson.driving import run as run
    from physai.deploy_jetson.runtime.system.realtime import Realtime as Realtime

__all__ = ["Realtime", "RobotRun", "run"]

__getattr__ = lazy_exports(__name__)
