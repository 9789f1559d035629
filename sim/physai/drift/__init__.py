"""Drift: whether a robot is still the one that its twin describes, from recordings of its work.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.drift.errors import DriftError as DriftError
    from physai.drift.report import DriftMoment as DriftMoment
    from physai.drift.report import DriftParameter as DriftParameter
    from physai.drift.report import DriftReport as DriftReport
    from physai.drift.report import DriftStep as DriftStep
    from physai.drift.watch import drift as drift

__all__ = ["DriftError", "DriftMoment", "DriftParameter", "DriftReport", "DriftStep", "drift"]

__getattr__ = lazy_exports(__name__)
