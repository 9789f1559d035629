"""Policies that others trained: what their files state, and what they leave open.

Public API:

- `diagnose(file)`: what the file of somebody else's policy states about itself, and what it does not.
"""

from physai.foreign.diagnosis import PolicyDiagnosis, Tensor, diagnose
from physai.foreign.errors import ForeignPolicyError

__all__ = ["ForeignPolicyError", "PolicyDiagnosis", "Tensor", "diagnose"]
