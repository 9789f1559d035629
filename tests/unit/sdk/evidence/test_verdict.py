"""Verdicts: what they must say, what they must not, and what survives a round trip."""

import json
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.evidence.verdict import (
    MAX_VERDICT_BYTES,
    Cause,
    Counterexample,
    GateResult,
    Measurement,
    SeedRange,
    Verdict,
    VerdictError,
    VerdictOutcome,
    combine,
    load_verdict,
    parse_verdict,
    save_verdict,
    utc_text,
)

PASS, FAIL, INCONCLUSIVE = VerdictOutcome


def gate(name: str = "success", outcome: VerdictOutcome = PASS, **fields: Any) -> GateResult:
    given: dict[str, Any] = {"question": "Does it do its task?", "method": "60 episodes", "threshold": "rate ≥ 0.9"}
    if outcome is not PASS:
        given |= {"message": "It falls in 7 of 60 episodes.", "next_step": "Watch the counterexample."}
    if outcome is FAIL:
        given |= {"cause": Cause.POLICY}
    return GateResult(gate=name, outcome=outcome, **given | fields)


def verdict(*gates: GateResult, **fields: Any) -> Verdict:
    given: dict[str, Any] = {
        "policy_sha256": "a" * 64,
        "contract_fingerprint": "b" * 64,
        "twin_hash": "c" * 64,
        "gates_sha256": "d" * 64,
        "created": "2026-11-21T12:00:00Z",
        "gates": gates,
        "outcome": combine(g.outcome for g in gates),
        "versions": {"mujoco": "4.0.0"},
        "physai_version": "0.1.0",
    }
    return Verdict(**given | fields)


def test_a_device_is_stated_unless_it_is_the_cpu() -> None:
    assert b"device" not in canonical_json(verdict(gate()))
    for name in ("cuda:0", "tensorrt:12"):
        stated = verdict(gate(), device=name)
        assert json.loads(canonical_json(stated))["device"] == name
        assert parse_verdict(canonical_json(stated), source="it") == stated
        assert stated.sha256 != verdict(gate()).sha256
    for name in ("cpu", "cuda", "cuda:1234", "cuda:0\n", ""):
        with pytest.raises(ValidationError, match="device"):
            verdict(gate(), device=name)


@pytest.mark.parametrize("outcomes", list(product(VerdictOutcome, repeat=3)), ids=lambda o: "-".join(o))
def test_every_combination_of_three(outcomes: tuple[VerdictOutcome, ...]) -> None:
    expected = FAIL if FAIL in outcomes else INCONCLUSIVE if INCONCLUSIVE in outcomes else PASS
    assert combine(outcomes) is expected
    assert combine(iter(outcomes)) is expected


def test_no_gates_decide_nothing() -> None:
    assert combine([]) is INCONCLUSIVE
    assert verdict().outcome is INCONCLUSIVE


@given(
    st.lists(st.sampled_from(VerdictOutcome), max_size=6),
    st.lists(st.sampled_from(VerdictOutcome), min_size=1, max_size=6),
)
def test_parts_combine_to_the_whole(first: list[VerdictOutcome], second: list[VerdictOutcome]) -> None:
    whole = combine(first + second)
    assert combine(second + first) is whole
    assert combine([combine(second), *first]) is whole
    # One more gate never helps.
    severity = [PASS, INCONCLUSIVE, FAIL].index
    assert severity(whole) >= severity(combine(second))


def test_exit_codes() -> None:
    assert [outcome.exit_code for outcome in (PASS, FAIL, INCONCLUSIVE)] == [0, 1, 2]


def test_a_verdict_round_trips_through_a_file(tmp_path: Path) -> None:
    original = verdict(gate("contract"), gate("success", FAIL), gate("engine", INCONCLUSIVE))
    save_verdict(original, tmp_path / "verdict.json")
    data = (tmp_path / "verdict.json").read_bytes()
    assert data == canonical_json(original)
    assert json.loads(data)["outcome"] == "FAIL"
    assert load_verdict(tmp_path / "verdict.json") == original
    assert load_verdict(tmp_path) == original
    assert parse_verdict(data.decode(), source="text").sha256 == original.sha256


def test_the_hash_is_of_the_bytes_that_are_written(tmp_path: Path) -> None:
    import hashlib

    save_verdict(verdict(gate()), tmp_path / "v.json")
    assert hashlib.sha256((tmp_path / "v.json").read_bytes()).hexdigest() == verdict(gate()).sha256
    assert verdict(gate(episodes=1)).sha256 != verdict(gate()).sha256


text = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=40)
line = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,20}", fullmatch=True)
numbers = st.floats(-1e9, 1e9)
counts = st.integers(0, 10**9)
seeds = st.integers(0, 2**64 - 1).map(str)


@st.composite
def measurements(draw: st.DrawFn, name: str) -> Measurement:
    low, high = sorted(draw(st.tuples(numbers, numbers)))
    lower, upper = draw(st.sampled_from([(low, high), (None, high), (low, None), (None, None)]))
    bounded = lower is not None or upper is not None
    return Measurement(
        name=name,
        value=draw(numbers),
        unit=draw(st.sampled_from(["", "rad", "N·m", "rad/s"])),
        lower=lower,
        upper=upper,
        confidence=draw(st.floats(0.01, 0.999)) if bounded else None,
        threshold=draw(st.none() | numbers),
    )


counterexamples = st.builds(
    Counterexample,
    index=counts,
    description=line,
    episode_seed=st.none() | seeds,
    step=st.none() | counts,
    parameters=st.dictionaries(names, numbers, max_size=3),
    recording=st.none() | st.just("counterexamples/3.mcap"),
)


@st.composite
def gates(draw: st.DrawFn, name: str) -> GateResult:
    outcome = draw(st.sampled_from(VerdictOutcome))
    why = text if outcome is PASS else line.filter(str.strip)
    return GateResult(
        gate=name,
        outcome=outcome,
        question=draw(line),
        method=draw(text),
        threshold=draw(text),
        measured=tuple(draw(measurements(n)) for n in draw(st.lists(names, max_size=3, unique=True))),
        episodes=draw(counts),
        seeds=tuple(draw(st.lists(st.builds(SeedRange, stream=seeds, first=counts, count=counts), max_size=2))),
        cause=None if outcome is PASS else draw(st.sampled_from(Cause)),
        message=draw(why),
        next_step=draw(why),
        counterexample=None if outcome is PASS else draw(st.none() | counterexamples),
    )


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    parts = tuple(draw(gates(name)) for name in draw(st.lists(names, max_size=4, unique=True)))
    created = draw(st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
    return verdict(*parts, created=utc_text(created), versions=draw(st.dictionaries(names, line, max_size=3)))


@settings(max_examples=60, deadline=None)
@given(verdicts())
def test_arbitrary_verdicts_round_trip(original: Verdict) -> None:
    data = canonical_json(original)
    again = parse_verdict(data, source="drawn")
    assert again == original
    assert canonical_json(again) == data


@settings(max_examples=60, deadline=None)
@given(verdicts(), st.data())
def test_a_bit_changed_is_another_verdict_or_none(original: Verdict, data: st.DataObject) -> None:
    written = bytearray(canonical_json(original))
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        changed = parse_verdict(bytes(written), source="changed")
    except VerdictError:
        return
    # A digit beyond the last that counts, or E for e, is the same number in other bytes.
    assert (changed.sha256 == original.sha256) == (changed == original)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300) | st.text('{}[]":,0123456789.truefalsnEe+-', max_size=300))
def test_noise_is_refused_with_an_error_of_ours(data: bytes | str) -> None:
    with pytest.raises(VerdictError, match=r"^noise: "):
        parse_verdict(data, source="noise")


GONE = object()


def document(path: tuple[str | int, ...], value: object) -> str:
    """A failing verdict's JSON with one entry changed, or removed."""
    record: Any = json.loads(canonical_json(verdict(gate("contract"), gate("success", FAIL))))
    entry = record
    for part in path[:-1]:
        entry = entry[part]
    if value is GONE:
        del entry[path[-1]]
    else:
        entry[path[-1]] = value
    return json.dumps(record)


def passing(name: str) -> dict[str, Any]:
    return json.loads(canonical_json(gate(name)))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("outcome",), "PASS", "outcome PASS, but its gates make it FAIL"),
        (("outcome",), "pass", r"outcome: .* \(got 'pass'\)"),
        (("gates", 1), GONE, "outcome FAIL, but its gates make it PASS"),
        (("gates", 1, "gate"), "contract", "gate 'contract' occurs twice"),
        (("gates", 1, "cause"), None, r"gates\[1\]: gate success: a FAIL names its cause"),
        (("gates", 1, "cause"), "fate", r"gates\[1\]\.cause: .*\(got 'fate'\)"),
        (("gates", 1, "message"), " \n", "gate success: FAIL needs a message"),
        (("gates", 1, "next_step"), "", "gate success: FAIL needs a next_step"),
        (("gates", 0, "cause"), "twin", "gate contract: passes, yet names a cause"),
        (("gates", 0, "question"), "", r"gates\[0\]\.question"),
        (("gates", 0, "question"), "red \x1b[31m", r"gates\[0\]\.question"),
        (("gates", 0, "method"), "rung \x07", r"gates\[0\]\.method"),
        (("gates", 0, "episodes"), -1, r"gates\[0\]\.episodes: .*\(got -1\)"),
        (("gates", 0, "episodes"), 1.5, r"gates\[0\]\.episodes: .*\(got 1\.5\)"),
        (("gates", 0, "seeds"), [{"stream": str(2**64), "count": 1}], f"seed {2**64} does not fit 64 bits"),
        (("gates", 0, "seeds"), [{"stream": 5, "count": 1}], r"seeds\[0\]\.stream"),
        (("policy_sha256",), "A" * 64, "policy_sha256"),
        (("created",), "2026-02-30T12:00:00Z", "created: .*day is out of range"),
        (("created",), "2026-11-21 12:00", "created"),
        (("signature",), "x", r"signature: unknown field \(got 'x'\)"),
        (("twin_hash",), GONE, "twin_hash: missing"),
        (("format_version",), 3, "verdict format 3 is newer than format 2"),
        (("format_version",), 0, "there is no verdict format 0"),
        (("format_version",), "1", "format_version must be a whole number, got '1'"),
        (("gates",), [passing(f"g{i}") for i in range(65)], "gates: .* at most 64"),
    ],
)
def test_contradictions_and_bad_fields_are_named(path: tuple[str | int, ...], value: object, message: str) -> None:
    with pytest.raises(VerdictError, match=message):
        parse_verdict(document(path, value), source="file")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lower": 0.9, "upper": 0.8, "confidence": 0.95}, r"lower 0\.9 is above upper 0\.8"),
        ({"lower": 0.9}, "an interval and its confidence come together"),
        ({"confidence": 0.95}, "an interval and its confidence come together"),
        ({"upper": 0.9, "confidence": 1.0}, "less than 1"),
        ({"value": float("nan")}, "finite"),
        ({"value": 1e10}, "less than or equal"),
    ],
)
def test_impossible_measurements(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Measurement(**dict[str, Any](name="rate", value=0.5) | fields)


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.mcap", "a/../../b", "c:\\x", "a//b", "\\\\host\\share"])
def test_recordings_stay_in_their_folder(path: str) -> None:
    with pytest.raises(ValidationError, match="not a path inside the verdict's folder"):
        Counterexample(index=0, description="falls", recording=path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x" * (MAX_VERDICT_BYTES + 1), f"larger than the {MAX_VERDICT_BYTES} bytes a verdict may have"),
        (b"\xff{}", "not UTF-8"),
        ("[" * 40 + "]" * 40, "nested 40 deep, at most 16 is allowed"),
        ("[1, 2]", "a verdict is a JSON object"),
        ("{", "not JSON"),
        ('{"format_version": 1, "format_version": 1}', "key 'format_version' occurs twice"),
        ('{"format_version": NaN}', "NaN is not a finite number"),
        ("{}", "format_version must be a whole number, got none"),
        ("\ud800", "not UTF-8"),
    ],
)
def test_what_is_no_verdict(data: bytes | str, message: str) -> None:
    with pytest.raises(VerdictError, match=message):
        parse_verdict(data, source="file")


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(VerdictError, match=r"missing\.json: cannot be read: No such file"):
        load_verdict(tmp_path / "missing.json")
    with pytest.raises(VerdictError, match=r"verdict\.json: cannot be read"):
        load_verdict(tmp_path)
    with pytest.raises(VerdictError, match="cannot be written"):
        save_verdict(verdict(), tmp_path / "no" / "folder" / "v.json")


def test_moments_are_written_in_utc() -> None:
    moment = datetime(2026, 11, 21, 14, 30, 5, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert utc_text(moment) == "2026-11-21T12:30:05Z"


def test_a_verdict_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        verdict(gate()).outcome = FAIL
