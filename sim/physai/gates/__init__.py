"""Gates of `physai sim validate`: each tests one property of an exported policy and can fail it.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.gates.report.exam_opening import open_exam as open_exam
    from physai.gates.report.validation import validate as validate
    from physai.gates.report.validation_options import ValidationOptions as ValidationOptions
    from physai.gates.settings import GateSettings as GateSettings
    from physai.gates.settings import load_gates as load_gates

__all__ = [
    "GateSettings",
    "ValidationOptions",
    "load_gates",
    "open_exam",
    "validate",
]

__getattr__ = lazy_exports(__name__)
