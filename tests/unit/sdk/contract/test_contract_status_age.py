"""The greatest age of a validator's word that a contract may state: bounded, and left out where it states none."""

import json
import math

import pytest
from pydantic import ValidationError
from tests.harness.fixtures.sample import SAMPLE_DOCUMENT, sample_contract

from physai.sdk.base.errors import ContractError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.safety_envelope import SafetyEnvelope


def test_a_contract_without_it_has_no_trace_of_it() -> None:
    assert b"status_max_age_s" not in canonical_json(sample_contract())
    assert sample_contract(safety={}).fingerprint == sample_contract(safety={"status_max_age_s": None}).fingerprint


def test_every_age_has_a_fingerprint_of_its_own() -> None:
    ages = (None, 1.0, 3600.0, 1e9)
    assert len({sample_contract(safety={"status_max_age_s": age}).fingerprint for age in ages}) == len(ages)
    assert sample_contract(safety={"status_max_age_s": 3600.0}).safety.status_max_age_s == 3600.0


@pytest.mark.parametrize("age", [0.0, 0.99, -1.0, 1.1e9, math.inf, math.nan])
def test_an_age_that_is_none_is_refused(age: float) -> None:
    with pytest.raises(ValidationError, match="status_max_age_s"):
        SafetyEnvelope.model_validate({**SAMPLE_DOCUMENT["safety"], "status_max_age_s": age})


def test_an_older_format_has_no_such_field() -> None:
    document = {**SAMPLE_DOCUMENT, "safety": {**SAMPLE_DOCUMENT["safety"], "status_max_age_s": 3600.0}}
    with pytest.raises(ContractError, match=r"has no such safety.status_max_age_s, which came with format 3"):
        parse_contract(json.dumps(document), source="sample")
