"""Compares each part of a log with what the contract says: terms, targets, gains and period."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from physai.foreign.auditing.audited_policy import AuditedPolicy
from physai.foreign.auditing.deployment_log import MIN_ROWS, DeploymentLog, Floats
from physai.foreign.auditing.findings import AuditFinding
from physai.foreign.auditing.followed import JOINTS, ORIENTATION, follow, rotations
from physai.foreign.auditing.histories import first_fill, longest, newest_elsewhere, other_layout
from physai.foreign.auditing.hypotheses import EXCITED, NOTHING, Readings, agrees, compare_block, explain, spread
from physai.foreign.auditing.rebuilt import rebuilt
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.contract.interface import CLOCK_PREFIX
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm, ObservationTerm

_HIDDEN = "hidden"
"""Memory of a network: of one that follows a motion, the number of the period and the heading at the start."""

PERIOD_SHARE = 0.02
"""Greatest difference of the period, as a share."""
GAIN_SHARE = 0.1
"""Greatest difference of a gain, as a share."""


def compared(policy: AuditedPolicy, log: DeploymentLog) -> Iterator[AuditFinding]:
    """Yield a finding for each term of the observation, the targets, the gains and the period."""
    observation, contract = log.get("observation"), policy.contract
    findings: list[AuditFinding] = []
    if observation is None:
        yield AuditFinding(part="observation", outcome="absent", text=f"the log has no observation{log.unread}")
    else:
        findings.extend(_observed(policy, log, observation))
    findings.append(_targets(contract, log))
    yield from findings
    # Gains that are fitted with joints in another order mean nothing.
    fitted = {"target", *(term.name for term in contract.observation.terms if term.kind == "joint_pos_rel")}
    yield from _gains(contract, log, [one.part for one in findings if one.outcome == "differs" and one.part in fitted])
    yield _period(contract, log)


def _observed(policy: AuditedPolicy, log: DeploymentLog, observation: Floats) -> Iterator[AuditFinding]:
    # The motion stays in its second period, from which the robot's orientation is found.
    expected = rebuilt(policy, log, None if policy.motion is None else {_HIDDEN: [1.0, 0.0]})
    # A log may begin in the middle: what was before its first rows is not known.
    skip = longest(policy)
    if log.rows < (least := skip + MIN_ROWS - 1):
        raise ForeignPolicyError(
            f"the log has {log.rows} rows, at least {least} are needed for histories of {skip} samples"
        )
    if text := other_layout(policy, expected[skip:], observation[skip:]):
        yield AuditFinding(part="observation", outcome="differs", text=text)
        return
    right: list[str] = []
    for finding in _terms(policy, log, expected[skip:], observation[skip:]):
        if finding.outcome in ("agrees", "undetermined"):
            right.append(finding.part)
        yield finding
    if (fill := first_fill(policy, expected, observation, right)) is not None:
        yield fill
    if policy.motion is not None:
        logged = {
            name: observation[:, policy.columns[name]] for name in (JOINTS, ORIENTATION) if name in policy.columns
        }
        turned = expected[:, policy.columns[ORIENTATION]] if ORIENTATION in logged else None
        default = np.array(policy.contract.action.terms[0].offset)
        yield from follow(policy.motion, log, logged, turned, default, starts=_starts(policy, observation))


def _starts(policy: AuditedPolicy, observation: Floats) -> bool:
    """Whether the log begins with the policy: the last action is 0 in the first row alone."""
    for term in policy.contract.observation.terms:
        if term.kind == "previous_action":
            last = np.abs((observation[:2, policy.columns[term.name]] / (term.scale or 1.0)) + term.offset).max(axis=1)
            return bool(last[0] < 1e-6 < last[1])
    return False


def _terms(policy: AuditedPolicy, log: DeploymentLog, expected: Floats, observation: Floats) -> Iterator[AuditFinding]:
    contract, skip = policy.contract, log.rows - len(expected)
    terms = [term for term in contract.observation.terms if term.name in policy.columns]
    blocks = {term.name: expected[:, policy.columns[term.name]] for term in terms}
    for term in terms:
        logged = observation[:, policy.columns[term.name]]
        if term.kind == "previous_action" and log.get("action") is None:
            yield AuditFinding(part=term.name, outcome="absent", text="the log has no action, of which it is made")
            continue
        block = blocks[term.name]
        others = _readings(term, contract, log, skip)
        if term.history > 1:
            word = "first" if contract.observation.newest == "last" else "last"
            others[f"the newest sample {word}"] = lambda term=term, block=block: newest_elsewhere(
                policy, term.name, block
            )
        names = _columns(term, contract, block.shape[1])
        finding = compare_block(term.name, block, logged, names, others, _pose(term, contract))
        if finding.outcome == "undetermined" and term.kind == "constant":
            finding = AuditFinding(part=term.name, outcome="agrees", text="", greatest=finding.greatest)
        if finding.outcome == "differs" and not finding.text:
            finding = _elsewhere(finding, blocks, logged)
        if finding.outcome == "differs" and term.clock is not None and _other_phase(policy, log, term, skip, logged):
            finding = AuditFinding(part=term.name, outcome="agrees", text="from another phase at the beginning")
        yield finding


def _other_phase(policy: AuditedPolicy, log: DeploymentLog, term: ObservationTerm, skip: int, logged: Floats) -> bool:
    """Whether a clock is right but for its angle before the log."""
    if term.clock is None:
        return False
    # The newest sample's first leg.
    column = 0 if policy.contract.observation.newest == "first" else -len(term.clock.phases)
    first = float(np.clip(logged[0, column] / term.scale + term.offset, -1.0, 1.0))
    angle = math.asin(first) if term.clock.wave == "sin" else math.acos(first)
    angles = (angle, math.pi - angle) if term.clock.wave == "sin" else (angle, -angle)
    turn = 2.0 * math.pi
    step = turn * policy.contract.timing.control_dt / term.clock.period_s
    for one in angles:
        start = (one - term.clock.phases[0] - (skip + 1) * step) % turn
        made = rebuilt(policy, log, {CLOCK_PREFIX + term.name: [start]})
        if agrees(made[skip:, policy.columns[term.name]], logged):
            return True
    return False


def _elsewhere(finding: AuditFinding, blocks: dict[str, Floats], logged: Floats) -> AuditFinding:
    for name, block in blocks.items():
        if block.shape == logged.shape and spread(block) > EXCITED and agrees(block, logged):
            return replace(finding, text=f"holds what the contract has as {name}: the terms are in another order")
    return replace(finding, text=NOTHING)


def _pose(term: ObservationTerm, contract: PolicyContract) -> Floats | float:
    """Pose that a term's columns are relative to, in its scale."""
    if term.kind != "joint_pos_rel":
        return 0.0
    default = {joint.name: joint.default_pos for joint in contract.robot.joints}
    return np.tile([default[name] for name in term.joints or contract.robot.joint_names], term.history) * term.scale


def _columns(term: ObservationTerm, contract: PolicyContract, width: int) -> list[str]:
    if term.joints is not None and len(term.joints) == width:
        return list(term.joints)
    if term.kind == "previous_action" and width == contract.action.size:
        return [joint for action in contract.action.terms for joint in action.joints]
    return [f"{term.name}[{index}]" for index in range(width)]


def _readings(term: ObservationTerm, contract: PolicyContract, log: DeploymentLog, skip: int) -> Readings:
    """Other readings of the data that a term is made of, without the first rows."""

    def scaled(value: Floats | None) -> Floats | None:
        return None if value is None else ((value - term.offset) * term.scale)[skip:]

    quat, action = log.get("imu_quat"), log.get("action")
    if term.kind == "projected_gravity" and quat is not None:
        return {
            "from a quaternion xyzw that is read as wxyz": lambda: scaled(
                _down(np.roll(quat, 1, axis=1), inverse=True)
            ),
            "from a quaternion that is written as xyzw": lambda: scaled(_down(np.roll(quat, -1, axis=1), inverse=True)),
            "turned by the orientation and not by its inverse": lambda: scaled(_down(quat, inverse=False)),
        }
    if term.kind == "sensor" and term.source == "imu_ang_vel_b" and quat is not None:
        rate = log.get("imu_ang_vel_b")
        return {"in the world's frame": lambda: scaled(None if rate is None else _turned(quat, rate, inverse=False))}
    if term.kind == "joint_pos_rel":
        columns = list(contract.robot.joint_index(term.joints or contract.robot.joint_names))
        joints = log.get("joint_pos")
        return {
            "without the default pose": lambda: scaled(None if joints is None else joints[:, columns]),
        }
    if term.kind == "previous_action" and action is not None:
        return _last_actions(contract.action.terms[0], action, scaled)
    return {}


def _last_actions(term: ActionTerm, action: Floats, scaled: Callable[[Floats | None], Floats | None]) -> Readings:
    before = np.vstack([np.zeros_like(action[:1]), action[:-1]])
    scale, offset = np.array(term.scale), np.array(term.offset)
    return {
        "the target and not the action": lambda: scaled(offset + scale * before),
        "after the action's scale": lambda: scaled(scale * before),
        "clipped to ±1": lambda: scaled(np.clip(before, -1.0, 1.0)),
        "that of the same period, which is not yet known": lambda: scaled(action),
    }


def _turned(quat: Floats, vector: Floats, *, inverse: bool) -> Floats:
    matrix = rotations(quat)
    return np.einsum("nji,nj->ni" if inverse else "nij,nj->ni", matrix, vector)


def _down(quat: Floats, *, inverse: bool) -> Floats:
    return _turned(quat, np.tile([0.0, 0.0, -1.0], (len(quat), 1)), inverse=inverse)


def _targets(contract: PolicyContract, log: DeploymentLog) -> AuditFinding:
    term = contract.action.terms[0]
    action, target = log.get("action"), log.get("target")
    if action is None or target is None:
        return AuditFinding(part="target", outcome="absent", text="the log has no action and target to compare")
    limited = action if term.output_limit is None else np.clip(action, -term.output_limit, term.output_limit)
    scale, offset = np.array(term.scale), np.array(term.offset)
    wanted = offset + scale * limited
    bounded = np.clip(wanted, term.lower, term.upper)
    if agrees(wanted, target) or agrees(bounded, target):
        return compare_block("target", wanted if agrees(wanted, target) else bounded, target, list(term.joints), {})
    # Of the part that the action makes, factors are those of the scale; beyond the joints' ranges it may be clipped.
    text = next((found for made in (bounded, wanted) if (found := _explained(made, target, term))), "")
    greatest = float(np.abs(wanted - target).max())
    return AuditFinding(part="target", outcome="differs", text=text or NOTHING, greatest=greatest)


def _explained(wanted: Floats, target: Floats, term: ActionTerm) -> str:
    offset = np.array(term.offset)
    others: Readings = {"without the default pose": lambda: wanted - 2.0 * offset}
    return explain(wanted - offset, target - offset, names=term.joints, others=others, pose=offset)


def _gains(contract: PolicyContract, log: DeploymentLog, first: Sequence[str]) -> Iterator[AuditFinding]:
    target, joints, speeds, efforts = (log.get(name) for name in ("target", "joint_pos", "joint_vel", "joint_effort"))
    if target is None or joints is None or speeds is None or efforts is None:
        yield AuditFinding(part="gains", outcome="absent", text="the log has no targets, positions, speeds and efforts")
        return
    term = contract.action.terms[0]
    specs = {joint.name: joint for joint in contract.robot.joints}
    wrong: list[str] = []
    tested = 0
    for index, (name, column) in enumerate(zip(term.joints, contract.robot.joint_index(term.joints), strict=True)):
        spec = specs[name]
        moving = np.abs(efforts[:, column]) < 0.95 * spec.effort_limit
        lead, speed = target[moving, index] - joints[moving, column], -speeds[moving, column]
        if moving.sum() < 20 or lead.std() < EXCITED or speed.std() < EXCITED:
            continue
        found, *_ = np.linalg.lstsq(np.stack([lead, speed], axis=1), efforts[moving, column], rcond=None)
        tested += 1
        for label, value, stated in (("kp", found[0], spec.stiffness), ("kd", found[1], spec.damping)):
            if stated > 0.0 and abs(value / stated - 1.0) > GAIN_SHARE:
                wrong.append(f"{name} {label} {value:.3g} for {stated:.3g}")
    if wrong and first:
        yield AuditFinding(part="gains", outcome="undetermined", text=f"not tested: mend {' and '.join(first)} first")
    elif wrong:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        yield AuditFinding(part="gains", outcome="differs", text=f"{', '.join(wrong[:4])}{more}")
    elif tested:
        yield AuditFinding(part="gains", outcome="agrees", text=f"of {tested} joints")
    else:
        yield AuditFinding(part="gains", outcome="undetermined", text="no joint moves enough below its effort limit")


def _period(contract: PolicyContract, log: DeploymentLog) -> AuditFinding:
    time = log.get("time")
    if time is None:
        return AuditFinding(part="period", outcome="absent", text="the log has no time")
    period, stated = float(np.diff(time[:, 0]).mean()), contract.timing.control_dt
    if abs(period / stated - 1.0) > PERIOD_SHARE:
        text = f"{1e3 * period:.4g} ms, the contract says {1e3 * stated:.4g} ms"
        return AuditFinding(part="period", outcome="differs", text=text, greatest=abs(period - stated))
    return AuditFinding(part="period", outcome="agrees", text="", greatest=abs(period - stated))
