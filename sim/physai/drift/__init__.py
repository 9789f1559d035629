"""Drift: whether a robot is still the one that its twin describes, from recordings of its work.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.drift.errors import DriftError as DriftError
    from physai.drift.filing import file_report as file_report
    from physai.drift.fleet import FleetDrift as FleetDrift
    from physai.drift.fleet import FleetRobot as FleetRobot
    from physai.drift.fleet import fleet_drift as fleet_drift
    from physai.drift.renewal.renew import Renewal as Renewal
    from physai.drift.renewal.renew import renew as renew
    from physai.drift.report import DriftMoment as DriftMoment
    from physai.drift.report import DriftParameter as DriftParameter
    from physai.drift.report import DriftReport as DriftReport
    from physai.drift.report import DriftStep as DriftStep
    from physai.drift.watch import drift as drift

__all__ = [
    "DriftError",
    "DriftMoment",
    "DriftParameter",
    "DriftReport",
    "DriftStep",
    "FleetDrift",
    "FleetRobot",
    "Renewal",
    "drift",
    "file_report",
    "fleet_drift",
    "renew",
]

__getattr__ = lazy_exports(__name__)
