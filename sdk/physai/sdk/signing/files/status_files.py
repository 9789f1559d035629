"""Files with the word of a validator on its verdicts, and with reports of monitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.files import read_bounded
from physai.sdk.base.parameters.option import Option
from physai.sdk.signing.files.bundles import write_file
from physai.sdk.signing.files.user_keys import default_trust, trusted_validators

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.status.drift_report import ReportPredicate
    from physai.sdk.signing.status.status_document import NarrowedConditions, StatusPredicate


@dataclass(frozen=True)
class SignedWord:
    """A status document or a report, and its file."""

    path: Path
    word: StatusPredicate | ReportPredicate
    signers: tuple[str, ...]
    """Role and id of each key whose signature is valid."""


def revoke_verdict(
    keys: Sequence[SigningKey],
    bundle: Annotated[Path | str | None, Option(word=True, metavar="BUNDLE|SHA256")] = None,
    *,
    robot: Annotated[str, Option(metavar="NAME")],
    reason: Annotated[str | None, Option(metavar="TEXT")] = None,
    narrow: Annotated[Path | str | None, Option(metavar="FILE", exclusive="change")] = None,
    lift: Annotated[bool, Option(exclusive="change")] = False,
    out: Annotated[Path | str, Option(flags=("-o",))] = Path("status.json"),
    trust: Annotated[Path | str | None, Option(metavar="FILE")] = None,
) -> SignedWord:
    """Revoke or narrow a verdict in a status document for robots, or say again what the document says.

    Args:
        keys: validators' keys; as many as the robots' trust file requires.
        bundle: bundle file, or the SHA-256 of its manifest or file. None to renew the document without a change.
        robot: robot model, or one unit: ur10e/cell-3.
        reason: reason for the change, one line; shown by the robot.
        narrow: the verdict holds under the conditions of this JSON file only: commands, joints, payload_kg,
            temperature_c.
        lift: take back what the document says of the bundle.
        out: file to write; if it exists, the new document follows the one in it.
        trust: trust file with the validators who may have signed the document before. None for the user's own.

    Returns:
        The new document.

    Raises:
        StatusError: the file has no document of these validators, or one for another robot, or a value is missing.
    """
    from pydantic import ValidationError

    from physai.sdk.signing.status.status_document import StatusError, next_status, sign_status

    path = Path(out)
    before = _before(path, keys, trust) if path.exists() else None
    if bundle is None and (reason is not None or narrow is not None or lift):
        raise StatusError("name the bundle that `reason`, `narrow` and `lift` are about")
    if bundle is not None and not (reason or lift):
        raise StatusError("give the `reason`, which the robot shows to its operator")
    try:
        word = next_status(before, robot, datetime.now(UTC))
        if bundle is not None:
            word = _changed(word, _digests(bundle), None if lift else reason, narrow)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise StatusError(f"{'.'.join(map(str, first['loc']))} {first['input']!r:.100}: {first['msg']}") from None
    write_file(path, sign_status(keys, word) + b"\n")
    return SignedWord(path, word, tuple(f"validator {key.key_id}" for key in keys))


def read_word(
    file: Annotated[Path | str, Option(metavar="FILE")],
    *,
    trust: Annotated[Path | str | None, Option(metavar="FILE")] = None,
) -> SignedWord:
    """Read and verify a status document or a monitor's report.

    Args:
        file: the document.
        trust: trust file with the keys that may have signed it. None for ~/.config/physai/keys/trust.json.

    Raises:
        StatusError: it is no status document that this trust file accepts.
        ReportError: it is no report that this trust file accepts.
        TrustError: the trust file cannot be read.
    """
    from physai.sdk.signing.status.drift_report import REPORT_PREDICATE, read_report
    from physai.sdk.signing.status.signed_statement import open_envelope, require_signers
    from physai.sdk.signing.status.status_document import MAX_STATUS_BYTES, StatusError, read_status
    from physai.sdk.signing.trust_file import SignedTrust

    path, store = Path(file), SignedTrust.load(trust or default_trust()).check()
    data = read_bounded(path, limit=MAX_STATUS_BYTES, error=StatusError)
    envelope = open_envelope(data, what=str(path), limit=MAX_STATUS_BYTES, error=StatusError)
    if f'"predicateType":"{REPORT_PREDICATE}"'.encode() in envelope.payload:
        report, keys = read_report(data, store)
        return SignedWord(path, report, tuple(f"{key.role} {key.key_id}" for key in keys))
    word = read_status(data, store)
    ids = require_signers(envelope, store, "validator", what=str(path), error=StatusError)
    return SignedWord(path, word, tuple(f"validator {key_id}" for key_id in ids))


def _changed(
    word: StatusPredicate, sha256s: tuple[str, ...], reason: str | None, narrow: Path | str | None
) -> StatusPredicate:
    """The word with another entry of a bundle, or with none if there is no reason."""
    from physai.sdk.signing.status.status_document import NarrowedVerdict, RevokedVerdict, StatusError

    others = word.without(*sha256s)
    if reason is None:
        if others == word:
            raise StatusError(f"the document says nothing of {sha256s[0][:16]}, so there is nothing to lift")
        return others
    entry = {"bundle": sha256s[0], "reason": reason, "since": word.issued}
    if narrow is None:
        lists = {"revoked": (*others.revoked, RevokedVerdict.model_validate(entry))}
    else:
        narrowed = NarrowedVerdict.model_validate({**entry, "conditions": _conditions(Path(narrow))})
        lists = {"narrowed": (*others.narrowed, narrowed)}
    # Validated again, as the lists are bounded.
    return type(word).model_validate({**dict(others), **lists})


def _before(path: Path, keys: Sequence[SigningKey], trust: Path | str | None) -> StatusPredicate:
    """The word in a file that validators signed whom the user trusts."""
    from physai.sdk.signing.status.signed_statement import open_envelope, signers
    from physai.sdk.signing.status.status_document import MAX_STATUS_BYTES, StatusError, parse_status

    data = read_bounded(path, limit=MAX_STATUS_BYTES, error=StatusError)
    known = [*(key.public_key("validator") for key in keys), *trusted_validators(trust)]
    envelope = open_envelope(data, what=str(path), limit=MAX_STATUS_BYTES, error=StatusError)
    if not signers(envelope, known):
        raise StatusError(f"{path}: not signed by one of your validators, so it is not followed: name another file")
    return parse_status(data)


def _digests(bundle: Path | str) -> tuple[str, ...]:
    """SHA-256 of a bundle's manifest, then of its file; or the one given."""
    from physai.sdk.bundle.manifest import read_bundle

    text = str(bundle).lower()
    if len(text) == 64 and all(digit in "0123456789abcdef" for digit in text):
        return (text,)
    read = read_bundle(bundle)
    return read.id, read.sha256


def _conditions(path: Path) -> NarrowedConditions:
    from physai.sdk.signing.status.status_document import MAX_STATUS_BYTES, NarrowedConditions, StatusError

    data = read_bounded(path, limit=MAX_STATUS_BYTES, error=StatusError)
    return NarrowedConditions.model_validate_json(data)
