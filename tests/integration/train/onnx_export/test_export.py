"""Export of a policy as ONNX: what is written computes the same, and what does not is refused."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from physai.sdk.base.errors import ContractMismatchError, ExportError
from physai.sdk.contract.io import load_contract, parse_contract
from physai.sdk.policy.header import PolicyError, PolicyHeader
from physai.sim.engines.protocol import Array
from physai.sim.policies.evaluate import play_episodes
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.arms.reach import ur10e_reach
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.task import Task, Uniforms, WorldView
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.models.policy_graph import PolicyGraph
from physai.train.onnx_export.export import export_policy, npz
from physai.train.onnx_export.onnx_graph import build_onnx
from physai.train.onnx_export.parity import (
    ROUNDINGS,
    TOLERANCE,
    PolicyVisits,
    check_sequence,
    check_states,
    rounding,
    visit,
)
from physai.train.runners.runner import build_graph
from physai.train.settings.config import TrainConfig

STATES = 200
PROVENANCE = {"git_commit": "0" * 40, "seed": "7"}


def with_history(task: Task) -> Task:
    """The task with every kind of memory: histories, the previous action, the last target, incremental efforts."""
    document = json.loads(task.contract.model_dump_json())
    document["observation"]["terms"] += [
        {"name": "past.vel", "kind": "sensor", "source": "joint_vel", "history": 4, "scale": 0.1},
        {"name": "previous", "kind": "previous_action", "history": 2},
        {"name": "last", "kind": "last_target", "scale": 0.1},
        {"name": "turned", "kind": "joint_pos_rel", "joints": ["pole", "slider"], "clip": 3.0},
    ]
    document["action"]["terms"][0] |= {"kind": "joint_effort_incremental", "scale": [1.0]}
    return replace(task, contract=parse_contract(json.dumps(document), source="test"))


def randomised(task: Task, config: TrainConfig) -> PolicyGraph:
    """A policy that reacts: random weights, and statistics of observations as after a training."""
    graph = build_graph(task, config)
    generator = torch.Generator().manual_seed(1)
    for parameter in graph.actor.parameters():
        nn.init.normal_(parameter, 0.0, 0.3, generator)
    graph.normaliser.update(torch.randn(100, graph.observation.size, generator=generator) * 0.5 + 0.1)
    return graph


class Exported:
    """One exported policy and what it came from."""

    def __init__(self, task: Task, config: TrainConfig, folder: Path) -> None:
        self.task, self.folder = task, folder
        self.graph = randomised(task, config)
        self.report = export_policy(self.graph, task, folder, provenance=PROVENANCE, states=STATES)
        self.data = (folder / "policy.onnx").read_bytes()
        self.policy = OnnxPolicy(self.data, source="test")

    def model(self) -> onnx.ModelProto:
        return onnx.load_from_string(self.data)


CASES: dict[str, tuple[Callable[[], Task], TrainConfig]] = {
    "mlp": (cartpole_swingup, TrainConfig(hidden=(16, 16))),
    "gru": (cartpole_swingup, TrainConfig(actor="gru", hidden=(16,), gru_size=8, activation="tanh")),
    "history": (lambda: with_history(cartpole_swingup()), TrainConfig(hidden=(16,), activation="relu")),
    "reach": (ur10e_reach, TrainConfig(hidden=(16,))),
}


@pytest.fixture(scope="module", params=list(CASES))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    make, config = CASES[request.param]
    return Exported(make(), config, tmp_path_factory.mktemp(request.param) / "deep" / "export")


@pytest.fixture(scope="module")
def cartpole() -> Task:
    return cartpole_swingup()


@pytest.fixture(scope="module")
def visited(cartpole: Task) -> tuple[PolicyGraph, onnx.ModelProto, PolicyVisits]:
    """A recurrent policy, its ONNX model, and what it saw."""
    graph = randomised(cartpole, CASES["gru"][1])
    return graph, build_onnx(graph, PolicyHeader(graph.contract, graph.state_sizes)), visit(graph, cartpole, states=64)


def test_what_was_exported_is_read_back(exported: Exported) -> None:
    header = exported.policy.header
    assert load_contract(exported.folder / "policy.onnx") == exported.task.contract
    assert header.contract == exported.graph.contract
    assert header.state_sizes == exported.graph.state_sizes
    assert header.provenance == PROVENANCE


def test_the_report_says_what_was_found(exported: Exported) -> None:
    report = exported.report
    assert report.states == STATES
    assert report.fingerprint == exported.task.contract.fingerprint
    assert report.policy_bytes == len(exported.data)
    assert list(report.differences) == list(exported.policy.header.outputs)
    assert 0.0 < max(report.differences.values()) <= TOLERANCE
    assert list(report.sequence_differences) == list(report.rounding) == list(report.differences)
    assert sorted(path.name for path in exported.folder.iterdir()) == ["golden.npz", "policy.onnx"]


def test_the_graph_is_plain(exported: Exported) -> None:
    model = exported.model()
    checker: Any = onnx.checker
    checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    assert model.ir_version == 8
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
    assert {tensor.data_location for tensor in model.graph.initializer} == {onnx.TensorProto.DEFAULT}
    operators = {node.op_type for node in model.graph.node}
    assert not operators & {"If", "Loop", "Scan", "Dropout", "BatchNormalization", "RandomNormalLike", "Cast", "GRU"}


def test_nothing_is_left_of_the_training(exported: Exported) -> None:
    for node in exported.model().graph.node:
        assert not node.doc_string
        assert not node.metadata_props
    for trace in (b".py", b"torch", b"stack_trace", b"critic", b"log_std"):
        assert trace not in exported.data


def test_all_tensors_are_float32_with_a_free_number_of_worlds(exported: Exported) -> None:
    graph = exported.model().graph
    for value in (*graph.input, *graph.output):
        tensor = value.type.tensor_type
        assert tensor.elem_type == onnx.TensorProto.FLOAT
        assert tensor.shape.dim[0].dim_param == "n"


def golden(exported: Exported) -> dict[str, Array]:
    with np.load(exported.folder / "golden.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_the_golden_states_replay(exported: Exported) -> None:
    """As a robot would: with nothing but numpy, onnxruntime and the two files."""
    arrays = golden(exported)
    assert str(arrays.pop("fingerprint")) == exported.task.contract.fingerprint
    session = onnxruntime.InferenceSession(exported.data, providers=["CPUExecutionProvider"])
    inputs, outputs = ([value.name for value in values] for values in (session.get_inputs(), session.get_outputs()))
    assert list(arrays) == [*inputs, *outputs]
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert {len(array) for array in arrays.values()} == {min(STATES, 256)} == {exported.report.golden_states}
    found = session.run(None, {name: arrays[name] for name in inputs})
    for name, value in zip(outputs, found, strict=True):
        assert value == pytest.approx(arrays[name], rel=TOLERANCE, abs=TOLERANCE)


def test_golden_states_hold_the_start_and_memory(exported: Exported) -> None:
    arrays = golden(exported)
    assert {0.0, 1.0} == set(arrays["state.started"].ravel().tolist())
    fresh = arrays["state.started"][:, 0] == 0.0
    for name, array in arrays.items():
        if name.startswith("state."):
            assert not array[fresh].any()
            assert array[~fresh].any(), f"{name} is never used"


def test_any_number_of_worlds_gives_the_same_rows(exported: Exported) -> None:
    arrays = {name: array for name, array in golden(exported).items() if name in exported.policy.header.inputs}
    many = exported.policy.evaluate({name: np.resize(array, (1024, array.shape[1])) for name, array in arrays.items()})
    for row in (0, 7, len(arrays["state.started"]) - 1):
        one = exported.policy.evaluate({name: array[row : row + 1] for name, array in arrays.items()})
        for name, value in one.items():
            assert value[0] == pytest.approx(many[name][row], rel=1e-5, abs=1e-5)


def joint_speeds(view: WorldView) -> Array:
    return view.joint_vel.sum(axis=1)


def test_both_play_alike_in_the_twin(exported: Exported) -> None:
    """Second by second the physics tells apart what differs in the last bit; half a second it does not."""
    task = replace(exported.task, episode_length_s=0.5, metrics={"speed": joint_speeds})
    trained = play_episodes(GraphPolicy(exported.graph), task, episodes=8)
    written = play_episodes(exported.policy, task, episodes=8)
    assert written.metrics["speed"] == pytest.approx(trained.metrics["speed"], rel=1e-3)
    assert (written.judged, written.succeeded) == (trained.judged, trained.succeeded)


def tampered(model: onnx.ModelProto, name: str, factor: float) -> OnnxPolicy:
    """The model with one of its constants scaled."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name == name:
            values = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array((values * factor).astype(values.dtype), name))
            return OnnxPolicy(changed.SerializeToString(), source="tampered")
    raise AssertionError(f"no constant {name} among {[tensor.name for tensor in model.graph.initializer]}")


@pytest.mark.parametrize(
    "name",
    [
        "actor.input.weight",
        "actor.input.bias",
        "actor.recurrent.weight",
        "actor.layers.0.weight",
        "actor.layers.2.bias",
        "normaliser._scale",
        "normaliser._shift",
        "action.joint_effort_target_scale",
    ],
)
def test_a_tampered_constant_is_refused(visited: tuple[PolicyGraph, onnx.ModelProto, PolicyVisits], name: str) -> None:
    """A constant that is off by a thousandth of itself; by one part in 10⁹ it is the same float32."""
    graph, model, visits = visited
    policy = tampered(model, name, 1.001)
    with pytest.raises(
        ExportError, match=r"differs from the trained one: .*state \d+: torch .*, onnx .*, allowed 1e-05"
    ):
        check_states(policy, graph, visits)
    with pytest.raises(ExportError, match=r"world \d+ after \d+ periods with its own state: torch"):
        check_sequence(policy, graph, visits)
    untouched = tampered(model, name, 1.0 + 1e-9)
    assert max(check_states(untouched, graph, visits).values()) <= TOLERANCE
    assert check_sequence(untouched, graph, visits).restarts == 0


def test_a_steep_network_may_differ_by_what_it_rounds(
    visited: tuple[PolicyGraph, onnx.ModelProto, PolicyVisits], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tolerance below its rounding error the export still passes, and a wrong constant still does not."""
    graph, model, visits = visited
    own = max(rounding(graph, visits).values())
    monkeypatch.setattr("physai.train.onnx_export.parity.TOLERANCE", 0.0)
    assert max(check_states(tampered(model, "normaliser._scale", 1.0), graph, visits).values()) <= ROUNDINGS * own
    with pytest.raises(ExportError, match="differs from the trained one"):
        check_states(tampered(model, "normaliser._scale", 1.001), graph, visits)


def test_a_refusal_names_joint_state_and_both_values(
    visited: tuple[PolicyGraph, onnx.ModelProto, PolicyVisits],
) -> None:
    graph, model, visits = visited
    policy = tampered(model, "action.joint_effort_target_scale", 2.0)
    with pytest.raises(ExportError) as caught:
        check_states(policy, graph, visits)
    message = str(caught.value)
    assert "joint_effort_target[slider], state 0: torch " in message
    wanted = float(visits.outputs["joint_effort_target"][0, 0])
    assert f"torch {wanted:.9g}, onnx {2.0 * wanted:.9g}" in message
    assert "Rounding to float32 alone changes the trained policy by up to" in message


def test_a_policy_that_answers_nan_is_refused(cartpole: Task, tmp_path: Path) -> None:
    graph = randomised(cartpole, CASES["mlp"][1])
    with torch.no_grad():
        next(iter(graph.actor.parameters()))[0, 0] = torch.nan
    with pytest.raises(ExportError, match=r"itself outputs nan: joint_effort_target\[0\], world 0, period 0"):
        export_policy(graph, cartpole, tmp_path / "export", provenance={}, states=10)
    assert not (tmp_path / "export").exists()


class Branching(nn.Module):
    """An actor whose computation depends on its values: nothing a fixed graph can hold."""

    state_size = 0

    def forward(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        if float(observation.sum()) > 0.0:
            return observation[:, :1], hidden
        return -observation[:, :1], hidden


def test_a_network_that_is_no_graph_is_refused(cartpole: Task, tmp_path: Path) -> None:
    graph = PolicyGraph(cartpole.contract, Branching())
    with pytest.raises(ExportError, match="the policy graph cannot be written as ONNX: ") as caught:
        export_policy(graph, cartpole, tmp_path / "export", provenance={}, states=10)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "export").exists()


def test_the_export_is_quiet_and_leaves_the_policy_alone(
    cartpole: Task, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = randomised(cartpole, CASES["mlp"][1])
    before = {name: value.clone() for name, value in graph.state_dict().items()}
    shares: list[float] = []
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_policy(graph, cartpole, tmp_path, provenance={}, states=10, progress=shares.append)
    assert capfd.readouterr() == ("", "")
    assert graph.training
    assert all(torch.equal(value, before[name]) for name, value in graph.state_dict().items())
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_equal_policies_give_equal_bytes(cartpole: Task, tmp_path: Path) -> None:
    """The second one's statistics were loaded and not refreshed: they count all the same."""
    source = randomised(cartpole, CASES["mlp"][1])
    loaded = build_graph(cartpole, CASES["mlp"][1])
    loaded.load_state_dict(source.state_dict())
    for name, graph in (("one", source), ("other", loaded)):
        export_policy(graph, cartpole, tmp_path / name, provenance=PROVENANCE, states=10)
    for name in ("policy.onnx", "golden.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_task_of_another_contract_is_refused(cartpole: Task, tmp_path: Path) -> None:
    graph = build_graph(cartpole, CASES["mlp"][1])
    with pytest.raises(
        ContractMismatchError, match="the policy and the task cartpole-swingup hold different contracts"
    ):
        export_policy(graph, with_history(cartpole), tmp_path, provenance={})


@pytest.mark.parametrize("states", [0, 100_001])
def test_a_senseless_number_of_states_is_refused(cartpole: Task, tmp_path: Path, states: int) -> None:
    graph = build_graph(cartpole, CASES["mlp"][1])
    with pytest.raises(ExportError, match=f"{states} visited states requested; choose 1 to 100000"):
        export_policy(graph, cartpole, tmp_path, provenance={}, states=states)


def test_a_folder_that_cannot_be_written_is_named(cartpole: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    graph = build_graph(cartpole, CASES["mlp"][1])
    with pytest.raises(ExportError, match=r"cannot write into .*file/export: Not a directory"):
        export_policy(graph, cartpole, tmp_path / "file" / "export", provenance={}, states=10)


def with_commands(task: Task, *names: str) -> Task:
    """The task with command fields nobody reads."""
    document = json.loads(task.contract.model_dump_json())
    document["command"]["fields"] = [
        {"name": name, "size": 1, "unit": "", "lower": [0.0], "upper": [1.0]} for name in names
    ]

    def command(draw: Uniforms) -> dict[str, Array]:
        return {name: draw[:, [index]] for index, name in enumerate(names)}

    contract = parse_contract(json.dumps(document), source="test")
    return replace(task, contract=contract, command=command, command_draws=len(names))


def test_a_field_may_have_any_name(cartpole: Task, tmp_path: Path) -> None:
    """Names that the exporter, the graph or numpy use for themselves."""
    names = ["sin", "file", "actor.layers.0.weight", "a/b-c"]
    task = with_commands(cartpole, *names)
    export_policy(randomised(task, CASES["mlp"][1]), task, tmp_path, provenance={}, states=20)
    policy = OnnxPolicy.load(tmp_path / "policy.onnx")
    assert list(policy.header.inputs) == ["joint_pos", "joint_vel", *names, "state.started"]
    with np.load(tmp_path / "golden.npz", allow_pickle=False) as file:
        assert all(file[name].shape == (20, 1) for name in names)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("joint_effort_target", PolicyError, "two inputs or outputs named 'joint_effort_target'"),
        ("state.started", PolicyError, r"two inputs or outputs named 'state\.started'"),
        ("fingerprint", ExportError, r"the name 'fingerprint' is reserved"),
    ],
)
def test_a_field_may_not_have_the_graphs_own_names(
    cartpole: Task, tmp_path: Path, name: str, error: type[Exception], message: str
) -> None:
    task = with_commands(cartpole, name)
    with pytest.raises(error, match=message):
        export_policy(randomised(task, CASES["mlp"][1]), task, tmp_path, provenance={}, states=10)
    assert list(tmp_path.iterdir()) == []


def test_npz_is_numpys(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz({"file": np.arange(3.0), "allow_pickle": np.array("text")}))
    with np.load(path, allow_pickle=False) as file:
        assert file["file"].tolist() == [0.0, 1.0, 2.0]
        assert str(file["allow_pickle"]) == "text"
