"""Gates of `physai sim validate`: each tests one property of an exported policy and can fail it.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.gates.checks.gate import Context as Context
    from physai.gates.checks.gate import Gate as Gate
    from physai.gates.checks.gate import GateFinding as GateFinding
    from physai.gates.checks.gate import Play as Play
    from physai.gates.report.exam_opening import open_exam as open_exam
    from physai.gates.report.validation import validate as validate
    from physai.gates.report.validation_options import ValidationOptions as ValidationOptions
    from physai.gates.runner import GateError as GateError
    from physai.gates.settings import GateSettings as GateSettings
    from physai.gates.settings import load_gates as load_gates

__all__ = [
    "Context",
    "Gate",
    "GateError",
    "GateFinding",
    "GateSettings",
    "Play",
    "ValidationOptions",
    "load_gates",
    "open_exam",
    "validate",
]

__getattr__ = lazy_exports(__name__)
