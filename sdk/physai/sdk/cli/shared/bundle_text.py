"""Formats a bundle as text and JSON for `physai bundle`."""

import re
from pathlib import Path
from typing import Any

from physai.sdk.base.terminal import table
from physai.sdk.bundle.archive import MODEL_CARD_FILE, BundleError
from physai.sdk.bundle.manifest import Bundle
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.files.bundle_diff import BundleDifference
from physai.sdk.signing.files.status_files import SignedWord
from physai.sdk.signing.sign import Claims, read_claims
from physai.sdk.signing.status.drift_report import ReportPredicate
from physai.sdk.signing.verify import SignedVerdict

_SHORT = 16
"""Digits of a hash in text; JSON contains full hashes."""


def summary(bundle: Bundle, path: Path) -> str:
    """A few lines, shown after a bundle was written."""
    signers = ", ".join(f"{role} {key[:_SHORT]}" for role, key in _signers(read_claims(bundle)))
    return "\n".join([*_head(bundle, path), f"signed by    {signers or 'not signed yet: physai bundle sign'}"])


def sections(bundle: Bundle, path: Path) -> str:
    """The full report of `physai bundle inspect`."""
    claims = read_claims(bundle)
    members = [
        (_shortened(name), str(bundle.members.size(name)), _shortened(bundle.members.sha256(name)))
        for name in bundle.members
    ]
    provenance = list(bundle.manifest.provenance.items()) or [("", "none recorded")]
    lines = [
        *_head(bundle, path),
        f"file         {len(bundle.members.data)} bytes, SHA-256 {bundle.sha256}",
        f"packed by    physai {bundle.manifest.physai_version}",
        f"model card   {f'physai bundle inspect {path} --card' if MODEL_CARD_FILE in bundle.members else 'none'}",
        f"\nmembers ({len(members)})",
        table(("name", "bytes", "SHA-256"), members),
        "\nprovenance",
        table(("what", ""), [(key, _one_line(value)) for key, value in provenance]),
        "\nverdict",
        _verdict_text(claims),
        "\nsignatures (not verified; run physai bundle verify)",
        table(("role", "key"), _signers(claims)) or "  none",
    ]
    return "\n".join(lines)


def card_text(bundle: Bundle) -> str:
    """The model card.

    Raises:
        BundleError: there is none, or it is not text.
    """
    if MODEL_CARD_FILE not in bundle.members:
        raise BundleError(f"the bundle has no {MODEL_CARD_FILE}; older versions of physai pack none: pack it again")
    try:
        return bundle.members[MODEL_CARD_FILE].decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{MODEL_CARD_FILE} is not UTF-8 text: {error.reason} at {error.start}") from None


def _head(bundle: Bundle, path: Path) -> list[str]:
    manifest = bundle.manifest
    return [
        f"bundle       {path}",
        f"id           {bundle.id}",
        f"version      {manifest.version}, created {manifest.created}",
        f"for          {manifest.task} on {manifest.robot}",
        f"contract     {manifest.contract_fingerprint}",
        *([] if bundle.run is None else [f"run          {bundle.run}"]),
        *([] if bundle.preferences is None else [f"preferences  {bundle.preferences.database}"]),
        f"policies     {', '.join(f'{name} ({bundle.members.size(name)} bytes)' for name in bundle.policies)}",
    ]


def _shortened(text: str) -> str:
    """Abbreviates every SHA-256 in the text."""
    return re.sub(f"([0-9a-f]{{{_SHORT}}})[0-9a-f]{{{64 - _SHORT}}}", r"\1…", text)


def _one_line(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= 100 else line[:99] + "…"


def _verdict_text(claims: Claims) -> str:
    signed = claims.verdict
    if signed is None:
        return f"  unreadable: {claims.problem}" if claims.problem else "  none: this bundle has not been validated"
    verdict = signed.verdict
    run = [] if verdict.run is None else [f"  of the run {verdict.run[:_SHORT]}…"]
    rows = [
        (
            gate.gate,
            gate.shown,
            str(gate.episodes or ""),
            f"{gate.measured[0].name} {gate.measured[0].value:.4g}" if gate.measured else "",
        )
        for gate in verdict.gates
    ]
    facts = [
        f"  {verdict.shown} for {signed.policy} on {signed.robot}, until {utc_text(signed.expires)}",
        f"  created {verdict.created} by physai {verdict.physai_version}, {verdict.episodes}",
        f"  twin {verdict.twin_hash[:_SHORT]}…, gate settings {verdict.gates_sha256[:_SHORT]}…",
    ]
    return "\n".join([*facts, *run, table(("gate", "outcome", "episodes", "measured"), rows)])


def _signers(claims: Claims) -> list[tuple[str, str]]:
    """Role and id of every signing key."""
    return [("publisher", key) for key in claims.publishers] + [("validator", key) for key in claims.validators]


def record(bundle: Bundle, path: Path) -> dict[str, Any]:
    """The bundle as a JSON record."""
    claims = read_claims(bundle)
    sizes = {name: {"size": bundle.members.size(name), "sha256": sha256} for name, sha256 in bundle.digests.items()}
    return {
        "file": str(path),
        "id": bundle.id,
        "sha256": bundle.sha256,
        "run": bundle.run,
        "size": len(bundle.members.data),
        "manifest": bundle.manifest.model_dump(mode="json"),
        "members": sizes,
        "policies": list(bundle.policies),
        "verdict": None if claims.verdict is None else _verdict_record(claims.verdict),
        "verdict_problem": claims.problem or None,
        "signatures": {"publisher": list(claims.publishers), "validator": list(claims.validators)},
    }


def _verdict_record(signed: SignedVerdict) -> dict[str, Any]:
    return {
        "policy": signed.policy,
        "robot": signed.robot,
        "expires": utc_text(signed.expires),
        "verdict": signed.verdict.model_dump(mode="json"),
    }


def differences_text(differences: list[BundleDifference], left: str, right: str) -> str:
    """The differences, one per line."""
    lines = [f"{left} and {right} differ:"]
    for one in differences:
        if one.left is None:
            lines.append(f"  {one.where}: only in {right}: {one.right}")
        elif one.right is None:
            lines.append(f"  {one.where}: only in {left}: {one.left}")
        else:
            lines.append(f"  {one.where}: {one.left} in {left}, {one.right} in {right}")
    return _shortened("\n".join(lines))


def word_text(signed: SignedWord) -> str:
    """Format a status document or a report."""
    word = signed.word
    lines = [f"robot    {word.robot}", f"issued   {word.issued}", f"signed   {', '.join(signed.signers)}"]
    if isinstance(word, ReportPredicate):
        values = ", ".join(f"{name} {value:.6g}" for name, value in word.values.items())
        found = [f"bundle   {word.bundle}"] * (word.bundle is not None) + [f"values   {values}"] * bool(values)
        return "\n".join([f"report   {word.finding}", *lines, *found, word.text]).rstrip()
    lines = [f"serial   {word.serial}", *lines]
    lines += [f"revoked  {one.bundle[:16]} since {one.since}: {one.reason}" for one in word.revoked]
    for one in word.narrowed:
        lines.append(f"narrowed {one.bundle[:16]} since {one.since}: {one.reason}")
        lines.append(f"         {one.conditions.model_dump_json(exclude_defaults=True)}")
    return "\n".join(lines if word.revoked or word.narrowed else [*lines, "all is well"])
