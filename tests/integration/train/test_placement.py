"""`physai train --placement` on the nodes of a real Ray cluster."""

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.ray_nodes import RayNodes, ray_nodes

from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.sim.workers.cluster import connected
from physai.train.cluster.collector import ClusterCollector
from physai.train.cluster.placement import Group, Placement, seats_on
from physai.train.cluster.ray_executor import RayExecutor
from physai.train.config import TrainConfig
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runners.run_config import RunTaskSource
from physai.train.runners.runner import Trainer

SMALL = ["horizon=6", "epochs=1", "minibatches=2", "hidden=16,16", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
NEW = ["train", "cartpole-swingup", "--num-envs", "64", "--iterations", "2", "--device", "cpu", *OPTIONS]
CONFIG = TrainConfig(num_envs=32, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1)

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


def actors(ray: Any) -> list[dict[str, Any]]:
    """The generators of all runs, as the cluster itself has noted them."""
    state: Any = import_module("ray._private.state")
    return [entry for entry in state.actors().values() if entry["ActorClassName"] == "GeneratorActor"]


def where(ray: Any) -> Counter[str]:
    """How many on each node."""
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    return Counter(names[entry["Address"]["NodeID"]] for entry in actors(ray))


def weights(state: Any) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in {**state["graph"], **state["ppo"]}.items()}


@pytest.mark.slow
def test_generators_are_where_the_file_says(
    cluster: RayNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "placement.yaml"
    placed = ["--ray", cluster.address, "--placement", str(file)]
    for text, words in (
        (
            PLACEMENT.replace("number: 2, node: rack", "number: 2, node: rack, processors: 2"),
            "2 generators on rack take 4 processors, 2 each, and there is room for 1",
        ),
        ("trainer: rack\n" + PLACEMENT, "the placement has the trainer on rack"),
    ):
        file.write_text(text)
        assert main([*NEW, "--out", str(tmp_path / "refused"), *placed]) == 2
        assert words in capsys.readouterr().err.replace("\n", " ")
    file.write_text(PLACEMENT)
    assert main([*NEW, "--out", str(tmp_path / "placed"), *placed]) == 0
    assert main([*NEW, "--out", str(tmp_path / "alone")]) == 0
    assert weights(read_checkpoint(tmp_path / "placed")) == weights(read_checkpoint(tmp_path / "alone"))
    with connected(cluster.address, processors=1) as ray:
        (lab,) = [node["NodeName"] for node in ray.nodes() if node["Labels"].get("zone") == "lab"]
        home = ray.get_runtime_context().get_node_id()
        (trainer,) = [node["NodeName"] for node in ray.nodes() if node["NodeID"] == home]
        assert where(ray) == {"rack": 2, lab: 1, trainer: 1}


@pytest.mark.slow
def test_a_generator_whose_node_dies_goes_on_elsewhere(cluster: RayNodes) -> None:
    torch.set_num_threads(1)
    task = load_task("cartpole-swingup")
    alone = Trainer(task, CONFIG)
    for _ in range(3):
        alone.train_iteration()
    spare = cluster.start(cpus=1, name="spare")
    cluster.await_all()
    with connected(cluster.address, processors=1) as ray:
        placement = Placement(generators=(Group(number=1, colocated=True), Group(number=1, node="spare")))
        executor = RayExecutor(ray, RunTaskSource(task="cartpole-swingup"), CONFIG, seats=seats_on(ray, placement))
        together = Trainer(
            task, CONFIG, source=lambda learner: ClusterCollector(task, CONFIG, learner, executor, generators=2)
        )
        together.train_iteration()
        assert where(ray)["spare"] == 1
        cluster.kill(spare)
        together.train_iteration()
        together.train_iteration()
        executor.close()
    collector: Any = together.collector
    assert collector.replaced >= 1
    pairs = zip(together.learner.parameters(), alone.learner.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
