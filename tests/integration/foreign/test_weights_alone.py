"""Checkpoints become graphs that compute what their libraries compute, and no pickle of them runs."""

import io
import json
import struct
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from tests.support.checkpoint_actors import ACTIONS, OBSERVATIONS, Recurrent, layers, named, seeded
from torch import Tensor, nn

from physai.foreign.body.apart import read_body
from physai.foreign.body.checkpoints.weights import convert_weights, is_weights
from physai.foreign.body.diagnosis import diagnose
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.process.isolation import ApartError

pytestmark = pytest.mark.slow
UNITS = 12
LIMIT_S = 20.0
Floats = NDArray[np.float32]


def observations(calls: int = 500) -> Floats:
    return (np.random.default_rng(1).standard_normal((calls, OBSERVATIONS)) * 3.0).astype(np.float32)


def saved(content: Any) -> bytes:
    data = io.BytesIO()
    torch.save(content, data)
    return data.getvalue()


def graph_of(data: bytes, source: str, **settings: Any) -> tuple[dict[str, Any], bytes]:
    facts, onnx = convert_weights(data, source=source, settings=settings)
    body, admitted = read_body(onnx, source=source, folder=None)
    assert "refused" not in body
    return facts, admitted


def run(graph: bytes, rows: Floats) -> Floats:
    """Actions for rows, which a memory sees one after the other."""
    session: Any = onnxruntime.InferenceSession(graph)
    names = [value.name for value in session.get_inputs()]
    if len(names) == 1:
        return session.run(None, {names[0]: rows})[0]
    hidden = np.zeros((1, session.get_inputs()[1].shape[1]), np.float32)
    found: list[Floats] = []
    for row in rows:
        action, hidden = session.run(None, {names[0]: row[None], names[1]: hidden})
        found.append(action[0])
    return np.array(found)


def statistics() -> tuple[Tensor, Tensor]:
    """Mean and variance of observations."""
    seeded(7)
    return torch.randn(OBSERVATIONS), torch.rand(OBSERVATIONS) * 0.1 + 0.02


MEAN, VARIANCE = statistics()
ACTOR = layers(OBSERVATIONS, 16, 12, ACTIONS)
TRUNK = layers(OBSERVATIONS, 16, 12, last=False)
HEAD = layers(12, ACTIONS)
VALUE = layers(12, 1)
NOISE = torch.ones(ACTIONS)
EMPIRICAL = {"_mean": MEAN[None], "_var": VARIANCE[None], "_std": VARIANCE.sqrt()[None], "count": torch.tensor(9)}
OPTIMISER = {"state": {0: {"exp_avg": torch.zeros(3), "step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-3}]}


def head(prefix: str) -> dict[str, Tensor]:
    return named(prefix, HEAD[0])


def rsl_rl(name: str = "actor", std: str = "std", normaliser: dict[str, Tensor] | None = None) -> dict[str, Any]:
    model = {**named(name, ACTOR), **named("critic", VALUE), std: NOISE}
    model |= {f"actor_obs_normalizer.{label}": value for label, value in (normaliser or {}).items()}
    return {"model_state_dict": OrderedDict(model), "optimizer_state_dict": OPTIMISER, "iter": 3, "infos": None}


def rl_games(**more: Any) -> dict[str, Any]:
    network = {**named("actor_mlp", TRUNK), **head("mu"), **named("value", VALUE), "sigma": NOISE}
    model = {f"_orig_mod.a2c_network.{name}": value for name, value in network.items()}
    scaler = {"running_mean": MEAN.double(), "running_var": VARIANCE.double(), "count": torch.tensor(9.0)}
    model |= {f"running_mean_std.{name}": value for name, value in scaler.items()}
    return {"model": model, "epoch": 3, "last_mean_rewards": np.float32(3.5), "best": np.float64(2.0), **more}


def skrl(shared: bool) -> dict[str, Any]:
    policy = named("net_container", TRUNK if shared else ACTOR)
    policy |= {**head("policy_layer"), **named("value_layer", VALUE[0])} if shared else {}
    scaler = {"running_mean": MEAN.double(), "running_variance": VARIANCE.double(), "current_count": torch.tensor(9.0)}
    other = {**scaler, "running_mean": torch.full((20,), 5.0), "running_variance": torch.ones(20)}
    named_as = {"observation_preprocessor": scaler, "state_preprocessor": other} if shared else {}
    return {
        "policy": {**policy, "log_std_parameter": NOISE},
        "value": named("net_container", VALUE),
        **(named_as or {"state_preprocessor": scaler}),
    }


def plain(rows: Tensor) -> Tensor:
    return ACTOR(rows)


def empirical(rows: Tensor) -> Tensor:
    return ACTOR((rows - MEAN) / (VARIANCE.sqrt() + 0.01))


def bounded(rows: Tensor) -> Tensor:
    return HEAD(TRUNK(((rows - MEAN) / torch.sqrt(VARIANCE + 1e-5)).clamp(-5.0, 5.0)))


def scaled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda rows: module(((rows - MEAN) / (VARIANCE.sqrt() + 1e-8)).clamp(-5.0, 5.0))


CASES: dict[str, tuple[dict[str, Any], str, str, Callable[[Tensor], Tensor]]] = {
    "rsl_rl": (rsl_rl(), "rsl_rl", "", plain),
    "rsl_rl, log of the deviation": (rsl_rl(std="log_std"), "rsl_rl", "", plain),
    "rsl_rl, a fork": (rsl_rl("actor.layers"), "rsl_rl", "", plain),
    "rsl_rl 2": ({**rsl_rl(), "obs_norm_state_dict": EMPIRICAL}, "rsl_rl", "obs_norm_state_dict", empirical),
    "rsl_rl 3": (
        rsl_rl(normaliser=EMPIRICAL),
        "rsl_rl",
        "model_state_dict.actor_obs_normalizer",
        empirical,
    ),
    "weights alone": (rsl_rl()["model_state_dict"], "rsl_rl", "", plain),
    "rl_games": (rl_games(), "rl_games", "model.running_mean_std", bounded),
    "skrl": (skrl(False), "skrl", "state_preprocessor", scaled(ACTOR)),
    "skrl, shared": (skrl(True), "skrl", "observation_preprocessor", scaled(nn.Sequential(*TRUNK, *HEAD))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_becomes_a_graph_that_computes_what_its_library_does(name: str) -> None:
    content, library, normaliser, program = CASES[name]
    facts, graph = graph_of(saved(content), "model.pt", activation="elu", squash="none")
    assert (facts["library"], facts["normaliser"], facts["hidden"]) == (library, normaliser, [16, 12])
    assert (facts["observations"], facts["actions"]) == (OBSERVATIONS, ACTIONS)
    rows = observations()
    with torch.no_grad():
        wanted = program(torch.tensor(rows)).numpy()
    np.testing.assert_allclose(run(graph, rows), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("count", [1, 2])
def test_a_memory_is_that_of_its_library_over_successive_calls(kind: type[nn.LSTM | nn.GRU], count: int) -> None:
    seeded(2)
    memory, actor = kind(OBSERVATIONS, UNITS, count), layers(UNITS, 16, ACTIONS, activation=nn.ReLU)
    model = {**named("memory_a.rnn", memory), **named("memory_c.rnn", memory), **named("actor", actor), "std": NOISE}
    facts, graph = graph_of(saved({"model_state_dict": model}), "model.pt", activation="relu")
    assert facts["memory"] == kind.__name__.lower()
    rows = observations(60)
    with torch.no_grad():
        wanted = actor(memory(torch.tensor(rows))[0]).numpy()
    np.testing.assert_allclose(run(graph, rows), wanted, atol=1e-5)


def test_a_memory_and_normalisations_of_rl_games_become_operators() -> None:
    network = Recurrent(nn.LSTM, norm=True, given=True, norms=True)
    facts, graph = graph_of(saved(network.checkpoint()), "model.pth", activation="elu", squash="none")
    assert (facts["memory"], facts["memory_after"], facts["norms"], facts["hidden"]) == ("lstm", True, 3, [16, 14])
    rows = observations(40)
    with torch.no_grad():
        wanted = network(torch.tensor(rows)).numpy()
    np.testing.assert_allclose(run(graph, rows), wanted, atol=2e-5)


@pytest.mark.parametrize(("squash", "bound"), [("tanh", torch.tanh), ("clip", nn.Hardtanh())])
def test_outputs_are_bounded_as_is_stated(squash: str, bound: Callable[[Tensor], Tensor]) -> None:
    _, graph = graph_of(saved(rl_games()), "model.pth", activation="elu", squash=squash, observation_clip=0.5)
    rows = observations()
    with torch.no_grad():
        wanted = bound(bounded(torch.tensor(rows).clamp(-0.5, 0.5))).numpy()
    assert np.abs(wanted).max() > 0.5
    np.testing.assert_allclose(run(graph, rows), wanted, atol=1e-5)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("memory", ["", "lstm", "gru"])
def test_models_of_rsl_rl_itself_are_read(memory: str, normalised: bool) -> None:
    models = pytest.importorskip("rsl_rl.models")
    dictionary = pytest.importorskip("tensordict").TensorDict

    def seen(rows: Floats) -> Any:
        return dictionary({"policy": torch.tensor(rows)}, batch_size=[len(rows)])

    seeded(4)
    kind = models.RNNModel if memory else models.MLPModel
    more = {"rnn_type": memory, "rnn_hidden_dim": UNITS, "rnn_num_layers": 2} if memory else {}
    distribution = {"class_name": "GaussianDistribution"}
    model = kind(
        seen(observations(2)),
        {"actor": ["policy"]},
        "actor",
        ACTIONS,
        hidden_dims=[16, 8],
        obs_normalization=normalised,
        distribution_cfg=distribution,
        **more,
    )
    model.train()
    model.update_normalization(seen(observations(50) + np.float32(2.0)))
    model.eval()
    data = saved({"actor_state_dict": model.state_dict(), "critic_state_dict": {}, "iter": 1, "infos": None})
    facts, graph = graph_of(data, "model_1.pt", activation="elu")
    assert (bool(facts["normaliser"]), facts["memory"]) == (normalised, memory)
    rows = observations(100)
    with torch.no_grad():
        wanted = np.concatenate([model(seen(row[None])).numpy() for row in rows])
    np.testing.assert_allclose(run(graph, rows), wanted, atol=1e-5)


def baselines(name: str, bound: float, **settings: Any) -> tuple[Any, bytes]:
    library = pytest.importorskip("stable_baselines3")
    gymnasium = pytest.importorskip("gymnasium")
    box = gymnasium.spaces.Box

    class Still(gymnasium.Env):  # pyright: ignore[reportUntypedBaseClass]
        observation_space = box(-np.inf, np.inf, (OBSERVATIONS,), np.float32)
        action_space = box(-bound, bound, (ACTIONS,), np.float32)

        def reset(self, **arguments: Any) -> tuple[Floats, dict[str, Any]]:
            del arguments
            return np.zeros(OBSERVATIONS, np.float32), {}

    model = getattr(library, name)("MlpPolicy", Still(), seed=1, **settings)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.mul_(3.0)
    data = io.BytesIO()
    model.save(data)
    return model, data.getvalue()


@pytest.mark.parametrize(
    ("name", "bound", "settings", "activation", "squash"),
    [
        ("PPO", 1.0, {}, "tanh", "clip"),
        ("PPO", 0.3, {"policy_kwargs": {"activation_fn": nn.LeakyReLU, "net_arch": [32]}}, "leaky_relu", "clip"),
        ("A2C", 1.0, {"use_sde": True, "policy_kwargs": {"squash_output": True}}, "tanh", "tanh"),
        ("SAC", 2.0, {}, "relu", "tanh"),
        ("TD3", 1.0, {}, "relu", "tanh"),
    ],
)
def test_archives_of_stable_baselines_state_all(
    name: str, bound: float, settings: dict[str, Any], activation: str, squash: str
) -> None:
    model, data = baselines(name, bound, **settings)
    facts, graph = graph_of(data, "best_model.zip")
    assert {label: value for label, (value, _) in facts["stated"].items()} == {
        "activation": activation,
        "squash": squash,
    }
    rows = observations()
    np.testing.assert_allclose(run(graph, rows), model.predict(rows, deterministic=True)[0], atol=1e-5)


def safetensors(tensors: dict[str, Tensor], **changes: Any) -> bytes:
    """A file of safetensors, by its definition."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, value in tensors.items():
        data = value.detach().contiguous().numpy().tobytes()
        places = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": places, **changes}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_safetensors_are_read() -> None:
    data = safetensors({**named("actor", ACTOR), "log_std": NOISE})
    facts, graph = graph_of(data, "policy.safetensors", activation="elu")
    assert facts["library"] == "rsl_rl"
    rows = observations()
    with torch.no_grad():
        np.testing.assert_allclose(run(graph, rows), plain(torch.tensor(rows)).numpy(), atol=1e-5)


def test_what_the_weights_leave_open_is_left_open() -> None:
    for content, open_ones in ((rsl_rl(), ["activation"]), (rl_games(), ["activation", "squash"])):
        facts, onnx = convert_weights(saved(content), source="model.pt", settings={})
        assert [name for name in ("activation", "squash") if name not in facts["stated"]] == open_ones
        assert onnx == b""


def test_the_doctor_says_what_weights_show(tmp_path: Path) -> None:
    file = tmp_path / "model_3.pt"
    file.write_bytes(saved({**rsl_rl(), "obs_norm_state_dict": EMPIRICAL}))
    with pytest.raises(ForeignPolicyError) as caught:
        diagnose(file)
    assert str(caught.value) == (
        f"{file}: weights alone of rsl_rl, 11 observations → 16 → 12 → 4 actions, normaliser obs_norm_state_dict; they "
        "do not show activation, which a physai.yaml with this `network` states"
    )
    _, data = baselines("PPO", 0.5)
    file = tmp_path / "best_model.zip"
    file.write_bytes(data)
    found = diagnose(file)
    assert found.admitted
    said = "weights of stable_baselines3 became a graph, with tanh between its layers and clip of ±0.5 after them"
    assert found.changes[0] == said


def test_a_program_is_told_from_weights() -> None:
    library: Any = torch.jit
    data = io.BytesIO()
    library.save(library.script(ACTOR), data)
    assert not is_weights(data.getvalue(), ".pt")
    assert not is_weights(b"pickled", ".pt")
    assert is_weights(saved(rsl_rl()), ".PT")
    assert is_weights(b"", ".zip")


def without(content: dict[str, Any], name: str) -> dict[str, Any]:
    model = {key: value for key, value in content["model_state_dict"].items() if key != name}
    return {"model_state_dict": model}


def changed(name: str, value: Tensor) -> dict[str, Any]:
    return {"model_state_dict": {**rsl_rl()["model_state_dict"], name: value}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"encoder": {"0.weight": torch.ones(2, 2)}},
            r"not those of rsl_rl, rl_games, skrl, stable_baselines3: encoder\.0\.weight; export it to ONNX or",
        ),
        ({}, "stable_baselines3: none; export"),
        ([1, 2], "stable_baselines3: none; export"),
        (
            changed("estimator.0.weight", torch.ones(2, 2)),
            r"others, whose use is not known: model_state_dict\.estimator\.0\.weight; export",
        ),
        (
            changed("actor.2.weight", torch.ones(12, 15)),
            r"actor\.2\.weight has shape \[12, 15\], expected \[outputs, 16\]",
        ),
        (changed("actor.0.bias", torch.ones(15)), r"actor\.0\.bias has shape \[15\], expected \[16\]"),
        (
            changed("actor.0.weight", torch.full((16, 11), torch.nan)),
            r"actor\.0\.weight has numbers that are not finite",
        ),
        (changed("actor.0.weight", torch.ones(16, 11).int()), "not of floating-point numbers"),
        (changed("std", torch.ones(2, 9)), r"std has shape \[2, 9\] for 4 outputs"),
        (without(rsl_rl(), "std"), "no standard deviation of the actions"),
        (without(rsl_rl(), "actor.2.weight"), r"actor\.2\.weight is missing"),
        (changed("actor.5.weight", torch.ones(4, 4)), r"layers \[0, 2, 4, 5\] of .*actor\.: expected every second one"),
        (
            {**rsl_rl(), "obs_norm_state_dict": {**EMPIRICAL, "_std": torch.ones(1, 9)}},
            r"_std has shape \[9\], expected \[11\]",
        ),
        (
            {**rsl_rl(), "obs_norm_state_dict": {"_mean": torch.ones(1, 9), "_std": torch.ones(1, 9)}},
            r"actor\.0\.weight has shape \[16, 11\], expected \[outputs, 9\]",
        ),
        (
            rl_games(model=rl_games()["model"] | {"running_mean_std.running_var": -VARIANCE}),
            "has a variance or a deviation below 0",
        ),
        (changed("memory_a.rnn.weight_hh_l0", torch.ones(10, 5)), r"has shape \[10, 5\], neither of LSTM nor GRU"),
    ],
)
def test_weights_that_are_not_clear_are_refused(content: Any, message: str) -> None:
    with pytest.raises(ApartError, match=message):
        convert_weights(saved(content), source="model.pt", settings={})


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ApartError, match="the activation softmax is none of celu, elu"):
        convert_weights(saved(rsl_rl()), source="model.pt", settings={"activation": "softmax"})


def archive(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return data.getvalue()


def test_actions_within_unequal_bounds_are_refused() -> None:
    _, data = baselines("PPO", 1.0)
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        members = {name: opened.read(name) for name in ("data", "policy.pth")}
    settings = json.loads(members["data"])
    settings["action_space"]["low"] = "[-1. -1. -1. -2.]"
    members["data"] = json.dumps(settings).encode()
    with pytest.raises(
        ApartError, match=r"within \[-1\. -1\. -1\. -2\.\] and \[1\. 1\. 1\. 1\.\], expected the same bound"
    ):
        convert_weights(archive(**members), source="best_model.zip", settings={})
    settings["policy_class"]["__init__"] = "<function Own.__init__ at 0x7f>"
    settings["action_space"]["low"] = "[-1. -1. -1. -1.]"
    members["data"] = json.dumps(settings).encode()
    facts, _ = convert_weights(archive(**members), source="best_model.zip", settings={})
    assert "activation" not in facts["stated"]


class Running:
    """A pickle of this would run a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def huge() -> Tensor:
    """One number that claims to be many."""
    return torch.ones(1).expand(200_000, 200_000)


HOSTILE: dict[str, tuple[str, Callable[[Path], bytes], str]] = {
    "a command": (
        "x.pt",
        lambda path: saved({"model_state_dict": {"actor.0.weight": Running(path)}}),
        r"reading it needs [\w.]+, which may run",
    ),
    "a command in an archive": (
        "x.zip",
        lambda path: archive(**{"policy.pth": saved(Running(path)), "data": b"{}"}),
        r"reading it needs [\w.]+, which may run a program; export it to ONNX or TorchScript",
    ),
    "a module": ("x.pth", lambda path: saved(ACTOR), "reading it needs torch.nn.modules.container.Sequential"),
    "many numbers": ("x.pt", lambda path: saved({"actor.0.weight": huge()}), r"tensors of 40000000000 numbers"),
    "a bomb": (
        "x.zip",
        lambda path: archive(**{"policy.pth": b"\0" * (300 << 20), "data": b"{}"}),
        "an archive of 300 MiB, at most 256 MiB are read",
    ),
    "a place above": (
        "x.zip",
        lambda path: archive(**{f"../../{path.name}": b"x", "../policy.pth": b"x"}),
        "not a checkpoint",
    ),
    "settings that are no object": (
        "x.zip",
        lambda path: archive(**{"policy.pth": saved({}), "data": b"[" * 100_000}),
        "not a checkpoint",
    ),
    "noise": ("x.zip", lambda path: np.random.default_rng(0).bytes(10_000), "not a checkpoint"),
    "nothing": ("x.safetensors", lambda path: b"", "a header of 0 bytes in 0 bytes"),
    "a long header": ("x.safetensors", lambda path: b"\xff" * 64, "a header of 18446744073709551615 bytes in 64"),
    "a header of brackets": (
        "x.safetensors",
        lambda path: struct.pack("<Q", 100_000) + b"[" * 100_000,
        "its header is not JSON",
    ),
    "a place beyond": (
        "x.safetensors",
        lambda path: safetensors({"actor.0.weight": torch.ones(2, 2)}, data_offsets=[0, 1 << 30]),
        r"needs 16 bytes, and has those from 0 to 1073741824 of 16",
    ),
    "a shape beyond": (
        "x.safetensors",
        lambda path: safetensors({"actor.0.weight": torch.ones(2, 2)}, shape=[1 << 20, 1 << 20]),
        r"needs 4398046511104 bytes, and has those from 0 to 16 of 16",
    ),
    "a shape of words": (
        "x.safetensors",
        lambda path: safetensors({"actor.0.weight": torch.ones(2, 2)}, shape=["a", -1]),
        "shape or place of actor.0.weight",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_little_time_and_runs_nothing(tmp_path: Path, name: str) -> None:
    source, make, message = HOSTILE[name]
    data = make(tmp_path / "ran")
    start = time.monotonic()
    with pytest.raises(ApartError, match=message):
        convert_weights(data, source=source, settings={"activation": "elu", "squash": "none"})
    assert time.monotonic() - start < LIMIT_S
    assert not list(tmp_path.iterdir())
