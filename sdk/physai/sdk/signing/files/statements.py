"""Files with statements that keys sign besides trust files: the time, and tick times that a validator measured."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.parameters.option import Option
from physai.sdk.signing.files.bundles import utc_time, write_file

if TYPE_CHECKING:
    from physai.sdk.evidence.latency import LatencyEvidence
    from physai.sdk.signing.ed25519 import SigningKey


def state_time(
    keys: Sequence[SigningKey],
    *,
    robot: Annotated[str, Option(metavar="NAME")],
    replaces: Annotated[datetime | str | None, Option(metavar="TIME")] = None,
    corrections: int = 0,
    out: Annotated[Path | str, Option(flags=("-o",))] = Path("time.json"),
) -> datetime:
    """Sign the current time, for a robot with an unreliable clock.

    Args:
        keys: a validator's or an owner's key; of enough owners to set a time back.
        robot: robot model, or one unit: ur10e/cell-3.
        replaces: set the robot's time back from this one, 2026-11-21T12:00:00Z; owners must sign.
        corrections: how often the robot's time was set back before, as `physai robot time` shows it.
        out: file to write.

    Returns:
        The stated time.

    Raises:
        TimeStatementError: the robot's name or the count is invalid.
        PhysaiError: the file cannot be written.
    """
    from physai.sdk.signing.time_statement import sign_time

    now = datetime.now(UTC)
    before = None if replaces is None else utc_time("`replaces`", replaces)
    write_file(out, sign_time(keys, robot, now, replaces=before, corrections=corrections) + b"\n")
    return now


def sign_ticks(file: Path | str, key: SigningKey) -> LatencyEvidence:
    """Sign tick times that you measured on a robot yourself, in place.

    Args:
        file: file of `physai robot measure`.
        key: validator's key.

    Raises:
        EvidenceError: the file cannot be read or is malformed.
    """
    from physai.sdk.evidence.latency import load_evidence, save_evidence
    from physai.sdk.signing.evidence import sign_evidence

    evidence = load_evidence(Path(file))
    signed = evidence.model_copy(update={"signature": sign_evidence(key, "latency", evidence.sha256)})
    save_evidence(signed, Path(file))
    return signed
