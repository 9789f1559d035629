"""A policy in tensors computes what it computes in arrays, in the memory of the tensors; here on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from physai.sdk.contract.interface import graph_interface
from physai.sdk.onnx.device import CPU, PolicyDevice
from physai.sdk.onnx.session import open_session
from physai.sdk.policy.header import PolicyError
from physai.sim.policies.device_policy import DevicePolicy, bind
from physai.sim.policies.devices import choose_policy_device, make_policy
from physai.sim.policies.onnx import OnnxPolicy

DATA = Path(__file__).parents[3] / "data" / "policies"
POLICIES = {name: (DATA / name / "policy.onnx").read_bytes() for name in ("cartpole-00", "reach")}
WORLDS = 5
policies = pytest.mark.parametrize("name", POLICIES)


def fields_of(policy: OnnxPolicy, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    names = {name: size for name, size in policy.header.inputs.items() if not name.startswith("state.")}
    return {name: draw.normal(size=(WORLDS, size)).astype(np.float32) for name, size in names.items()}


def both(name: str) -> tuple[OnnxPolicy, DevicePolicy]:
    pair = OnnxPolicy(POLICIES[name], source="it"), DevicePolicy(POLICIES[name], source="it")
    for policy in pair:
        policy.reset(WORLDS)
    return pair


def require_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, np.asarray(right[name]), err_msg=name, strict=True)


@policies
def test_episodes_are_the_same_bit_for_bit(name: str) -> None:
    """Through restarts, samples taken back, commands replaced, and outputs that are no numbers."""
    arrays, tensors = both(name)
    mask, other = np.arange(WORLDS) == 1, np.arange(WORLDS) % 2 == 0
    targets = graph_interface(arrays.contract).targets
    for step in range(12):
        fields = fields_of(arrays, step)
        if step == 4:
            next(iter(fields.values()))[3] = np.nan
        require_same(arrays(fields, {}), tensors(fields, {}))
        sent = {target: np.full((WORLDS, size), 0.01 * step) for target, size in targets.items()}
        for policy in (arrays, tensors):
            if step in (3, 8):
                policy.reset_worlds(mask)
            if step in (5, 9):
                policy.undo(other)
            if step in (6, 9):
                policy.remember(sent, sent, other)
        assert arrays.state, "a policy without memory would test nothing"
        require_same(arrays.state, tensors.state)


@policies
def test_tensors_give_what_the_session_gives(name: str) -> None:
    session, header = open_session(POLICIES[name], source="it")
    policy = DevicePolicy(POLICIES[name], source="it")
    draw = np.random.default_rng(0)
    feed = {key: draw.normal(size=(WORLDS, size)).astype(np.float32) for key, size in header.inputs.items()}
    wanted = dict(zip(header.outputs, session.run(None, feed), strict=True))
    require_same(wanted, policy.compute({key: torch.as_tensor(value) for key, value in feed.items()}))
    require_same(wanted, policy.evaluate(feed))


@policies
def test_the_session_reads_and_writes_the_memory_of_the_tensors(name: str) -> None:
    session, header = open_session(POLICIES[name], source="it")
    inputs = {key: torch.zeros(WORLDS, size) for key, size in header.inputs.items()}
    outputs = {key: torch.full((WORLDS, size), torch.nan) for key, size in header.outputs.items()}
    binding = bind(session, inputs, outputs)
    for value in inputs.values():
        value.fill_(0.25)  # after they were bound
    session.run_with_iobinding(binding)
    written = dict(zip(header.outputs, binding.get_outputs(), strict=True))
    assert {key: value.data_ptr() for key, value in written.items()} == {
        key: value.data_ptr() for key, value in outputs.items()
    }
    feed = {key: np.full((WORLDS, size), 0.25, np.float32) for key, size in header.inputs.items()}
    require_same(dict(zip(header.outputs, session.run(None, feed), strict=True)), outputs)


@policies
def test_nothing_passes_through_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, tensors = both(name)
    fields = fields_of(arrays, 0)
    on_device = {key: torch.as_tensor(value) for key, value in fields.items()}

    def copy(*_: Any, **__: Any) -> None:
        raise AssertionError("copied to the host")

    with monkeypatch.context() as patch:
        for method in ("cpu", "numpy", "tolist", "item", "__array__", "__bool__"):
            patch.setattr(torch.Tensor, method, copy)
        patch.setattr(torch, "tensor", copy)
        results = [tensors.act(on_device), tensors.act(on_device)]
    for result in results:
        require_same(arrays(fields, {}), result)


def test_the_state_is_read_where_it_lies() -> None:
    policy = DevicePolicy(POLICIES["reach"], source="it")
    policy.reset(WORLDS)
    fields = {key: torch.as_tensor(value) for key, value in fields_of(policy, 0).items()}
    policy.act(fields)
    first = policy.device_state["last_joint_pos_target"]
    kept = first.clone()
    again = policy.act(fields)["joint_pos_target"]
    torch.testing.assert_close(first, kept, rtol=0, atol=0)
    policy.undo(torch.ones(WORLDS, dtype=torch.bool))
    policy.device_state["last_joint_pos_target"].add_(0.5)
    assert not torch.equal(policy.act(fields)["joint_pos_target"], again)


def test_columns_of_a_wider_tensor() -> None:
    arrays, tensors = both("cartpole-00")
    fields = fields_of(arrays, 1)
    wide = torch.as_tensor(np.concatenate([fields["joint_pos"], fields["joint_vel"]], axis=1))
    require_same(arrays(fields, {}), tensors.act({"joint_pos": wide[:, :2], "joint_vel": wide[:, 2:]}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "reads 'joint_vel', which is not among joint_pos"),
        (torch.zeros(5, 3), r"'joint_vel' has shape \(5, 3\), expected \(5, 2\)"),
        (torch.zeros(4, 2), r"'joint_vel' has shape \(4, 2\), expected \(5, 2\)"),
        (torch.zeros(5), r"'joint_vel' has shape \(5,\), expected \(5, 2\)"),
        (
            torch.zeros(5, 2, dtype=torch.float64),
            r"'joint_vel' is torch.float64 on cpu, expected torch.float32 on cpu; convert it with .to\('cpu', torch.fl",
        ),
        (torch.zeros(5, 2, device="meta"), "'joint_vel' is torch.float32 on meta, expected torch.float32 on cpu"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(value: Any, message: str) -> None:
    policy = DevicePolicy(POLICIES["cartpole-00"], source="it")
    fields = {"joint_pos": torch.zeros(WORLDS, 2)} | ({} if value is None else {"joint_vel": value})
    with pytest.raises(PolicyError, match="call reset"):
        policy.act(fields)
    policy.reset(WORLDS)
    with pytest.raises(PolicyError, match=message):
        policy.act(fields)


def test_the_cpu_is_played_without_tensors() -> None:
    assert choose_policy_device("cpu") == CPU == PolicyDevice("cpu")
    assert type(make_policy(POLICIES["reach"], source="it")) is OnnxPolicy
