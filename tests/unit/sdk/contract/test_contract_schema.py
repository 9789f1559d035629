"""The JSON Schema: up to date, and true of what the library writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.contract_schema import contract_schema, schema_text
from physai.sdk.contract.policy_contract import PolicyContract

jsonschema = pytest.importorskip("jsonschema")

STORED = Path(__file__).parents[4] / "docs" / "contract.schema.json"


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(contract_schema())
    return jsonschema.Draft202012Validator(contract_schema())


def test_the_stored_schema_is_up_to_date() -> None:
    assert STORED.read_text(encoding="utf-8") == schema_text(), "run `make schema`"


def test_real_contracts_validate(
    validator: Any, small_contract: PolicyContract, full_contract: PolicyContract, newest_contract: PolicyContract
) -> None:
    for contract in (small_contract, full_contract, newest_contract):
        validator.validate(json.loads(canonical_json(contract)))


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_arbitrary_contracts_validate(
    validator: Any, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
) -> None:
    validator.validate(json.loads(canonical_json(data.draw(contracts))))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("timing", "control_dt", 2.0),
        ("timing", "control_dt", "0.01"),
        ("timing", "decimation", ...),
        ("timing", "period", 0.01),
        ("robot", "base", "rolling"),
        ("robot", "joints", []),
        ("robot", "name", "has space"),
    ],
)
def test_malformed_contracts_do_not(
    validator: Any, full_document: dict[str, Any], part: str, field: str, value: Any
) -> None:
    if value is ...:
        del full_document[part][field]
    else:
        full_document[part][field] = value
    assert not validator.is_valid(full_document)
