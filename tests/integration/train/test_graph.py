"""`physai.train.wrap`: designed controllers as policy files, with numbers by hand, and what is refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from physai.sdk.base.errors import ExportError
from physai.sim.policies.evaluate import play_episodes
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train.onnx_export.wrapped import wrap

Fields = dict[str, Tensor]


@pytest.fixture(scope="module")
def cartpole() -> Task:
    return load_task("cartpole-swingup")


def commands(policy: OnnxPolicy, **fields: Any) -> Any:
    sensors = {name: np.array(value, np.float32) for name, value in fields.items()}
    policy.reset(len(next(iter(sensors.values()))))
    return policy(sensors, {})


def test_commands_are_those_of_the_controller_within_the_bounds(cartpole: Task, tmp_path: Path) -> None:
    gain = torch.tensor([[2.0, 30.0]])
    report = wrap(lambda fields: -fields["joint_pos"] @ gain.T, cartpole, tmp_path, name="pd", states=50)
    assert report.folder == str(tmp_path)
    policy = OnnxPolicy.load(tmp_path / "policy.onnx")
    sent = commands(policy, joint_pos=[[0.5, 0.1], [0.0, 3.0]], joint_vel=[[0.0, 0.0]] * 2)
    # -(2 · 0.5 + 30 · 0.1) N, and 90 N of which the contract allows 10.
    assert sent["joint_effort_target"].tolist() == [[pytest.approx(-4.0)], [-10.0]]
    assert b"designed" in (tmp_path / "policy.onnx").read_bytes()


@pytest.mark.slow
def test_a_controller_may_remember(cartpole: Task, tmp_path: Path) -> None:
    def sine(fields: Fields, memory: Tensor) -> tuple[Tensor, Tensor]:
        return 5.0 * torch.sin(0.02 * memory * math.pi) + 0.0 * fields["joint_pos"][:, :1], memory + 1.0

    wrap(sine, cartpole, tmp_path, memory=1, states=50)
    policy = OnnxPolicy.load(tmp_path / "policy.onnx")
    fields = {name: np.zeros((1, 2), np.float32) for name in ("joint_pos", "joint_vel")}
    policy.reset(1)
    sent = [float(policy(fields, {})["joint_effort_target"][0, 0]) for _ in range(26)]
    assert sent == pytest.approx([5.0 * math.sin(0.02 * math.pi * k) for k in range(26)], abs=1e-5)


@pytest.mark.slow
def test_an_incremental_command_is_reached_as_fast_as_the_contract_allows(tmp_path: Path) -> None:
    task = load_task("pendubot-swingup")
    wrap(lambda fields: 1.0 + 0.0 * fields["joint_pos"][:, :1], task, tmp_path, states=50)
    policy = OnnxPolicy.load(tmp_path / "policy.onnx")
    fields = {name: np.zeros((1, 2), np.float32) for name in ("joint_pos", "joint_vel")}
    policy.reset(1)
    sent = [float(policy(fields, {})["joint_effort_target"][0, 0]) for _ in range(14)]
    # 40 N·m/s in periods of 2 ms: 0.08 N·m more in each, up to the 1 N·m that is wanted.
    assert sent == pytest.approx([min(0.08 * (k + 1), 1.0) for k in range(14)], abs=1e-5)


def test_a_module_is_a_controller_and_plays(cartpole: Task, tmp_path: Path) -> None:
    class Brake(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("damping", torch.tensor(1.5))

        def forward(self, fields: Fields) -> Tensor:
            return -self.get_buffer("damping") * fields["joint_vel"][:, :1]

    wrap(Brake(), cartpole, tmp_path, states=50)
    played = play_episodes(OnnxPolicy.load(tmp_path / "policy.onnx"), cartpole, episodes=4)
    assert played.success == 0.0  # braking does not swing anything up


Case = tuple[Callable[[Fields], Any] | Callable[[Fields, Tensor], Any], int, str]
MISFITS: list[Case] = [
    (lambda fields: fields["cart"], 0, r"asks for the field 'cart'; task cartpole-swingup has joint_pos \(2\)"),
    (lambda fields: fields["joint_pos"], 0, r"commands of shape \(3, 2\) for 3 worlds; .* needs \(3, 1\)"),
    (lambda _: 3.0, 0, "returns float; expected a tensor of commands"),
    (lambda fields, m: fields["joint_pos"][:, :1], 2, "expected a tensor of commands and one of memory"),
    (lambda fields, m: (fields["joint_pos"][:, :1], m[:, :1]), 2, r"memory of shape \(3, 1\)"),
    (lambda fields: 1 / 0, 0, "failed on fields of zeros .*ZeroDivisionError"),
    (lambda fields: (-1.0 - fields["joint_pos"][:, :1] ** 2).sqrt(), 0, "policy itself outputs nan"),
    (lambda fields: fields["joint_pos"][:, :1], -1, "memory is -1"),
]


@pytest.mark.parametrize(("controller", "memory", "message"), MISFITS)
def test_what_does_not_fit_is_refused(
    cartpole: Task, tmp_path: Path, controller: Any, memory: int, message: str
) -> None:
    with pytest.raises(ExportError, match=message):
        wrap(controller, cartpole, tmp_path / "out", memory=memory, states=20)
    assert not (tmp_path / "out").exists()


def test_a_branch_on_values_is_refused(cartpole: Task, tmp_path: Path) -> None:
    def jumpy(fields: Fields) -> Tensor:
        if float(fields["joint_pos"][0, 0]) > 0.1:
            return fields["joint_pos"][:, :1]
        return -fields["joint_pos"][:, :1]

    with pytest.raises(ExportError):
        wrap(jumpy, cartpole, tmp_path / "out", states=200)
