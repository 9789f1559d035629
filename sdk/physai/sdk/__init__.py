"""The contract, the artefact and the evidence that training, twin and robot share.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

# First of all: libraries look at it when they are imported.
from physai.sdk.base.process import no_telemetry as no_telemetry

if TYPE_CHECKING:
    from physai.sdk.base.errors import ContractError as ContractError
    from physai.sdk.base.errors import ContractMismatchError as ContractMismatchError
    from physai.sdk.base.errors import MissingExtraError as MissingExtraError
    from physai.sdk.base.errors import PhysaiError as PhysaiError
    from physai.sdk.bundle.manifest import Bundle as Bundle
    from physai.sdk.bundle.manifest import read_bundle as read_bundle
    from physai.sdk.contract.contract_diff import diff as diff
    from physai.sdk.contract.contract_diff import require_same as require_same
    from physai.sdk.contract.io import load_contract as load_contract
    from physai.sdk.contract.io import save_contract as save_contract
    from physai.sdk.contract.policy_contract import PolicyContract as PolicyContract
    from physai.sdk.contract.robot import JointSpec as JointSpec
    from physai.sdk.contract.robot import RobotSpec as RobotSpec
    from physai.sdk.contract.safety_envelope import SafetyEnvelope as SafetyEnvelope
    from physai.sdk.contract.terms import ActionSpec as ActionSpec
    from physai.sdk.contract.terms import ActionTerm as ActionTerm
    from physai.sdk.contract.terms import CommandField as CommandField
    from physai.sdk.contract.terms import CommandSpec as CommandSpec
    from physai.sdk.contract.terms import ObservationSpec as ObservationSpec
    from physai.sdk.contract.terms import ObservationTerm as ObservationTerm
    from physai.sdk.contract.terms import TimingSpec as TimingSpec
    from physai.sdk.evidence.origin import Origin as Origin
    from physai.sdk.evidence.requirements import Requirements as Requirements
    from physai.sdk.evidence.verdict import GateResult as GateResult
    from physai.sdk.evidence.verdict import Verdict as Verdict
    from physai.sdk.evidence.verdict import VerdictOutcome as VerdictOutcome
    from physai.sdk.evidence.verdict import load_verdict as load_verdict
    from physai.sdk.onnx.device import PolicyDevice as PolicyDevice
    from physai.sdk.safety import Guard as Guard
    from physai.sdk.safety import GuardResult as GuardResult
    from physai.sdk.safety import GuardState as GuardState
    from physai.sdk.safety import guard_limits as guard_limits
    from physai.sdk.signing.trust_file import SignedTrust as SignedTrust
    from physai.sdk.signing.trust_store import TrustStore as TrustStore
    from physai.sdk.signing.verify import VerificationError as VerificationError
    from physai.sdk.signing.verify import Verified as Verified
    from physai.sdk.signing.verify import verify as verify
    from physai.sdk.transport.protocol import JointCommand as JointCommand
    from physai.sdk.transport.protocol import RobotEndpoint as RobotEndpoint
    from physai.sdk.transport.protocol import Sample as Sample
    from physai.sdk.transport.protocol import Transport as Transport
    from physai.sdk.transport.protocol import TransportError as TransportError
    from physai.sdk.transport.protocol import empty_command as empty_command
    from physai.sdk.transport.protocol import empty_sample as empty_sample
    from physai.sdk.transport.protocol import required_fields as required_fields

__all__ = [
    "ActionSpec",
    "ActionTerm",
    "Bundle",
    "CommandField",
    "CommandSpec",
    "ContractError",
    "ContractMismatchError",
    "GateResult",
    "Guard",
    "GuardResult",
    "GuardState",
    "JointCommand",
    "JointSpec",
    "MissingExtraError",
    "ObservationSpec",
    "ObservationTerm",
    "Origin",
    "PhysaiError",
    "PolicyContract",
    "PolicyDevice",
    "Requirements",
    "RobotEndpoint",
    "RobotSpec",
    "SafetyEnvelope",
    "Sample",
    "SignedTrust",
    "TimingSpec",
    "Transport",
    "TransportError",
    "TrustStore",
    "Verdict",
    "VerdictOutcome",
    "VerificationError",
    "Verified",
    "diff",
    "empty_command",
    "empty_sample",
    "guard_limits",
    "load_contract",
    "load_verdict",
    "read_bundle",
    "require_same",
    "required_fields",
    "save_contract",
    "verify",
]

__getattr__ = lazy_exports(__name__)
