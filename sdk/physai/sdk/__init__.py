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
    from physai.sdk.base.process.machine import MachineReport as MachineReport
    from physai.sdk.base.process.machine import inspect_machine as inspect_machine
    from physai.sdk.base.process.software import Software as Software
    from physai.sdk.base.service import Service as Service
    from physai.sdk.bundle.archive import Members as Members
    from physai.sdk.bundle.manifest import Bundle as Bundle
    from physai.sdk.bundle.manifest import Manifest as Manifest
    from physai.sdk.bundle.manifest import MemberFacts as MemberFacts
    from physai.sdk.bundle.manifest import read_bundle as read_bundle
    from physai.sdk.bundle.registered import push_bundle as push_bundle
    from physai.sdk.contract.contract_diff import Difference as Difference
    from physai.sdk.contract.contract_diff import diff as diff
    from physai.sdk.contract.contract_diff import require_same as require_same
    from physai.sdk.contract.io import load_contract as load_contract
    from physai.sdk.contract.io import save_contract as save_contract
    from physai.sdk.contract.plans import ImageCrop as ImageCrop
    from physai.sdk.contract.plans import ImageTerm as ImageTerm
    from physai.sdk.contract.plans import InstructionSpec as InstructionSpec
    from physai.sdk.contract.plans import PlanSpec as PlanSpec
    from physai.sdk.contract.plans import PlanTiming as PlanTiming
    from physai.sdk.contract.policy_contract import PolicyContract as PolicyContract
    from physai.sdk.contract.robot import CameraLens as CameraLens
    from physai.sdk.contract.robot import CameraMount as CameraMount
    from physai.sdk.contract.robot import CameraSpec as CameraSpec
    from physai.sdk.contract.robot import ChainSegment as ChainSegment
    from physai.sdk.contract.robot import JointSpec as JointSpec
    from physai.sdk.contract.robot import KinematicChain as KinematicChain
    from physai.sdk.contract.robot import RobotSpec as RobotSpec
    from physai.sdk.contract.robot import SensorField as SensorField
    from physai.sdk.contract.safety_envelope import JointEnvelope as JointEnvelope
    from physai.sdk.contract.safety_envelope import SafetyEnvelope as SafetyEnvelope
    from physai.sdk.contract.safety_envelope import SensorRange as SensorRange
    from physai.sdk.contract.safety_envelope import StartEnvelope as StartEnvelope
    from physai.sdk.contract.safety_envelope import StartRange as StartRange
    from physai.sdk.contract.terms import ActionSpec as ActionSpec
    from physai.sdk.contract.terms import ActionTerm as ActionTerm
    from physai.sdk.contract.terms import CommandField as CommandField
    from physai.sdk.contract.terms import CommandSpec as CommandSpec
    from physai.sdk.contract.terms import GaitClock as GaitClock
    from physai.sdk.contract.terms import ObservationSpec as ObservationSpec
    from physai.sdk.contract.terms import ObservationTerm as ObservationTerm
    from physai.sdk.contract.terms import TimingSpec as TimingSpec
    from physai.sdk.evidence.exam_facts import ExamFacts as ExamFacts
    from physai.sdk.evidence.field_episodes import FieldEpisode as FieldEpisode
    from physai.sdk.evidence.field_episodes import FieldEpisodes as FieldEpisodes
    from physai.sdk.evidence.latency import LatencyEvidence as LatencyEvidence
    from physai.sdk.evidence.origin import Origin as Origin
    from physai.sdk.evidence.preferences import Preferences as Preferences
    from physai.sdk.evidence.requirements import Requirements as Requirements
    from physai.sdk.evidence.requirements import SegmentRules as SegmentRules
    from physai.sdk.evidence.shadow import BeyondJudged as BeyondJudged
    from physai.sdk.evidence.shadow import ComputeTimes as ComputeTimes
    from physai.sdk.evidence.shadow import DivergenceMoment as DivergenceMoment
    from physai.sdk.evidence.shadow import JointDivergence as JointDivergence
    from physai.sdk.evidence.shadow import ShadowEvidence as ShadowEvidence
    from physai.sdk.evidence.shadow import ShadowRequirement as ShadowRequirement
    from physai.sdk.evidence.signature_record import EvidenceSignature as EvidenceSignature
    from physai.sdk.evidence.status_rules import StatusRules as StatusRules
    from physai.sdk.evidence.verdict import Cause as Cause
    from physai.sdk.evidence.verdict import Counterexample as Counterexample
    from physai.sdk.evidence.verdict import Evidence as Evidence
    from physai.sdk.evidence.verdict import GateResult as GateResult
    from physai.sdk.evidence.verdict import Measurement as Measurement
    from physai.sdk.evidence.verdict import SeedRange as SeedRange
    from physai.sdk.evidence.verdict import Verdict as Verdict
    from physai.sdk.evidence.verdict import VerdictOutcome as VerdictOutcome
    from physai.sdk.evidence.verdict import load_verdict as load_verdict
    from physai.sdk.onnx.device import PolicyDevice as PolicyDevice
    from physai.sdk.policy.parity import JointError as JointError
    from physai.sdk.safety import Guard as Guard
    from physai.sdk.safety import GuardResult as GuardResult
    from physai.sdk.safety import GuardState as GuardState
    from physai.sdk.safety import guard_limits as guard_limits
    from physai.sdk.safety.decision import Request as Request
    from physai.sdk.safety.limits import GuardLimits as GuardLimits
    from physai.sdk.signing.attestation import Envelope as Envelope
    from physai.sdk.signing.attestation import Signature as Signature
    from physai.sdk.signing.ed25519 import PublicKey as PublicKey
    from physai.sdk.signing.ed25519 import SigningKey as SigningKey
    from physai.sdk.signing.exam import Exam as Exam
    from physai.sdk.signing.exam import ExamSubject as ExamSubject
    from physai.sdk.signing.files.bundles import BundleFile as BundleFile
    from physai.sdk.signing.files.bundles import pack_bundle as pack_bundle
    from physai.sdk.signing.files.bundles import sign_as_publisher as sign_as_publisher
    from physai.sdk.signing.files.bundles import sign_as_validator as sign_as_validator
    from physai.sdk.signing.files.bundles import verify_bundle as verify_bundle
    from physai.sdk.signing.files.rederivation import VerdictTerms as VerdictTerms
    from physai.sdk.signing.files.statements import sign_ticks as sign_ticks
    from physai.sdk.signing.files.statements import state_time as state_time
    from physai.sdk.signing.files.trust_changes import TrustFile as TrustFile
    from physai.sdk.signing.files.trust_changes import change_trust as change_trust
    from physai.sdk.signing.files.trust_changes import make_keys as make_keys
    from physai.sdk.signing.files.trust_changes import revoke_key as revoke_key
    from physai.sdk.signing.files.trust_changes import rotate_key as rotate_key
    from physai.sdk.signing.files.trust_changes import sign_trust as sign_trust
    from physai.sdk.signing.files.user_keys import load_key as load_key
    from physai.sdk.signing.trust_file import SignedTrust as SignedTrust
    from physai.sdk.signing.trust_store import RevokedKey as RevokedKey
    from physai.sdk.signing.trust_store import Thresholds as Thresholds
    from physai.sdk.signing.trust_store import TrustStore as TrustStore
    from physai.sdk.signing.verify import Rule as Rule
    from physai.sdk.signing.verify import SignedVerdict as SignedVerdict
    from physai.sdk.signing.verify import VerificationError as VerificationError
    from physai.sdk.signing.verify import Verified as Verified
    from physai.sdk.signing.verify import verify as verify
    from physai.sdk.stats.rank import Estimate as Estimate
    from physai.sdk.stats.rank import RankValidity as RankValidity
    from physai.sdk.stats.rank import Trials as Trials
    from physai.sdk.transport.protocol import JointCommand as JointCommand
    from physai.sdk.transport.protocol import RobotEndpoint as RobotEndpoint
    from physai.sdk.transport.protocol import Sample as Sample
    from physai.sdk.transport.protocol import Transport as Transport
    from physai.sdk.transport.protocol import TransportError as TransportError
    from physai.sdk.transport.protocol import WatchdogEndpoint as WatchdogEndpoint
    from physai.sdk.transport.protocol import empty_command as empty_command
    from physai.sdk.transport.protocol import empty_sample as empty_sample
    from physai.sdk.transport.protocol import required_fields as required_fields
    from physai.sdk.transport.simulation import Entity as Entity
    from physai.sdk.transport.simulation import Simulation as Simulation
    from physai.sdk.transport.simulation import SimulationState as SimulationState

__all__ = [
    "ActionSpec",
    "ActionTerm",
    "BeyondJudged",
    "Bundle",
    "BundleFile",
    "CameraLens",
    "CameraMount",
    "CameraSpec",
    "Cause",
    "ChainSegment",
    "CommandField",
    "CommandSpec",
    "ComputeTimes",
    "ContractError",
    "ContractMismatchError",
    "Counterexample",
    "Difference",
    "DivergenceMoment",
    "Entity",
    "Envelope",
    "Estimate",
    "Evidence",
    "EvidenceSignature",
    "Exam",
    "ExamFacts",
    "ExamSubject",
    "FieldEpisode",
    "FieldEpisodes",
    "GaitClock",
    "GateResult",
    "Guard",
    "GuardLimits",
    "GuardResult",
    "GuardState",
    "ImageCrop",
    "ImageTerm",
    "InstructionSpec",
    "JointCommand",
    "JointDivergence",
    "JointEnvelope",
    "JointError",
    "JointSpec",
    "KinematicChain",
    "LatencyEvidence",
    "MachineReport",
    "Manifest",
    "Measurement",
    "MemberFacts",
    "Members",
    "MissingExtraError",
    "ObservationSpec",
    "ObservationTerm",
    "Origin",
    "PhysaiError",
    "PlanSpec",
    "PlanTiming",
    "PolicyContract",
    "PolicyDevice",
    "Preferences",
    "PublicKey",
    "RankValidity",
    "Request",
    "Requirements",
    "RevokedKey",
    "RobotEndpoint",
    "RobotSpec",
    "Rule",
    "SafetyEnvelope",
    "Sample",
    "SeedRange",
    "SegmentRules",
    "SensorField",
    "SensorRange",
    "Service",
    "ShadowEvidence",
    "ShadowRequirement",
    "Signature",
    "SignedTrust",
    "SignedVerdict",
    "SigningKey",
    "Simulation",
    "SimulationState",
    "Software",
    "StartEnvelope",
    "StartRange",
    "StatusRules",
    "Thresholds",
    "TimingSpec",
    "Transport",
    "TransportError",
    "Trials",
    "TrustFile",
    "TrustStore",
    "Verdict",
    "VerdictOutcome",
    "VerdictTerms",
    "VerificationError",
    "Verified",
    "WatchdogEndpoint",
    "change_trust",
    "diff",
    "empty_command",
    "empty_sample",
    "guard_limits",
    "inspect_machine",
    "load_contract",
    "load_key",
    "load_verdict",
    "make_keys",
    "pack_bundle",
    "push_bundle",
    "read_bundle",
    "require_same",
    "required_fields",
    "revoke_key",
    "rotate_key",
    "save_contract",
    "sign_as_publisher",
    "sign_as_validator",
    "sign_ticks",
    "sign_trust",
    "state_time",
    "verify",
    "verify_bundle",
]

__getattr__ = lazy_exports(__name__)
