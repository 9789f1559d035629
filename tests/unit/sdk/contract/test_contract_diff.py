"""Differences: none between equals, and every changed field named."""

import copy
import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from physai.sdk.base.errors import ContractMismatchError
from physai.sdk.contract.contract_diff import Difference, diff, format_diff, require_same
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract


def contract_of(document: dict[str, Any]) -> PolicyContract:
    return parse_contract(json.dumps(document), source="test")


Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> list[Path]:
    """Paths of every scalar in a JSON document."""
    if isinstance(value, dict):
        return [p for key, inner in cast("dict[str, Any]", value).items() for p in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [p for index, inner in enumerate(cast("list[Any]", value)) for p in leaves(inner, (*path, index))]
    return [path]


def replaced(model: Any, path: Path, *, name: str = "") -> Any:
    """The model with the value at the path changed, unchecked: diff must name what validation would refuse, too."""
    if path:
        head, *rest = path
        if isinstance(model, BaseModel):
            key = str(head)
            return model.model_copy(update={key: replaced(getattr(model, key), tuple(rest), name=key)})
        assert isinstance(head, int)
        return (*model[:head], replaced(model[head], tuple(rest)), *model[head + 1 :])
    if isinstance(model, str):
        return model + "x"
    if model is None:
        return {"source": "x", "chain": "x", "joint": "x", "joints": ("x",)}.get(name, 7.25)
    return model + 1


def name_of(entry: dict[str, Any]) -> str:
    if "name" in entry:
        return entry["name"]
    if "kind" in entry:
        return "joint_pos_target" if entry["kind"].startswith("joint_pos") else "joint_effort_target"
    return entry["joint"]


def expected_path(document: dict[str, Any], path: Path) -> str:
    """What diff should call the leaf: named entries by name, vectors of an action by joint, other vectors whole."""
    text = ""
    value: Any = document
    for position, part in enumerate(path):
        value = value[part]
        if isinstance(part, str):
            text = f"{text}.{part}".lstrip(".")
        elif position + 1 < len(path):
            text += f"[{part}]" if path[position - 1] == "segments" else f"[{name_of(value)}]"
        elif path[:2] == ("action", "terms"):
            text += f"[{document['action']['terms'][path[2]]['joints'][part]}]"
    return text


class TestLaws:
    @given(data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_a_contract_does_not_differ_from_itself(
        self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
    ) -> None:
        contract = data.draw(contracts)
        assert diff(contract, contract) == ()
        assert diff(contract, contract.model_copy(deep=True)) == ()

    @given(data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_no_difference_means_one_fingerprint(
        self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
    ) -> None:
        a, b = data.draw(contracts), data.draw(contracts)
        assert (diff(a, b) == ()) == (a.fingerprint == b.fingerprint)

    @given(data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_swapping_sides_swaps_values(
        self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
    ) -> None:
        a, b = data.draw(contracts), data.draw(contracts)
        opposite = {"added": "removed", "removed": "added"}
        swapped = {(d.path, opposite.get(d.kind, d.kind), repr(d.right), repr(d.left)) for d in diff(b, a)}
        assert {(d.path, d.kind, repr(d.left), repr(d.right)) for d in diff(a, b)} == swapped

    def test_every_changed_field_is_named(
        self, newest_document: dict[str, Any], newest_contract: PolicyContract
    ) -> None:
        full_document, full_contract = newest_document, newest_contract
        paths = leaves(full_document)
        assert len(paths) > 200
        for path in paths:
            changed = replaced(full_contract, path)
            differences = diff(full_contract, changed)
            named = [d.path for d in differences]
            wanted = expected_path(full_document, path)
            if path[-1] in ("name", "joint", "kind") or (path[0] == "action" and path[-2] == "joints"):
                # A changed name is an entry that left and one that came.
                assert wanted in named or wanted.rpartition(".")[0] in named, (path, named)
            else:
                assert named == [wanted]
            assert changed.fingerprint != full_contract.fingerprint


class TestByName:
    def test_one_value(self, full_document: dict[str, Any], full_contract: PolicyContract) -> None:
        full_document["robot"]["joints"][1]["stiffness"] = 80.0
        assert diff(full_contract, contract_of(full_document)) == (
            Difference(path="robot.joints[elbow].stiffness", kind="changed", left=100.0, right=80.0),
        )

    def test_reordered_joints_are_an_order_and_nothing_else(
        self, full_document: dict[str, Any], full_contract: PolicyContract
    ) -> None:
        joints, envelopes = full_document["robot"]["joints"], full_document["safety"]["joints"]
        joints[0], joints[1] = joints[1], joints[0]
        envelopes[0], envelopes[1] = envelopes[1], envelopes[0]
        before, after = ["shoulder", "elbow", "slide", "passive"], ["elbow", "shoulder", "slide", "passive"]
        assert diff(full_contract, contract_of(full_document)) == (
            Difference(path="robot.joints", kind="order", left=before, right=after),
            Difference(path="safety.joints", kind="order", left=before, right=after),
        )

    def test_reordered_actions_keep_their_values(
        self, full_document: dict[str, Any], full_contract: PolicyContract
    ) -> None:
        term = full_document["action"]["terms"][0]
        for label in ("joints", "scale", "offset", "lower", "upper"):
            term[label].reverse()
        assert diff(full_contract, contract_of(full_document)) == (
            Difference(
                path="action.terms[joint_pos_target].joints",
                kind="order",
                left=["elbow", "shoulder"],
                right=["shoulder", "elbow"],
            ),
        )

    def test_an_added_and_a_removed_term(self, full_document: dict[str, Any], full_contract: PolicyContract) -> None:
        terms = full_document["observation"]["terms"]
        gyro = terms[1]
        renamed = {**copy.deepcopy(gyro), "name": "rate"}
        terms[1] = renamed
        assert diff(full_contract, contract_of(full_document)) == (
            Difference(path="observation.terms[gyro]", kind="removed", left=gyro, right=None),
            Difference(path="observation.terms[rate]", kind="added", left=None, right=renamed),
        )

    def test_ranges_are_matched_by_name(self, newest_document: dict[str, Any], newest_contract: PolicyContract) -> None:
        ranges = newest_document["safety"]["sensor_ranges"]
        ranges.reverse()
        ranges[0]["upper"] = [1.01, 1.01, 1.01, 2.0]
        assert diff(newest_contract, contract_of(newest_document)) == (
            Difference(
                path="safety.sensor_ranges",
                kind="order",
                left=["joint_pos", "imu_quat"],
                right=["imu_quat", "joint_pos"],
            ),
            Difference(
                path="safety.sensor_ranges[imu_quat].upper", kind="changed", left=[1.01] * 4, right=ranges[0]["upper"]
            ),
        )

    def test_a_field_that_only_one_sets(self, full_document: dict[str, Any], newest_contract: PolicyContract) -> None:
        full_document["format_version"] = 2
        found = diff(contract_of(full_document), newest_contract)
        assert {d.kind for d in found} == {"added"}
        assert "safety.joints[shoulder].acceleration_limit" in [d.path for d in found]
        assert "safety.frozen_samples" in [d.path for d in found]

    def test_a_segment_more(self, full_document: dict[str, Any], full_contract: PolicyContract) -> None:
        segments = full_document["robot"]["chains"][0]["segments"]
        segments.append(copy.deepcopy(segments[2]))
        assert diff(full_contract, contract_of(full_document)) == (
            Difference(path="robot.chains[ee].segments[3]", kind="added", left=None, right=segments[2]),
        )

    def test_order_shows_through_an_added_entry(
        self, full_document: dict[str, Any], full_contract: PolicyContract
    ) -> None:
        sensors = full_document["robot"]["sensors"]
        sensors.reverse()
        sensors.append({"name": "battery", "size": 1, "unit": "V", "frame": ""})
        kinds = [(d.path, d.kind) for d in diff(full_contract, contract_of(full_document))]
        assert kinds == [("robot.sensors", "order"), ("robot.sensors[battery]", "added")]


class TestText:
    def test_every_line_has_both_values(self, full_document: dict[str, Any], full_contract: PolicyContract) -> None:
        full_document["robot"]["joints"][1]["stiffness"] = 80.0
        full_document["command"]["fields"].append(
            {"name": "mode", "size": 1, "unit": "", "frame": "", "lower": [0.0], "upper": [1.0]}
        )
        full_document["observation"]["terms"].reverse()
        text = format_diff(diff(full_contract, contract_of(full_document)), left="run", right="robot")
        assert text.splitlines() == [
            "  robot.joints[elbow].stiffness: 100.0 in run, 80.0 in robot",
            '  observation.terms: order ["gravity", "gyro", "angles", "positions", "speeds", "goal", "error", '
            '"last", "lag"] in run, ["lag", "last", "error", "goal", "speeds", "positions", "angles", "gyro", '
            '"gravity"] in robot',
            '  command.fields[mode]: only in robot: {"name": "mode", "size": 1, "unit": "", "frame": "", '
            '"lower": [0.0], "upper": [1.0]}',
        ]

    def test_long_values_are_cut(self, small_document: dict[str, Any], small_contract: PolicyContract) -> None:
        field = {"name": "v", "size": 256, "unit": "", "lower": [-1.0] * 256, "upper": [1.0] * 256}
        small_document["command"]["fields"] = [field]
        text = format_diff(diff(small_contract, contract_of(small_document)), left="a", right="b")
        assert len(text) < 500
        assert text.endswith("…")


class TestRequireSame:
    def test_the_same_contract_passes(self, full_contract: PolicyContract) -> None:
        require_same(full_contract, full_contract.model_copy(deep=True), left="run", right="robot")

    def test_a_different_one_is_refused_with_the_difference(
        self, full_document: dict[str, Any], full_contract: PolicyContract
    ) -> None:
        full_document["timing"]["deadline_s"] = 0.01
        other = contract_of(full_document)
        with pytest.raises(ContractMismatchError) as caught:
            require_same(full_contract, other, left="checkpoint", right="robot")
        message = str(caught.value)
        assert "timing.deadline_s: 0.015 in checkpoint, 0.01 in robot" in message
        assert full_contract.fingerprint[:12] in message
        assert other.fingerprint[:12] in message
