"""The header of a policy file: what is written is what is read, and everything else is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import (
    MAX_PROVENANCE,
    MAX_STATE_SIZE,
    PolicyError,
    PolicyHeader,
    parse_header,
)

STATE = {"started": 1, "hidden": 64}
names = st.from_regex(r"[a-z_.]{1,20}", fullmatch=True)


def test_names_of_inputs_and_outputs(full_contract: PolicyContract) -> None:
    header = PolicyHeader(full_contract, STATE)
    assert header.inputs == {
        "joint_pos": 4,
        "joint_vel": 4,
        "imu_quat": 4,
        "imu_ang_vel_b": 3,
        "speed": 2,
        "pose": 7,
        "state.started": 1,
        "state.hidden": 64,
    }
    assert header.outputs == {
        "joint_pos_target": 2,
        "joint_effort_target": 1,
        "next.started": 1,
        "next.hidden": 64,
    }


@given(
    st.dictionaries(names, st.integers(1, MAX_STATE_SIZE), max_size=8), st.dictionaries(names, st.text(), max_size=8)
)
def test_a_header_is_read_as_it_was_written(
    small_contract_once: PolicyContract, sizes: dict[str, int], provenance: dict[str, str]
) -> None:
    header = PolicyHeader(small_contract_once, sizes, provenance)
    read = parse_header(header.metadata(), source="here")
    assert read == header
    assert list(read.state_sizes) == list(sizes)


@pytest.fixture(scope="module")
def small_contract_once(pendulum: str) -> PolicyContract:
    return parse_contract(pendulum, source="pendulum")


@pytest.fixture(scope="module")
def pendulum(request: pytest.FixtureRequest) -> str:
    return (request.path.parents[1] / "contract" / "pendulum.contract.json").read_text(encoding="utf-8")


def changed(contract: PolicyContract, entries: dict[str, str | None]) -> dict[str, str]:
    """Metadata with entries of physai replaced, or removed where None."""
    metadata = PolicyHeader(contract, STATE).metadata() | {
        f"physai.{k}": v for k, v in entries.items() if v is not None
    }
    return {key: value for key, value in metadata.items() if entries.get(key.removeprefix("physai."), "") is not None}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"format": None}, r"not an exported policy: no metadata entry 'physai\.format'"),
        ({"format": "2"}, r"policy format '2', this physai reads '1'"),
        ({"contract": None}, r"no metadata entry 'physai\.contract'"),
        ({"fingerprint": None}, r"no metadata entry 'physai\.fingerprint'"),
        ({"fingerprint": "0" * 64}, r"states the fingerprint '0+\.\.\.0+', but its contract has [0-9a-f]{64}"),
        ({"state": None}, r"no metadata entry 'physai\.state'"),
        ({"state": "{"}, "is not JSON"),
        ({"state": "[" * 60_000}, "is not JSON"),
        ({"state": "[1]"}, r"is not a JSON object, got \[1\]"),
        ({"state": '{"a": 0}'}, "'a' has size 0"),
        ({"state": '{"a": 1.0}'}, r"'a' has size 1\.0"),
        ({"state": '{"a": true}'}, "'a' has size True"),
        ({"state": '{"a": 1000001}'}, "has size 1000001, expected a whole number from 1 to 1000000"),
        ({"state": json.dumps({str(i): 1 for i in range(129)})}, "names 129 memories, at most 128"),
        ({"state": " " * 70_000}, "has 70000 characters"),
        ({f"provenance.{i}": "" for i in range(MAX_PROVENANCE + 1)}, "129 provenance entries, at most 128"),
    ],
)
def test_other_metadata_is_refused(
    small_contract: PolicyContract, entries: dict[str, str | None], message: str
) -> None:
    with pytest.raises(PolicyError, match=f"there: .*{message}"):
        parse_header(changed(small_contract, entries), source="there")


def test_a_broken_contract_is_refused(small_contract: PolicyContract) -> None:
    with pytest.raises(ContractError, match="there: not JSON"):
        parse_header(changed(small_contract, {"contract": "{"}), source="there")


def test_a_contract_changed_after_the_export_is_refused(small_contract: PolicyContract) -> None:
    metadata = changed(small_contract, {})
    metadata["physai.contract"] = metadata["physai.contract"].replace("15.0", "16.0").replace("15", "16")
    with pytest.raises(PolicyError, match="one of the two was changed after the export"):
        parse_header(metadata, source="there")


def test_two_inputs_of_one_name_are_refused(small_contract: PolicyContract) -> None:
    document = json.loads(small_contract.model_dump_json())
    document["command"]["fields"] = [
        {"name": "state.started", "size": 1, "unit": "", "lower": [0.0], "upper": [1.0]},
    ]
    contract = parse_contract(json.dumps(document), source="here")
    with pytest.raises(PolicyError, match=r"two inputs or outputs named 'state\.started'"):
        PolicyHeader(contract, STATE)


def test_more_provenance_than_a_reader_accepts_is_refused(small_contract: PolicyContract) -> None:
    header = PolicyHeader(small_contract, STATE, {str(i): "" for i in range(MAX_PROVENANCE + 1)})
    with pytest.raises(PolicyError, match="129 provenance entries"):
        header.metadata()


@pytest.mark.parametrize("text", ['{"joint_vel": [[-1.5, null, 0, 0], [1.5, null, 0, 1]]}', "nonsense"])
def test_ranges_of_older_exports_are_not_read(full_contract: PolicyContract, text: str) -> None:
    """They came from the finished policy's own visits; what is plausible is in the contract."""
    header = PolicyHeader(full_contract, STATE)
    assert parse_header({**header.metadata(), "physai.ranges": text}, source="here") == header
