"""Compares a deployment's own log with a contract, term by term, and names what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from physai.foreign.auditing.findings import PolicyAudit
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.parameters.option import Option


def audit(
    log: Annotated[Path | str, Option(metavar="LOG")],
    policy: Annotated[Path | str, Option(metavar="POLICY")],
    *,
    names: Annotated[Mapping[str, str] | None, Option()] = None,
) -> PolicyAudit:
    """Rebuild what a policy should have seen and commanded from a deployment's own log, and name what differs.

    It needs no robot: the terms of the contract are computed from the sensors in the log, and compared with what the
    program fed to its network; targets with what follows from its actions; efforts with the gains.

    Args:
        log: NPZ or CSV with `observation`, `action`, `target` and the sensors and commands that the policy reads, one
            row per control period; see docs/how-to/audit-a-log.md.
        policy: run folder, policy.onnx or contract of the policy, as `physai import` makes it.
        names: names in the log by ours, where they differ, such as observation=obs.

    Raises:
        ForeignPolicyError: the log cannot be read, or lacks what is compared.
        PhysaiError: the policy cannot be read.
    """
    from physai.foreign.auditing.audited_policy import audited_policy
    from physai.foreign.auditing.compared import compared
    from physai.foreign.auditing.deployment_log import read_deployment_log

    audited = audited_policy(Path(policy))
    path = Path(log).expanduser()
    read = read_deployment_log(path, audited.contract, names or {}, observation=audited.observation_size)
    findings = tuple(compared(audited, read))
    if all(finding.outcome == "absent" for finding in findings):
        raise ForeignPolicyError(
            f"{path}: nothing can be compared: the log has neither an observation nor an action with its target"
        )
    return PolicyAudit(log=path, fingerprint=audited.contract.fingerprint, rows=read.rows, findings=findings)
