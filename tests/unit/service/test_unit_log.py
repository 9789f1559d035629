"""Documents about robots are believed by their signatures alone, kept by their claims, and ordered by their times."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from tests.support.unit_keys import BUNDLE, MANIFEST, OTHER, UNIT, UnitKeys, ago

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.shadow import parse_shadow_evidence
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.attestation import parse_envelope
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.status.robot_state import RobotStatePredicate, sign_robot_state
from physai.sdk.signing.status.status_document import RevokedVerdict, next_status, sign_status
from physai.service.database.engine import open_database
from physai.service.database.tables import UnitDocumentRow
from physai.service.problems import ProblemError
from physai.service.registry.units import unit_log
from physai.service.registry.units.unit_documents import MAX_DOCUMENT_BYTES, read_unit_document
from physai.service.registry.units.unit_log import UnitLog

KEYS = UnitKeys()
STRANGER = SigningKey.generate()


@pytest.fixture
def log(tmp_path: Path) -> UnitLog:
    return UnitLog(open_database(f"sqlite:///{tmp_path}/service.db"))


def file(log: UnitLog, data: bytes, *, robot: str = UNIT) -> int:
    return log.add(robot, read_unit_document(data, KEYS.trust, robot=robot), data, by="ci")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (KEYS.drift(key=STRANGER), "not signed by a key of the trust file whose role is robot or owner or validator"),
        (KEYS.drift(key=KEYS.robots[OTHER]), f"the report is on {UNIT}, and signed by the key of {OTHER}"),
        (KEYS.drift(robot=OTHER), f"the report is of {OTHER}, and was sent as one of {UNIT}"),
        (KEYS.drift(robot="ur10e", key=KEYS.validator), f"the report is of ur10e, and was sent as one of {UNIT}"),
        (KEYS.state(key=STRANGER), "not signed by a robot's key in the trust file"),
        (KEYS.state(key=KEYS.validator), "not signed by a robot's key in the trust file"),
        (KEYS.state(key=KEYS.robots[OTHER]), f"the state is of {UNIT}, and signed by the key of {OTHER}"),
        (KEYS.state(robot=OTHER), f"the state is of {OTHER}, and was sent as one of {UNIT}"),
        (KEYS.shadow(key=STRANGER), f"the shadow evidence is not signed by a key of {UNIT}"),
        (KEYS.shadow(key=KEYS.robots[OTHER]), f"the shadow evidence is not signed by a key of {UNIT}"),
        (KEYS.shadow(robot=OTHER), f"the shadow evidence is not signed by a key of {UNIT}"),
        (KEYS.shadow(robot=OTHER, key=KEYS.robots[UNIT]), f"of {OTHER}, and was sent as one of {UNIT}"),
        (KEYS.word(age_s=0.0, robot=OTHER), f"the status document is for {OTHER}, this robot is {UNIT}"),
        (b'{"payload":"', "not a DSSE envelope"),
        (b"", "shadow evidence"),
        (b"[" * 10_000, "shadow evidence"),
        (STRANGER.envelope(b'{"predicateType":"urn:physai:time:1"}').encode(), "of no kind that is filed here"),
        (b"{" + b" " * MAX_DOCUMENT_BYTES, f"at most {MAX_DOCUMENT_BYTES} are read"),
    ],
)
def test_what_its_signature_does_not_vouch_for_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(PhysaiError) as refused:
        read_unit_document(data, KEYS.trust, robot=UNIT)
    assert reason in str(refused.value)


def test_a_changed_byte_breaks_a_document() -> None:
    for data in (KEYS.state(), KEYS.drift(), KEYS.word(age_s=0.0)):
        read_unit_document(data, KEYS.trust, robot=UNIT)
        (signature,) = parse_envelope(data, source="").signatures
        # One bit of the payload: the other bytes are as they were signed.
        forged = data.replace(b'"payload":"ey', b'"payload":"fy')
        assert forged != data
        assert len(signature.value) == 64
        with pytest.raises(PhysaiError):
            read_unit_document(forged, KEYS.trust, robot=UNIT)
    with pytest.raises(PhysaiError, match="not signed by a key of"):
        read_unit_document(KEYS.shadow(ticks=7).replace(b'"ticks":7', b'"ticks":8'), KEYS.trust, robot=UNIT)


def test_a_revoked_key_speaks_for_its_robot_no_more() -> None:
    key = KEYS.robots[UNIT]
    revoked = KEYS.trust.with_revoked(key.key_id, since=ago(0.0), reason="stolen")
    for data in (KEYS.state(), KEYS.drift(), KEYS.shadow()):
        read_unit_document(data, KEYS.trust, robot=UNIT)
        with pytest.raises(PhysaiError, match="not signed by"):
            read_unit_document(data, revoked, robot=UNIT)


def test_owner_and_validator_report_on_every_robot(log: UnitLog) -> None:
    file(log, KEYS.drift(key=KEYS.owner))
    file(log, KEYS.drift(key=KEYS.validator, finding="DRIFTED", age_s=10.0))
    assert [one["role"] for one in log.drift(UNIT, before=None, limit=9)] == ["owner", "validator"]


def test_the_same_claim_is_one_entry_however_it_is_encoded(log: UnitLog) -> None:
    report, evidence = KEYS.drift(), KEYS.shadow()
    pretty = parse_shadow_evidence(evidence, source="").model_dump_json(indent=2).encode()
    both = parse_envelope(report, source="").with_signature(
        KEYS.validator.sign(parse_envelope(report, source="").payload)
    )
    first = file(log, report)
    assert [file(log, report), file(log, report + b"\n"), file(log, both.encode())] == [first] * 3
    assert file(log, evidence) == file(log, pretty) != first
    assert log.document(UNIT, first) == report


def test_an_old_document_takes_the_place_of_no_newer_one(log: UnitLog) -> None:
    new, old = KEYS.state(version=8), KEYS.state(version=7, age_s=3600.0)
    file(log, new)
    file(log, old)
    file(log, KEYS.drift(finding="DRIFTED", key=KEYS.validator))
    file(log, KEYS.drift(finding="HOLDS", age_s=60.0))
    found = log.overview(UNIT)
    assert (found["active"]["version"], found["drift"]["finding"]) == (8, "DRIFTED")
    assert [one["finding"] for one in log.drift(UNIT, before=None, limit=9)] == ["DRIFTED", "HOLDS"]


def test_a_document_from_the_future_would_stay_the_newest_for_ever(log: UnitLog) -> None:
    file(log, KEYS.state(age_s=-200.0))
    with pytest.raises(ProblemError, match=r"issued \d+ s after now, by the clock of the service"):
        file(log, KEYS.state(age_s=-400.0))


def test_the_verdict_has_its_age_and_what_a_validator_said_since(log: UnitLog) -> None:
    file(log, KEYS.state())
    verdict = log.overview(UNIT)["verdict"]
    assert verdict["age_s"] == pytest.approx(86400.0, abs=60.0)
    assert (verdict["expired"], verdict["revoked"], verdict["narrowed"]) == (False, None, None)
    file(log, KEYS.word(age_s=20.0, revoked=MANIFEST, robot="ur10e"))
    assert log.overview(UNIT)["verdict"]["revoked"]["reason"] == "payload doubled"
    # An old "all well" does not lift it, and one for the unit does not speak for the model.
    file(log, KEYS.word(age_s=40.0, robot="ur10e"))
    file(log, KEYS.word(age_s=10.0))
    assert log.overview(UNIT)["verdict"]["revoked"]["reason"] == "payload doubled"
    file(log, KEYS.word(age_s=5.0, robot="ur10e"))
    assert log.overview(UNIT)["verdict"]["revoked"] is None
    file(log, KEYS.word(age_s=1.0, revoked=BUNDLE))
    assert log.overview(UNIT)["verdict"]["revoked"]["bundle"] == BUNDLE


def test_a_run_of_a_shadow_shows_its_newest_evidence(log: UnitLog) -> None:
    for ticks in (10, 30, 20):
        file(log, KEYS.shadow(ticks=ticks))
    file(log, KEYS.shadow(run="2" * 32, ticks=5))
    found = {one["run"][0]: one["ticks"] for one in log.overview(UNIT)["shadows"]}
    assert found == {"1": 30, "2": 5}


def test_each_role_fills_its_own_part_of_the_log(log: UnitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(unit_log.KEPT, "drift", 3)
    file(log, KEYS.drift(key=KEYS.validator, finding="DRIFTED", age_s=100.0))
    for age in (50.0, 40.0, 30.0, 20.0):
        file(log, KEYS.drift(age_s=age))
    kept = log.drift(UNIT, before=None, limit=9)
    assert [(one["role"], one["finding"]) for one in kept] == [("robot", "HOLDS")] * 3 + [("validator", "DRIFTED")]
    with pytest.raises(ProblemError, match=f"older than the 3 of its kind that are kept of {UNIT}"):
        file(log, KEYS.drift(age_s=60.0))
    assert log.drift(UNIT, before=None, limit=9) == kept
    assert [one["entry"] for one in log.drift(UNIT, before=int(ago(25.0).timestamp()), limit=1)] == [kept[1]["entry"]]


def test_words_for_the_model_push_none_for_the_unit_out(log: UnitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(unit_log.KEPT, "word", 3)
    file(log, KEYS.state())
    file(log, KEYS.word(age_s=1000.0, revoked=BUNDLE))
    for age in range(10, 0, -1):
        file(log, KEYS.word(age_s=age, robot="ur10e"))
    assert log.overview(UNIT)["verdict"]["revoked"]["bundle"] == BUNDLE
    with pytest.raises(ProblemError, match="older than the 3 of its kind"):
        file(log, KEYS.word(age_s=20.0, robot="ur10e"))
    for age in (900.0, 800.0, 700.0):
        file(log, KEYS.word(age_s=age))
    assert log.overview(UNIT)["verdict"]["revoked"] is None
    with Session(log._engine) as session:  # pyright: ignore[reportPrivateUsage]
        facts = [json.loads(one) for one in session.scalars(select(UnitDocumentRow.facts).filter_by(kind="word"))]
    assert [one["robot"] for one in facts].count(UNIT) == [one["robot"] for one in facts].count("ur10e") == 3


def test_a_word_whose_serial_is_ahead_would_silence_later_ones(log: UnitLog) -> None:
    def word(serial: int, revoked: tuple[RevokedVerdict, ...] = ()) -> bytes:
        changes = {"serial": serial, "revoked": revoked}
        return sign_status([KEYS.validator], next_status(None, UNIT, ago(0.0)).model_copy(update=changes))

    now = int(ago(0.0).timestamp())
    file(log, KEYS.state())
    for serial in (2**53 - 1, now + 400):
        with pytest.raises(ProblemError, match=rf"has serial {serial}, and serials are seconds since 1970, now \d+"):
            file(log, word(serial))
    file(log, word(now + 200))
    entry = RevokedVerdict(bundle=BUNDLE, reason="gear", since=utc_text(ago(0.0)))
    file(log, word(now + 201, (entry,)))
    assert log.overview(UNIT)["verdict"]["revoked"]["reason"] == "gear"


def test_there_is_an_end_to_the_number_of_robots(log: UnitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_log, "MAX_UNITS", 1)
    file(log, KEYS.state())
    with pytest.raises(ProblemError, match="1 robots are known already"):
        file(log, KEYS.state(robot=OTHER), robot=OTHER)
    file(log, KEYS.drift())
    assert log.names(after="", limit=9) == [UNIT]


def test_nothing_is_stored_of_what_is_refused(log: UnitLog) -> None:
    with pytest.raises(PhysaiError):
        file(log, KEYS.drift(key=STRANGER))
    with Session(log._engine) as session:  # pyright: ignore[reportPrivateUsage]
        assert session.scalar(select(func.count()).select_from(UnitDocumentRow)) == 0
    with pytest.raises(ProblemError, match=f"nothing is known of {UNIT}"):
        log.overview(UNIT)


def test_a_robot_without_a_policy_has_no_verdict(log: UnitLog) -> None:
    claim = RobotStatePredicate(robot=UNIT, issued=utc_text(ago(0.0)), stand_in=True, active=None)
    file(log, sign_robot_state(KEYS.robots[UNIT], claim))
    found: dict[str, Any] = json.loads(json.dumps(log.overview(UNIT)))
    assert (found["active"], found["verdict"], found["drift"], found["last_recording"]) == (None, None, None, None)
    assert (found["state"]["role"], found["state"]["stand_in"]) == ("robot", True)
