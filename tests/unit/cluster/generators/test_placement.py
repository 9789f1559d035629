"""Which node each generator starts on: by hand, by law, and what is refused."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.cluster.placement.placement import (
    ClusterNode,
    Placement,
    PlacementGroup,
    Seat,
    placement_text,
    read_placement,
    seats,
)
from physai.compute.ray.cluster import ClusterError
from physai.sdk.cli.main import main

HOME = ClusterNode(id="a", address="10.0.0.1", names=("dgx", "host-1"), processors=4, labels={"zone": "desk"})
RACK = ClusterNode(id="b", address="10.0.0.2", names=("10.0.0.2", "rack"), processors=3, labels={"zone": "lab"})
ARM = ClusterNode(id="c", address="10.0.0.3", names=("10.0.0.3", "rack"), processors=2, labels={"zone": "lab"})
NODES = (HOME, RACK, ARM)

TEXT = """
trainer: dgx
generators:
  - {number: 2, node: 10.0.0.2}
  - {number: 1, labels: {zone: lab}, processors: 2}
  - {number: 3, colocated: true}
"""


def placed(tmp_path: Path, text: str) -> Placement:
    file = tmp_path / "placement.yaml"
    file.write_text(text)
    return read_placement(file)


def test_by_hand(tmp_path: Path) -> None:
    placement = placed(tmp_path, TEXT)
    assert (placement.count, placement.processors) == (6, 7)
    found = seats(placement, NODES, trainer=HOME)
    # After the named two, rack 10.0.0.2 has one processor left, so that the two of the third are on 10.0.0.3.
    assert found == (Seat("b"), Seat("b"), Seat("c", 2), Seat("a"), Seat("a"), Seat("a"))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (PlacementGroup(number=1, node="host-1"), {"a"}),
        (PlacementGroup(number=1, node="10.0.0.3"), {"c"}),
        (PlacementGroup(number=4, colocated=True), {"a"}),
        (PlacementGroup(number=5, colocated=False), {"b", "c"}),
        (PlacementGroup(number=1, colocated=True, labels={"zone": "desk"}), {"a"}),
        (PlacementGroup(number=9), {"a", "b", "c"}),
    ],
)
def test_where_groups_go(group: PlacementGroup, expected: set[str]) -> None:
    found = seats(Placement(generators=(group,)), NODES, trainer=HOME)
    assert {seat.node for seat in found} == expected
    assert len(found) == group.number


def test_nodes_that_others_need_are_left_to_them() -> None:
    """On the node with most processors free, the first group would take what the second needs."""
    wide = ClusterNode(id="w", address="1", processors=3, labels={"a": "1", "b": "1"})
    left = ClusterNode(id="l", address="2", processors=2, labels={"a": "1"})
    placement = Placement(
        generators=(PlacementGroup(number=2, labels={"a": "1"}), PlacementGroup(number=3, labels={"b": "1"}))
    )
    assert [seat.node for seat in seats(placement, (wide, left), trainer=wide)] == ["l", "l", "w", "w", "w"]


groups = st.builds(
    PlacementGroup,
    number=st.integers(1, 5),
    processors=st.integers(1, 3),
    labels=st.sampled_from([{}, {"zone": "lab"}]),
    colocated=st.sampled_from([None, True, False]),
)


@given(
    asked=st.lists(groups, min_size=1, max_size=4),
    cpus=st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=5),
)
def test_no_node_gives_more_than_it_has_and_every_generator_and_scorer_is_where_it_may_be(
    asked: list[PlacementGroup], cpus: list[tuple[int, bool]]
) -> None:
    nodes = [
        ClusterNode(id=str(n), address=str(n), processors=count, labels={"zone": "lab"} if lab else {})
        for n, (count, lab) in enumerate(cpus)
    ]
    try:
        found = seats(Placement(generators=tuple(asked[:1]), scorers=tuple(asked[1:])), nodes, trainer=nodes[0])
    except ClusterError:
        # A single group without wishes is refused only for want of processors.
        plain = len(asked) == 1 and not asked[0].labels and asked[0].colocated is None
        room = sum(node.processors // asked[0].processors for node in nodes)
        assert not plain or asked[0].number > room
        return
    taken: Counter[str] = Counter()
    order = [group for group in asked for _ in range(group.number)]
    for seat, group in zip(found, order, strict=True):
        node = nodes[int(seat.node or "")]
        taken[node.id] += seat.processors
        assert seat.processors == group.processors
        assert group.labels.items() <= node.labels.items()
        assert group.colocated in (None, node is nodes[0])
    assert all(taken[node.id] <= node.processors for node in nodes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "generators: [{number: 4, node: 10.0.0.2}]",
            "4 generators on 10.0.0.2 take 4 processors, 1 each, and there is room for 3 of them; the cluster has dgx "
            "(10.0.0.1) with the trainer: 4 processors, zone=desk; rack (10.0.0.2): 3 processors, zone=lab; rack "
            "(10.0.0.3): 2 processors, zone=lab; place fewer, or start more nodes",
        ),
        ("generators: [{number: 3, colocated: true, processors: 2}]", "take 6 processors, 2 each, and there is room"),
        ("generators: [{number: 1, node: moon}]", "no node is called 'moon'; the cluster has dgx"),
        ("generators: [{number: 1, node: rack}]", "2 nodes are called 'rack': 10.0.0.2, 10.0.0.3; name one by its"),
        (
            "generators: [{number: 1, colocated: true, labels: {zone: lab}}]",
            "generators are to run on the trainer's node where zone=lab, and no node is such",
        ),
        (
            "{generators: [{number: 1}], scorers: [{number: 5, node: 10.0.0.2}]}",
            "5 scorers on 10.0.0.2 take 5 processors, 1 each, and there is room for 3 of them",
        ),
        (
            "{trainer: 10.0.0.2, generators: [{number: 1}]}",
            r"the placement has the trainer on rack (10.0.0.2), and this process is on dgx (10.0.0.1); start `physai",
        ),
    ],
)
def test_what_a_cluster_cannot_do(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as refused:
        seats(placed(tmp_path, text), NODES, trainer=HOME)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("generators: []", "generators"),
        ("generators: [{number: 0}]", "number"),
        ("generators: [{number: .nan}]", "number"),
        ("generators: [{number: 1, processors: 257}]", "processors"),
        ("generators: [{number: 1, device: cuda}]", "device: unknown field"),
        ("generators: [{number: 1, node: a, colocated: true}]", "node 'a' says where they run, and so does"),
        ("generators: [{number: 1, labels: {zone: 'in(a,b)'}}]", "zone"),
        ("generators: [{number: 1000}, {number: 25}]", "1025 generators, and a run has at most 1024; remove some"),
        ("{generators: [{number: 1}], scorers: [{number: 1025}]}", "scorers"),
        ("{format_version: 2, generators: [{number: 1}]}", "format_version"),
        ("[", "placement.yaml"),
    ],
)
def test_files_that_are_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as refused:
        placed(tmp_path, text)
    assert says in str(refused.value)
    assert "placement.yaml" in str(refused.value)


@given(
    placement=st.builds(
        Placement,
        trainer=st.sampled_from([None, "dgx"]),
        generators=st.lists(groups, min_size=1, max_size=3).map(tuple),
        scorers=st.lists(groups, max_size=2).map(tuple),
    )
)
def test_a_placement_that_is_written_is_read_again(
    placement: Placement, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("placement")
    assert placed(folder, placement_text(placement, reasons=["because\n# of: [this"])) == placement


def test_options_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed(tmp_path, "generators: [{number: 2}]")
    new = ["train", "cartpole-swingup", "--out", str(tmp_path / "run"), "--placement"]
    file = str(tmp_path / "placement.yaml")
    for options, words in (
        ([file], "names nodes of a Ray cluster; add --ray"),
        ([file, "--ray", "local", "--generators", "3"], "--generators 3, but"),
        ([str(tmp_path / "none.yaml"), "--ray", "local"], "none.yaml: cannot be read"),
    ):
        assert main([*new, *options]) == 2
        assert words in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_scorers_are_of_fine_tuning_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed(tmp_path, "{generators: [{number: 2}], scorers: [{number: 1}]}")
    placement = ["--ray", "local", "--placement", str(tmp_path / "placement.yaml"), "--out", str(tmp_path / "run")]
    tune = ["finetune", str(tmp_path), "--preferences", str(tmp_path / "none.db")]
    for words in (["train", "cartpole-swingup"], tune, [*tune, "--scoring", "generators"]):
        assert main([*words, *placement]) == 2
        said = capsys.readouterr().err.replace("\n", " ")
        assert "places scorers, which only `physai finetune --scoring apart` starts; remove `scorers`" in said
    for options, says in (
        (["--scoring", "generators"], "--scoring generators takes --generators K; add it"),
        (["--scoring", "apart", "--generators", "2"], "--scoring apart takes --generators K and --ray; add"),
        (["--ray", "local"], "--ray local is for generators; add --generators K"),
    ):
        assert main([*tune, *options]) == 2
        assert says in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_the_file_in_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "placement.md").read_text("utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    placement = placed(tmp_path, block)
    assert (placement.trainer, placement.count, placement.processors) == ("dgx", 7, 9)
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(PlacementGroup.model_fields)
