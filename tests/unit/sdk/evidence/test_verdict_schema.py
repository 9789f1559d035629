"""The JSON Schema of verdicts: up to date, and true of what the library writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.evidence.verdict import (
    Cause,
    Counterexample,
    GateResult,
    Measurement,
    SeedRange,
    Verdict,
    VerdictOutcome,
)
from physai.sdk.evidence.verdict_schema import schema_text, verdict_schema

jsonschema = pytest.importorskip("jsonschema")

STORED = Path(__file__).parents[4] / "docs" / "verdict.schema.json"


@pytest.fixture
def record() -> dict[str, Any]:
    """A verdict with every field in use."""
    blocked = GateResult(
        gate="success",
        outcome=VerdictOutcome.FAIL,
        question="Does it do its task?",
        method="sequential test",
        threshold="rate at least 0.9",
        measured=(Measurement(name="rate", value=0.5, lower=0.3, upper=0.7, confidence=0.95, threshold=0.9),),
        episodes=40,
        seeds=(SeedRange(stream="18446744073709551615", count=40),),
        cause=Cause.POLICY,
        message="It falls.",
        next_step="Train longer.",
        counterexample=Counterexample(
            index=1, description="falls", episode_seed="7", step=3, parameters={"m2": 0.6}, recording="1.mcap"
        ),
    )
    verdict = Verdict(
        policy_sha256="a" * 64,
        contract_fingerprint="b" * 64,
        twin_hash="c" * 64,
        gates_sha256="d" * 64,
        created="2026-11-21T12:00:00Z",
        gates=(blocked,),
        outcome=VerdictOutcome.FAIL,
        versions={"numpy": "2.3.0"},
        physai_version="0.1.0",
    )
    return json.loads(canonical_json(verdict))


@pytest.fixture
def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(verdict_schema())
    return jsonschema.Draft202012Validator(verdict_schema())


def test_the_stored_schema_is_up_to_date() -> None:
    stored = STORED.read_text(encoding="utf-8")
    assert stored == schema_text(), "python -m physai.sdk.evidence.verdict_schema > docs/verdict.schema.json"


def test_real_verdicts_validate(validator: Any, record: dict[str, Any]) -> None:
    validator.validate(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outcome", "MAYBE"),
        ("policy_sha256", "abc"),
        ("created", "yesterday"),
        ("gates", {}),
        ("format_version", 3),
        ("twin_hash", ...),
        ("signature", "x"),
    ],
)
def test_malformed_verdicts_do_not(validator: Any, record: dict[str, Any], field: str, value: Any) -> None:
    if value is ...:
        del record[field]
    else:
        record[field] = value
    assert not validator.is_valid(record)


@pytest.mark.parametrize(
    ("field", "value"), [("cause", "fate"), ("episodes", -1), ("question", "a\x1b[0m"), ("seeds", [7])]
)
def test_malformed_gates_do_not(validator: Any, record: dict[str, Any], field: str, value: Any) -> None:
    record["gates"][0][field] = value
    assert not validator.is_valid(record)
