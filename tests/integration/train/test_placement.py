"""`physai train --placement` on the nodes of a real Ray cluster."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.patience import until
from tests.support.ray_nodes import RayNodes, alive, ray_nodes

from physai.cluster.generators.launch import generators_of
from physai.cluster.placement.placement import Placement, PlacementGroup, read_placement
from physai.sdk.cli.main import main
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig

SOURCE = RunTaskSource(task="cartpole-swingup")
TASK = SOURCE.load()
CONFIG = TrainConfig(num_envs=64, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1)

PLACEMENT = """
generators:
  - {number: 2, node: rack}
  - {number: 1, labels: {zone: lab}, processors: 2}
  - {number: 1, colocated: true}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """A node for the trainer, one with a name and one with a label."""
    with ray_nodes([1]) as nodes:
        nodes.start(cpus=2, name="rack")
        nodes.start(cpus=2, labels={"zone": "lab"})
        nodes.await_all()
        yield nodes


def equal(one: Trainer, other: Trainer) -> bool:
    pairs = zip(one.learner.parameters(), other.learner.parameters(), strict=True)
    return one.iteration == other.iteration and all(torch.equal(mine, theirs) for mine, theirs in pairs)


def started(cluster: RayNodes, placement: Placement, stack: ExitStack) -> tuple[Trainer, Any]:
    """A run with this placement, as the command has it, and Ray's module."""
    make = generators_of(TASK, SOURCE, CONFIG, generators=placement.count, address=cluster.address, placement=placement)
    trainer = Trainer(TASK, CONFIG, source=stack.enter_context(make))
    return trainer, import_module("ray")


@pytest.mark.slow
def test_generators_are_where_the_file_says(
    cluster: RayNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placement.yaml"
    for text, words in (
        (
            PLACEMENT.replace("node: rack", "node: rack, processors: 2"),
            "2 generators on rack take 4 processors, 2 each",
        ),
        ("trainer: rack\n" + PLACEMENT, "the placement has the trainer on rack"),
    ):
        file.write_text(text)
        new = ["train", "cartpole-swingup", "--num-envs", "64", "--device", "cpu", "--out", str(tmp_path / "refused")]
        assert main([*new, "--ray", cluster.address, "--placement", str(file)]) == 2
        said = capsys.readouterr().err.replace("\n", " ")
        assert words in said
        assert "iteration" not in said
    file.write_text(PLACEMENT)
    alone = Trainer(TASK, CONFIG)
    with ExitStack() as stack:
        together, ray = started(cluster, read_placement(file), stack)
        together.train_iteration()
        until(lambda: alive(ray).total() == 4)
        (lab,) = [node["NodeName"] for node in ray.nodes() if node["Labels"].get("zone") == "lab"]
        home = ray.get_runtime_context().get_node_id()
        (trainer,) = [node["NodeName"] for node in ray.nodes() if node["NodeID"] == home]
        assert alive(ray) == {"rack": 2, lab: 1, trainer: 1}
        together.train_iteration()
    for _ in range(2):
        alone.train_iteration()
    assert equal(together, alone)


@pytest.mark.slow
def test_a_generator_whose_node_dies_goes_on_elsewhere(cluster: RayNodes) -> None:
    spare = cluster.start(cpus=1, name="spare")
    cluster.await_all()
    alone = Trainer(TASK, CONFIG)
    placement = Placement(generators=(PlacementGroup(number=1, colocated=True), PlacementGroup(number=1, node="spare")))
    with ExitStack() as stack:
        together, ray = started(cluster, placement, stack)
        together.train_iteration()
        until(lambda: alive(ray)["spare"] == 1)
        # Worlds move there, should it have come late.
        together.train_iteration()
        cluster.kill(spare)
        # Ray notices within some seconds that the node is gone; what it starts there until then dies, too.
        until(lambda: alive(ray).total() == 2 and alive(ray)["spare"] == 0, together.train_iteration)
        together.train_iteration()
    while alone.iteration < together.iteration:
        alone.train_iteration()
    assert equal(together, alone)
