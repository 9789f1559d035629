"""Reading and writing: round trips, fingerprints, and every document that is refused."""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.base.errors import ContractError
from physai.sdk.base.files import write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.io import MAX_CONTRACT_BYTES, load_contract, parse_contract, save_contract
from physai.sdk.contract.policy_contract import PolicyContract

SMALL_FINGERPRINT = "eadf1edfabe8964be2510df0c49ca9b8e0db081d48afc0b39de7cb1dbc684f69"
"""Changes with the format only: contracts in the field are known by theirs."""


def refusal(data: bytes | str) -> str:
    with pytest.raises(ContractError) as caught:
        parse_contract(data, source="test.json")
    assert str(caught.value).startswith("test.json: ")
    return str(caught.value)


class TestRoundTrip:
    @given(data=st.data())
    @settings(max_examples=50, deadline=None)
    def test_canonical_json_reads_back(self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject) -> None:
        contract = data.draw(contracts)
        again = parse_contract(canonical_json(contract), source="again")
        assert again == contract
        assert again.fingerprint == contract.fingerprint

    @given(data=st.data())
    @settings(max_examples=20, deadline=None)
    def test_layout_of_the_text_does_not_matter(
        self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
    ) -> None:
        contract = data.draw(contracts)
        document = json.loads(canonical_json(contract))
        reversed_keys = json.dumps(dict(reversed(document.items())), indent=3, ensure_ascii=True)
        assert parse_contract(reversed_keys, source="again").fingerprint == contract.fingerprint

    def test_the_fingerprint_is_pinned(self, small_contract: PolicyContract) -> None:
        assert small_contract.fingerprint == SMALL_FINGERPRINT
        stored = Path(__file__).with_name("pendulum.contract.json")
        assert hashlib.sha256(stored.read_bytes()).hexdigest() == SMALL_FINGERPRINT
        assert load_contract(stored) == small_contract

    def test_defaults_written_or_not_are_the_same_contract(self, small_contract: PolicyContract) -> None:
        written = json.loads(canonical_json(small_contract))
        assert written["robot"]["joints"][0]["stiffness"] == 0
        assert parse_contract(json.dumps(written), source="written") == small_contract

    def test_negative_zero_is_zero(self, small_document: dict[str, Any], small_contract: PolicyContract) -> None:
        small_document["action"]["terms"][0]["offset"] = [-0.0]
        contract = parse_contract(json.dumps(small_document), source="test")
        assert math.copysign(1.0, contract.action.terms[0].offset[0]) == -1.0
        assert contract.fingerprint == small_contract.fingerprint


class TestFiles:
    def test_a_file_hashes_to_the_fingerprint(self, tmp_path: Path, full_contract: PolicyContract) -> None:
        path = tmp_path / "contract.json"
        save_contract(full_contract, path)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == full_contract.fingerprint
        assert load_contract(path) == full_contract
        assert [entry.name for entry in tmp_path.iterdir()] == ["contract.json"]

    def test_a_folder_holds_one(self, tmp_path: Path, small_contract: PolicyContract) -> None:
        save_contract(small_contract, tmp_path / "contract.json")
        assert load_contract(str(tmp_path)) == small_contract

    def test_an_old_file_is_replaced(
        self, tmp_path: Path, small_contract: PolicyContract, full_contract: PolicyContract
    ) -> None:
        path = tmp_path / "contract.json"
        save_contract(full_contract, path)
        save_contract(small_contract, path)
        assert load_contract(path) == small_contract

    def test_new_files_obey_the_umask(self, tmp_path: Path) -> None:
        old = os.umask(0o027)
        try:
            write_atomic(tmp_path / "file", b"data")
        finally:
            os.umask(old)
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640

    def test_a_failed_write_leaves_nothing_behind(self, tmp_path: Path) -> None:
        target = tmp_path / "folder"
        (target / "inner").mkdir(parents=True)
        with pytest.raises(OSError, match="directory"):
            write_atomic(target, b"data")
        assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]

    def test_missing_files_and_folders_are_named(self, tmp_path: Path, small_contract: PolicyContract) -> None:
        with pytest.raises(ContractError, match=r"missing\.json: cannot be read: No such file"):
            load_contract(tmp_path / "missing.json")
        with pytest.raises(ContractError, match=r"contract\.json: cannot be read: No such file"):
            load_contract(tmp_path)
        with pytest.raises(ContractError, match="cannot be written: No such file"):
            save_contract(small_contract, tmp_path / "none" / "contract.json")


class TestRefusals:
    def test_the_size_is_bounded(self, small_contract: PolicyContract, tmp_path: Path) -> None:
        text = canonical_json(small_contract)
        assert parse_contract(text.ljust(MAX_CONTRACT_BYTES), source="padded") == small_contract
        too_long = text.ljust(MAX_CONTRACT_BYTES + 1)
        assert "larger than the 1048576 bytes" in refusal(too_long)
        assert "larger than the 1048576 bytes" in refusal(too_long.decode())
        (tmp_path / "contract.json").write_bytes(too_long)
        with pytest.raises(ContractError, match="larger than the 1048576 bytes"):
            load_contract(tmp_path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[" * 17 + "]" * 17, "nested 17 deep, at most 16 is allowed"),
            ("[" * 500_000, "nested 500000 deep"),
            ('{"a":' * 100_000, "nested 100000 deep"),
            ("[" * 16 + "]" * 16, "a contract is a JSON object, got [[[[[["),
            ('"[[[[[[[[[[[[[[[[[[[[\\"[["', "a contract is a JSON object, got '[[[["),
            ("", "not JSON"),
            ("{", "not JSON"),
            ("{} {}", "not JSON: Extra data"),
            ("\ufeff{}", "not JSON"),
            ("null", "a contract is a JSON object, got None"),
            ("[]", "a contract is a JSON object, got []"),
            ("9" * 5000, "not JSON: Exceeds the limit"),
            ("{}", "format_version must be a whole number, got none"),
            ('{"format_version": "1"}', "format_version must be a whole number, got '1'"),
            ('{"format_version": true}', "format_version must be a whole number, got True"),
            ('{"format_version": 1.0}', "format_version must be a whole number, got 1.0"),
            ('{"format_version": 0}', "there is no contract format 0, this physai reads 1 to 3"),
            ('{"format_version": 4}', "contract format 4 is newer than format 3, which this physai reads; upgrade"),
            ('{"format_version": 2}', "  robot: missing"),
            ('{"format_version": 1, "format_version": 1}', "key 'format_version' occurs twice in one object"),
            ('{"a": [{"b": 1, "b": 2}]}', "key 'b' occurs twice in one object"),
            ('{"a": NaN}', "NaN is not a finite number"),
            ('{"a": [Infinity]}', "Infinity is not a finite number"),
            ('{"a": -Infinity}', "-Infinity is not a finite number"),
            ('{"format_version": 1}', "  robot: missing"),
            ("\ud800", "not UTF-8 text: surrogates not allowed at 0"),
            (b"\xff{}", "not UTF-8 text: invalid start byte at 0"),
            ("{}".encode("utf-16"), "not UTF-8 text: invalid start byte at 0"),
        ],
    )
    def test_a_malformed_document(self, text: bytes | str, message: str) -> None:
        assert message in refusal(text)

    @pytest.mark.parametrize(
        ("number", "message"),
        [
            ("1e999", "timing.control_dt: "),
            ("-1e999", "timing.control_dt: "),
            ("1e300", "timing.control_dt: Input should be less than or equal to 1 (got 1e+300)"),
        ],
    )
    def test_a_number_out_of_range(self, small_document: dict[str, Any], number: str, message: str) -> None:
        small_document["timing"]["control_dt"] = "@"
        assert message in refusal(json.dumps(small_document).replace('"@"', number))

    def test_a_lone_surrogate_in_a_string(self, small_document: dict[str, Any]) -> None:
        small_document["robot"]["sensors"][0]["unit"] = "\ud800"
        assert "Invalid JSON" in refusal(json.dumps(small_document))

    def test_long_values_are_cut(self, small_document: dict[str, Any]) -> None:
        small_document["task"] = "x" * 100_000
        assert len(refusal(json.dumps(small_document))) < 300

    def test_many_problems_are_counted(self, small_document: dict[str, Any]) -> None:
        small_document.update({f"extra{i}": i for i in range(60)})
        lines = refusal(json.dumps(small_document)).splitlines()
        assert lines[0] == "test.json: not a valid contract"
        assert lines[1] == "  extra0: unknown field (got 0)"
        assert lines[-1] == "  and 10 more"
        assert len(lines) == 52

    @given(data=st.binary(max_size=200))
    @settings(max_examples=100, deadline=None)
    def test_no_bytes_end_in_another_error(self, data: bytes) -> None:
        with pytest.raises(ContractError):
            parse_contract(data, source="noise")

    @given(data=st.data())
    @settings(max_examples=100, deadline=None)
    def test_damage_is_refused_or_changes_nothing(
        self, data: st.DataObject, contracts: st.SearchStrategy[PolicyContract]
    ) -> None:
        text = bytearray(canonical_json(data.draw(contracts)))
        position = data.draw(st.integers(0, len(text) - 1))
        text[position] = data.draw(st.integers(0, 255))
        try:
            contract = parse_contract(bytes(text), source="damaged")
        except ContractError:
            return
        assert parse_contract(canonical_json(contract), source="again") == contract
