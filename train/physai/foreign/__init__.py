"""Policies that others trained: imported with a contract, or only looked into.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.foreign.auditing.audit import audit as audit
    from physai.foreign.auditing.findings import AuditFinding as AuditFinding
    from physai.foreign.auditing.findings import PolicyAudit as PolicyAudit
    from physai.foreign.body.diagnosis import PolicyDiagnosis as PolicyDiagnosis
    from physai.foreign.body.diagnosis import Tensor as Tensor
    from physai.foreign.body.diagnosis import diagnose as diagnose
    from physai.foreign.conversion.import_page import PolicyImport as PolicyImport
    from physai.foreign.conversion.parity import TargetParity as TargetParity
    from physai.foreign.description import HeldJoint as HeldJoint
    from physai.foreign.description import MotionDescription as MotionDescription
    from physai.foreign.description import NetworkDescription as NetworkDescription
    from physai.foreign.description import NetworkInput as NetworkInput
    from physai.foreign.description import PolicyDescription as PolicyDescription
    from physai.foreign.description import TermDescription as TermDescription
    from physai.foreign.errors import ForeignPolicyError as ForeignPolicyError
    from physai.foreign.errors import OpenQuestionsError as OpenQuestionsError
    from physai.foreign.importing import import_policy as import_policy
    from physai.foreign.reading import PolicyReading as PolicyReading
    from physai.foreign.reading import PolicySource as PolicySource

__all__ = [
    "AuditFinding",
    "ForeignPolicyError",
    "HeldJoint",
    "MotionDescription",
    "NetworkDescription",
    "NetworkInput",
    "OpenQuestionsError",
    "PolicyAudit",
    "PolicyDescription",
    "PolicyDiagnosis",
    "PolicyImport",
    "PolicyReading",
    "PolicySource",
    "TargetParity",
    "Tensor",
    "TermDescription",
    "audit",
    "diagnose",
    "import_policy",
]

__getattr__ = lazy_exports(__name__)
