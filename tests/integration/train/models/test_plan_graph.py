"""Plans of any outputs are what a follower accepts, and the exported graph writes the same ones."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tests.support.plan_contracts import plan_contract, plan_document
from torch import Tensor, nn

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.onnx.operators import OPERATORS
from physai.sdk.safety.plan.judge import PlanJudge
from physai.train.models.plan_graph import PlanGraph, PlanInputs


def contract(acceleration: float | None = 40.0, anchor: str = "measured") -> PolicyContract:
    document = plan_document()
    document["robot"]["cameras"][0] |= {"width": 16, "height": 12}
    document["observation"]["images"][0] |= {"crop": None, "pool": 4}
    document["action"]["plan"] |= {"anchor": anchor, "committed": 6}
    document["action"]["terms"][0] |= {"lower": [-2.0], "upper": [2.0], "scale": [2.0], "output_limit": None}
    document["safety"]["joints"][0] |= {"velocity_limit": 4.0}
    if acceleration is not None:
        document["safety"]["joints"][0] |= {"acceleration_limit": acceleration}
    return plan_contract(document)


class Linear(nn.Module):
    """Every output depends on everything that is read."""

    def __init__(self, made: PolicyContract) -> None:
        super().__init__()
        plan = made.action.plan
        assert plan is not None
        self.steps = plan.steps
        size = made.observation_size + 3 * 4 * 3 + 2 + plan.committed + made.observation.noise
        self.layer = nn.Linear(size, plan.steps)

    def forward(self, inputs: PlanInputs) -> Tensor:
        flat = [inputs.observation, *(image.flatten(1) for image in inputs.images), inputs.instruction]
        outputs = self.layer(torch.cat([*flat, inputs.committed.flatten(1), inputs.noise], dim=1))
        return outputs.reshape(-1, self.steps, 1)


class Given(nn.Module):
    """Outputs that somebody chose."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, _: PlanInputs) -> Tensor:
        return self.outputs


def read(made: PolicyContract, count: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sensors = {
        s.name: torch.as_tensor(rng.normal(0.0, 0.5, (count, s.size)), dtype=torch.float32) for s in made.robot.sensors
    }
    commands = {c.name: torch.zeros(count, c.size) for c in made.command.fields}
    return {
        "sensors": sensors,
        "commands": commands,
        "images": {"wrist_rgb": torch.as_tensor(rng.integers(0, 256, (count, 12, 16, 3), dtype=np.uint8))},
        "instruction": torch.as_tensor(np.eye(2, dtype=np.float32)[rng.integers(0, 2, count)]),
        "committed": torch.as_tensor(rng.uniform(-1.0, 1.0, (count, 6, 1)), dtype=torch.float32),
        "noise": torch.as_tensor(rng.standard_normal((count, 8)), dtype=torch.float32),
    }


@pytest.mark.parametrize("acceleration", [40.0, 5.0, None])
@pytest.mark.parametrize("anchor", ["measured", "default"])
@pytest.mark.parametrize("spread", [0.1, 1.0, 100.0])
def test_whatever_the_network_says_the_plan_is_one_that_a_follower_accepts(
    acceleration: float | None, anchor: str, spread: float
) -> None:
    made = contract(acceleration, anchor)
    outputs = torch.as_tensor(spread * np.random.default_rng(0).standard_normal((500, 16, 1)), dtype=torch.float32)
    plans = PlanGraph(made, Given(outputs))(**read(made, 500)).numpy()
    judge = PlanJudge(made)
    assert plans.shape == (500, 16, 1)
    assert {judge.problem(plan) for plan in plans} == {None}
    # Not by standing still: the limits are reached.
    assert np.abs(np.diff(plans, axis=1)).max() > 0.1 * min(spread, 1.0) * 0.2


def test_outputs_within_the_limits_are_the_positions_that_they_say() -> None:
    made = contract()
    outputs = 0.01 * torch.arange(16.0)[None, :, None].expand(3, 16, 1)
    inputs = read(made, 3)
    plans = PlanGraph(made, Given(outputs))(**inputs)
    assert torch.allclose(plans, inputs["sensors"]["joint_pos"][:, None] + 2.0 * outputs, atol=1e-6)
    default = contract(anchor="default")
    assert torch.allclose(PlanGraph(default, Given(outputs))(**inputs), 2.0 * outputs, atol=1e-6)


def test_the_network_is_told_the_committed_positions_in_its_own_outputs() -> None:
    made = contract()
    inputs = read(made, 4)
    told = PlanGraph(made, Given(torch.zeros(4, 16, 1))).inputs(**inputs).committed
    assert torch.allclose(told * 2.0 + inputs["sensors"]["joint_pos"][:, None], inputs["committed"], atol=1e-6)


def test_every_input_changes_the_plan_and_the_exported_graph_writes_the_same() -> None:
    made = contract()
    graph = PlanGraph(made, Linear(made)).eval()

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = graph

        def forward(
            self, pos: Tensor, vel: Tensor, image: Tensor, word: Tensor, ahead: Tensor, noise: Tensor
        ) -> Tensor:
            sensors = {"joint_pos": pos, "joint_vel": vel}
            return self.whole(sensors, {}, {"wrist_rgb": image}, word, ahead, noise)

    inputs = read(made, 5)
    sensors = inputs["sensors"]
    given = [sensors["joint_pos"], sensors["joint_vel"], inputs["images"]["wrist_rgb"], inputs["instruction"]]
    given += [inputs["committed"], inputs["noise"]]
    flat = Flat().eval()
    worlds = torch.export.Dim("n")
    exporter: Any = torch.onnx
    program = exporter.export(
        flat,
        tuple(given),
        dynamo=True,
        opset_version=18,
        dynamic_shapes=tuple({0: worlds} for _ in given),
        verbose=False,
    )
    model = program.model_proto
    assert {node.op_type for node in model.graph.node} <= set(OPERATORS)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    (found,) = session.run(None, {name: value.numpy() for name, value in zip(names, given, strict=True)})
    expected = flat(*given).detach().numpy()
    assert np.abs(np.asarray(found) - expected).max() < 1e-5
    for index in range(len(given)):
        other = list(given)
        other[index] = {2: 255 - given[2], 3: 1.0 - given[3]}.get(index, given[index] + 0.1)
        assert np.abs(flat(*other).detach().numpy() - expected).max() > 1e-4, f"input {index}"


def test_a_contract_without_plans_is_refused() -> None:
    document = plan_document()
    document["observation"] |= {"images": [], "instructions": None, "noise": 0}
    document["action"]["plan"] = document["timing"]["plan"] = None
    with pytest.raises(ContractError, match=r"has no action\.plan"):
        PlanGraph(plan_contract(document), nn.Identity())
