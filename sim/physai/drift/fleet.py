"""Drift in a fleet: which of many robots have changed, with a bound on the share of false discoveries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, cast, get_args

from physai.drift.errors import DriftError
from physai.drift.report import LOG_E, NAMED
from physai.sdk.base.files import read_bounded
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.parameters.arguments import require_range, several
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.signing.trust_store import TrustStore

FALSE_SHARE = 0.10
MAX_REPORTS = 10_000
MAX_REPORT_FILE_BYTES = 4 << 20
MAX_LOG_E = 1e9
FleetOutcome = Literal["HOLDS", "NO EVIDENCE", "DRIFTED"]
"""Answer of a monitor."""
OUTCOMES: tuple[FleetOutcome, ...] = get_args(FleetOutcome)


@dataclass(frozen=True, kw_only=True)
class FleetRobot:
    """One robot's report, and whether it is among those that changed."""

    robot: str
    """MODEL/UNIT; the report's path if that names no unit."""
    changed: bool
    log_e_value: float
    """Natural logarithm of the e-value of an unchanged robot; -inf if nothing was seen."""
    outcome: FleetOutcome
    """Answer of this robot's monitor alone."""
    parameters: tuple[str, ...]
    """Changes that explain its recordings best; empty if the monitor alone found none."""
    text: str
    """The monitor's answer in one sentence."""
    signed: bool
    file: Path


@dataclass(frozen=True, kw_only=True)
class FleetDrift:
    """Robots of a fleet, those that changed first."""

    robots: tuple[FleetRobot, ...]
    false_share: float
    """Bound of the expected share of unchanged robots among those named."""

    @property
    def changed(self) -> tuple[FleetRobot, ...]:
        """The robots that changed."""
        return tuple(one for one in self.robots if one.changed)


def fleet_drift(
    reports: Annotated[Sequence[Path | str], Option(metavar="REPORT")],
    *,
    false_share: Annotated[float, Option(metavar="SHARE")] = FALSE_SHARE,
    trust: Path | str | None = None,
) -> FleetDrift:
    """Tell which robots of a fleet have changed, from one drift report of each.

    Each report has an e-value: the wealth of bets against "this robot is as its twin describes it", with an expectation
    of at most 1 if that is true. The e-BH procedure names robots such that the expected share of unchanged ones among
    them is at most `false_share`, although robots that share a twin, a task or a season depend on each other. Which
    parameter of a robot changed has no such bound. The bound holds if a report is of recordings that were not chosen
    by what they show, and each robot's report was made once.

    Args:
        reports: one report per robot: what `physai drift --json` prints, or what `--report-to` files.
        false_share: bound of the expected share of unchanged robots among those that are named.
        trust: trust file with the keys that may have signed reports. None for ~/.config/physai/keys/trust.json.

    Raises:
        DriftError: a file is no report, or two reports are of one robot or the same bytes.
        ReportError: a signed report is not signed by a key of an owner, a validator or this robot in the trust file.
        PhysaiError: `false_share` is out of range.
    """
    from physai.sdk.stats.e_values import e_benjamini_hochberg

    require_range("false_share", false_share, 1e-6, 0.5)
    files = [Path(one) for one in several(reports)]
    if not 1 <= len(files) <= MAX_REPORTS:
        raise DriftError(f"{len(files)} reports given; give 1 to {MAX_REPORTS}, one per robot")
    store = _Trust(trust)
    read, seen = list[FleetRobot](), dict[str, Path]()
    for file in files:
        data = read_bounded(file, limit=MAX_REPORT_FILE_BYTES, error=DriftError)
        read.append(one := _read(file, data, store))
        for known, told in ((one.robot, f"both of {one.robot}"), (sha256_hex(data), "the same bytes")):
            if known in seen:
                raise DriftError(f"{file} and {seen[known]} are {told}; give one report per robot")
            seen[known] = file
    changed = set(e_benjamini_hochberg([one.log_e_value for one in read], false_share))
    found = [replace(one, changed=number in changed) for number, one in enumerate(read)]
    return FleetDrift(
        robots=tuple(sorted(found, key=lambda one: (not one.changed, -one.log_e_value, one.robot))),
        false_share=false_share,
    )


class _Trust:
    """The trust file, which is read when the first signed report needs it."""

    def __init__(self, path: Path | str | None) -> None:
        self._path = path
        self._store: TrustStore | None = None

    @property
    def store(self) -> TrustStore:
        from physai.sdk.signing.files.user_keys import default_trust
        from physai.sdk.signing.trust_file import SignedTrust

        if self._store is None:
            self._store = SignedTrust.load(self._path or default_trust()).check()
        return self._store


def _read(file: Path, data: bytes, trust: _Trust) -> FleetRobot:
    """Read a report, signed or not.

    Raises:
        DriftError: it is no report with an e-value.
        ReportError: it is signed, but by no key of the trust file that may report on its robot.
    """
    try:
        document: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DriftError(f"{file}: not JSON: {error!s:.200}") from None
    record = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if "payload" in record:
        return _signed(file, data, trust.store)
    stated: object = record.get("outcome")
    outcome: FleetOutcome | None = next((one for one in OUTCOMES if stated == one), None)
    reason, named = record.get("reason"), record.get("named")
    if outcome is None or not isinstance(reason, str) or not _is_texts(named):
        raise DriftError(f"{file}: no report of `physai drift --json`, nor a signed one")
    return _robot(file, record.get("unit"), outcome, reason, record, tuple(named), signed=False)


def _signed(file: Path, data: bytes, trust: TrustStore) -> FleetRobot:
    from physai.sdk.signing.status.drift_report import read_report

    word, _ = read_report(data, trust)
    named = tuple(name.removeprefix(NAMED) for name in word.values if name.startswith(NAMED))
    # JSON and Python both keep the order of names, but canonical JSON sorts them: it says nothing here.
    return _robot(file, word.robot, word.finding, word.text.split("\n")[0], word.values, named, signed=True)


def _robot(
    file: Path,
    unit: object,
    outcome: FleetOutcome,
    text: str,
    values: Mapping[str, Any],
    named: tuple[str, ...],
    *,
    signed: bool,
) -> FleetRobot:
    from physai.sdk.evidence.origin import Origin

    log_e: object = values.get(LOG_E)
    # An integer may be too large for a float, which the comparison is not.
    if log_e is not None and not (type(log_e) in (float, int) and -MAX_LOG_E <= cast("float", log_e) <= MAX_LOG_E):
        raise DriftError(f"{file}: {LOG_E} is {log_e!r:.100}, not a finite number")
    # Without any usable block there is no e-value, which counts as 0.
    if log_e is None and (outcome == "DRIFTED" or values.get("usable_s") != 0.0):
        raise DriftError(f"{file}: no {LOG_E}: a report of an older version; run `physai drift` again")
    try:
        robot = Origin.model_validate({"robot": unit}).robot or str(file)
    except ValueError:
        raise DriftError(f"{file}: unit {unit!r:.100} is no name of a robot, MODEL/UNIT") from None
    return FleetRobot(
        robot=robot,
        changed=False,
        log_e_value=-math.inf if log_e is None else float(cast("float", log_e)),
        outcome=outcome,
        parameters=named,
        text=text,
        signed=signed,
        file=file,
    )


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value))
