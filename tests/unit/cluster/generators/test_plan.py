"""How many generators pay off: the formula by hand, its laws, and the placement."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.cluster.placement.placement import ClusterNode, Placement, PlacementGroup, read_placement, seats
from physai.cluster.planning.estimate import WORTH, Costs, Node, fewest, plan, read_nodes
from physai.compute.ray.cluster import ClusterError
from physai.sdk.cli.main import main

# 10,000 steps of 100 us, updates of 0.2 s, 100 B per step over 10 MB/s, 10 ms per call.
COSTS = Costs(
    steps=10_000,
    step_s=1e-4,
    learn_s=0.2,
    step_bytes=100.0,
    weights_bytes=1000,
    call_s=0.01,
    bandwidth=1e7,
    most=64,
)


def test_the_formula_by_hand() -> None:
    # 1 s of playing, 0.1 s of sending, 0.2 s of learning.
    assert COSTS.iteration_s(1) == pytest.approx(1.31)
    assert COSTS.iteration_s(4) == pytest.approx(0.25 + 0.04 + 0.3)
    assert COSTS.iteration_s(4, asynchronous=True) == pytest.approx(0.34)
    assert COSTS.iteration_s(2, asynchronous=True) == pytest.approx(0.5)
    # sqrt(1 s / 10 ms)
    assert COSTS.best == 10
    assert COSTS.iteration_s(10) == pytest.approx(0.5)
    # At most 5 % longer than that: 1/7 + 0.07 + 0.3 = 0.513, and 1/6 + 0.06 + 0.3 = 0.527.
    assert fewest(COSTS) == 7
    assert COSTS.limits() == pytest.approx({"learner": 5.0, "network": 10.0, "calls": 10.0})


positive = st.floats(1e-6, 1e3)


@given(steps=st.integers(1, 10**7), step_s=positive, learn_s=positive, call_s=positive, most=st.integers(1, 1024))
def test_the_best_number_is_the_best(steps: int, step_s: float, learn_s: float, call_s: float, most: int) -> None:
    costs = Costs(
        steps=steps, step_s=step_s, learn_s=learn_s, step_bytes=10.0, weights_bytes=1, call_s=call_s, most=most
    )
    assert 1 <= fewest(costs) <= costs.best <= most
    least = min(costs.iteration_s(count) for count in range(1, most + 1))
    assert costs.iteration_s(costs.best) == pytest.approx(least, rel=1e-9)
    assert costs.iteration_s(fewest(costs)) <= (1.0 + WORTH) * least * (1.0 + 1e-9)
    for count in range(1, most + 1, 7):
        assert costs.iteration_s(count, asynchronous=True) <= costs.iteration_s(count)


@given(cpus=st.lists(st.integers(1, 32), min_size=1, max_size=8), gpu=st.integers(0, 7))
def test_no_node_gets_more_than_it_has(cpus: list[int], gpu: int) -> None:
    nodes = [Node(name=f"n{number}", cpus=count, gpus=int(number == gpu)) for number, count in enumerate(cpus)]
    found = plan(COSTS, nodes)
    most = [number for number, count in enumerate(cpus) if count == max(cpus)]
    # Of equal nodes, the first without a GPU.
    assert found.trainer == f"n{next((number for number in most if number != gpu), gpu)}"
    assert 1 <= found.count <= max(1, sum(cpus) - 1)
    for node in nodes:
        room = node.cpus - (node.name == found.trainer)
        assert found.generators.get(node.name, 0) <= room or (found.count == 1 and sum(cpus) == 1)


def test_a_measured_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.yaml").write_text("nodes:\n  - {name: gpu, cpus: 4, gpus: 1}\n  - {name: rack, cpus: 8}\n")
    words = ["cluster", "plan", "cartpole-swingup", "--num-envs", "64", "--nodes", str(tmp_path / "nodes.yaml")]
    file = tmp_path / "placement.yaml"
    assert main([*words, "--json", "--output", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trainer"] == "rack"
    assert found["reasons"][0].startswith("the trainer runs on rack, which has the most processors; with generators")
    assert found["costs"]["most"] == 4
    assert all(math.isfinite(value) and value > 0.0 for value in found["costs"].values())
    assert 1 <= sum(found["generators"].values()) <= 4
    placement = read_placement(file)
    assert placement.trainer == "rack"
    assert {group.node or "rack": group.number for group in placement.generators} == found["generators"]
    assert file.read_text().startswith("".join(f"# {reason}\n" for reason in found["reasons"]))
    assert main(words) == 0
    said = capsys.readouterr().out
    assert re.search(r"^physai train cartpole-swingup --ray auto --generators \d --num-envs 64$", said, re.M)


def test_a_plan_as_a_placement() -> None:
    # Seven generators pay off; the trainer keeps one of the four processors of its node.
    nodes = (Node(name="rack", cpus=3), Node(name="dgx", cpus=4, gpus=1), Node(name="spare", cpus=2))
    by_name = plan(COSTS, nodes).placement(named=True)
    assert by_name == Placement(
        trainer="dgx",
        generators=(
            PlacementGroup(number=3, colocated=True),
            PlacementGroup(number=3, node="rack"),
            PlacementGroup(number=1, node="spare"),
        ),
    )
    cluster = [ClusterNode(id=node.name, address=node.name, processors=node.cpus, labels={}) for node in nodes]
    placed = seats(by_name, cluster, trainer=cluster[1])
    assert [seat.node for seat in placed] == ["dgx"] * 3 + ["rack"] * 3 + ["spare"]
    # One computer without a name that Ray knows.
    here = plan(COSTS, (Node(name="here", cpus=3),)).placement(named=False)
    assert here == Placement(generators=(PlacementGroup(number=2, colocated=True),))


def test_where_a_placement_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.yaml").write_text("nodes: [{name: a, cpus: 2}]")
    file = tmp_path / "none" / "placement.yaml"
    words = ["cluster", "plan", "cartpole-swingup", "--num-envs", "16", "--nodes", str(tmp_path / "nodes.yaml")]
    assert main([*words, "--output", str(file)]) == 2
    assert "placement.yaml: cannot be written" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: []", "nodes"),
        ("nodes: [{name: a, cpus: 0}]", "cpus"),
        ("nodes: [{name: a, cpus: .nan}]", "cpus"),
        ("nodes: [{name: a, cpus: 2026-11-25}]", "nodes.yaml"),
        ("nodes: [{name: a, cpus: 1}, {name: a, cpus: 2}]", "is there twice"),
        ("nodes: [{name: a, cpus: 1, memory: 3}]", "memory"),
        ("[", "nodes.yaml"),
    ],
)
def test_lists_of_nodes_that_are_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(ClusterError, match=says):
        read_nodes(file)


def test_what_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "plan", "cartpole-swingup", "--gbit-s", "0"]) == 2
    assert "--gbit-s must lie in" in capsys.readouterr().err
    assert main(["cluster", "plan", "cartpole-swingup", "--nodes", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_the_page_on_scaling_says_what_the_formula_does() -> None:
    page = (Path(__file__).parents[4] / "docs" / "explanation" / "cluster-scaling.md").read_text("utf-8")
    costs = Costs(steps=24_576, step_s=106e-6, learn_s=0.549, step_bytes=1073.0, weights_bytes=98_224, most=1000)
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert [int(count.replace(",", "")) for count, _, _ in rows] == [1, 8, 29, 100, 1000]
    for count, seconds, late in rows:
        generators = int(count.replace(",", ""))
        assert float(seconds) == pytest.approx(costs.iteration_s(generators), abs=0.006)
        assert float(late) == pytest.approx(costs.iteration_s(generators, asynchronous=True), abs=0.006)
    assert costs.best == 29
    assert f"from {costs.limits()['learner']:.1f} generators on" in page
    assert f"take {1e3 * costs.transfer_s:.0f} ms" in page
    assert costs.iteration_s(100) > costs.iteration_s(10) - 0.02
    assert costs.iteration_s(1000) > costs.iteration_s(1)
    slow = replace(costs, step_s=0.01)
    assert f"{slow.iteration_s(1) / slow.iteration_s(100):.0f} times as fast" in page
