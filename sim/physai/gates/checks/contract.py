"""Gate `contract`: do policy, task, twin and the policy's sibling files agree?"""

import io
import zipfile
from collections.abc import Iterator

import numpy as np

from physai.gates.checks.gate import Context, DirectGate, GateFinding
from physai.gates.execution.subject import ValidationSubject
from physai.sdk.base.errors import ContractError
from physai.sdk.contract.contract_diff import diff, format_diff
from physai.sdk.contract.gaps import contract_lacks
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.policy.header import GOLDEN_FILE, PolicyError
from physai.twin.parameters.models import model_fingerprint
from physai.twin.rollouts.batch import Arm

MAX_TERMS = 10
"""Maximum number of differing terms named in one message."""

FINGERPRINT_NAME = "fingerprint"
"""Entry of the golden file that holds the contract's fingerprint."""


class ContractGate(DirectGate):
    """Compares fingerprints and names every term that differs."""

    name = "contract"
    question = "Do policy, task and twin share one contract?"
    rests_on_twin = False

    def method(self, context: Context) -> str:
        return (
            "Compares the contracts in the ONNX file and its sibling files with the task's, term by term. The graph's "
            "inputs and outputs must match the contract. The twin must be of the task's robot."
        )

    def threshold(self, context: Context) -> str:
        return "no difference"

    def check(self, context: Context) -> GateFinding:
        problems = list(contract_problems(context.subject))
        finding = GateFinding(
            outcome=VerdictOutcome.FAIL if problems else VerdictOutcome.PASS,
            measured=[Measurement(name="differences", value=float(len(problems)), threshold=0.0)],
            message="\n".join(problems)[:4000],
        )
        lacks = contract_lacks(context.subject.task.contract)
        if problems:
            finding.cause = Cause.CONTRACT
            finding.next_step = (
                "export the policy again from the right contract, or give the task, robot and twin that it belongs to"
            )
        elif lacks:
            finding.message = f"The contract leaves open: {' '.join(lacks)}"[:4000]
        return finding


def contract_problems(subject: ValidationSubject) -> Iterator[str]:
    """Yield one message per disagreement between the files."""
    ours = subject.task.contract
    for arm in subject.arms:
        try:
            theirs = subject.policy(arm).contract
        except (PolicyError, ContractError) as error:
            yield f"{_label(arm)} is invalid: {error}"
            continue
        if theirs.fingerprint != ours.fingerprint:
            yield _difference(theirs, ours, left=_label(arm), right=f"the task {subject.task.name}")
    if subject.golden is not None:
        fingerprint = golden_fingerprint(subject.golden)
        if fingerprint != ours.fingerprint:
            yield f"{GOLDEN_FILE} was recorded under another contract ({fingerprint[:12] or 'none stated'})"
    yield from _twin_problems(subject)


def _label(arm: Arm) -> str:
    return "the policy" if arm == "policy" else f"the {arm} policy"


def _difference(theirs: PolicyContract, ours: PolicyContract, *, left: str, right: str) -> str:
    differences = diff(theirs, ours)
    lines = [
        f"{left} and {right} have different contracts ({theirs.fingerprint[:12]} and {ours.fingerprint[:12]})",
        format_diff(differences[:MAX_TERMS], left=left, right=right),
    ]
    if len(differences) > MAX_TERMS:
        lines.append(f"  and {len(differences) - MAX_TERMS} more terms; `physai contract diff` shows them all")
    return "\n".join(lines)


def golden_fingerprint(data: bytes) -> str:
    """Return the fingerprint in a golden file; empty if it has none or is damaged."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return str(archive[FINGERPRINT_NAME])
    # A damaged golden file is reported by the parity gate; here it only has no fingerprint.
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, EOFError):
        return ""


def _twin_problems(subject: ValidationSubject) -> Iterator[str]:
    twin, robot = subject.twin, subject.task.contract.robot
    # Without equal joints there is no point in comparing models: one message instead of two.
    if twin.joint_names != robot.joint_names:
        yield (
            f"the twin's robot has the joints {', '.join(twin.joint_names)}, the task's robot "
            f"{robot.name} has {', '.join(robot.joint_names)}"
        )
        return
    ours = model_fingerprint(subject.task.robot)
    if ours != twin.model_sha256:
        yield (
            f"the twin was fitted to another model of {robot.name} ({twin.model_sha256[:12]}) than the task's "
            f"({ours[:12]})"
        )
