"""Weights alone as the network of a description and of a run of Isaac Lab: what is read, asked for and refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from tests.integration.foreign.test_import import DESCRIPTION, Plain, network
from tests.integration.foreign.test_import import SIZE as DESCRIBED
from tests.integration.foreign.test_isaac_lab import AGENT, COMMAND, ENVIRONMENT, SIZE, USD
from tests.integration.foreign.test_isaac_lab import write as write_run
from tests.integration.foreign.test_weights_alone import layers, named, saved

from physai.foreign import ForeignPolicyError, OpenQuestionsError, import_policy
from physai.foreign.body.networks import weights_body
from physai.foreign.cli.template import template
from physai.foreign.readers.described import read as read_described
from physai.foreign.readers.isaac.agent_file import agent_statement
from physai.foreign.readers.isaac.isaac_lab import read as read_run
from physai.foreign.readers.isaac.weights_reading import WeightsReading
from physai.foreign.reading import PolicySource
from physai.sim.policies.onnx import OnnxPolicy

pytestmark = pytest.mark.slow
HIDDEN = [24, 16]
POLICY = {"class_name": "ActorCritic", "activation": "relu", "actor_hidden_dims": HIDDEN}
LIMITED = {"clip_actions": 5.0}


def rsl_rl(inputs: int, outputs: int = 12, **more: Any) -> bytes:
    model = {**named("actor", layers(inputs, *HIDDEN, outputs)), "std": torch.ones(outputs)}
    return saved({"model_state_dict": model, "iter": 3, **more})


def write(folder: Path, data: bytes, agent: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A description of a checkpoint; None leaves a key out."""
    folder.mkdir(exist_ok=True)
    (folder / "model_3.pt").write_bytes(data)
    if agent is not None:
        (folder / "agent.yaml").write_text(yaml.safe_dump(agent), encoding="utf-8")
    path = folder / "physai.yaml"
    values = {**DESCRIPTION, "network": "model_3.pt", **changes}
    path.write_text(yaml.dump({key: one for key, one in values.items() if one is not None}, Dumper=Plain))
    return path


def reading_of(path: Path, read: Callable[[PolicySource], Any] = read_described) -> WeightsReading:
    found = read(PolicySource(file=path, metadata={}))
    assert isinstance(found, WeightsReading)
    return found


def refusal(path: Path, **settings: Any) -> str:
    with pytest.raises(ForeignPolicyError) as caught:
        reading_of(path).complete(settings)
    return str(caught.value)


def test_weights_are_imported_with_what_they_do_not_show(tmp_path: Path) -> None:
    path = write(tmp_path / "policy", rsl_rl(DESCRIBED))
    with pytest.raises(OpenQuestionsError, match="activation: function between the layers, such as elu") as caught:
        import_policy(path, model="go2", out=tmp_path / "run")
    assert caught.value.names == ("activation",)
    asked: list[str] = []

    def answer(name: str, meaning: str) -> str:
        asked.append(f"{name}: {meaning}")
        return "elu"

    made = import_policy(path, model="go2", out=tmp_path / "run", ask=answer)
    assert asked == ["activation: function between the layers, such as elu, relu or tanh, which weights do not show"]
    assert (made.sources["activation"], made.sources["squash"]) == ("user", "code: rsl_rl")
    assert made.changes[0] == "weights of rsl_rl became a graph, with elu between its layers and none after them"
    assert made.parity.greatest <= 1e-5
    policy = OnnxPolicy((tmp_path / "run" / "export" / "policy.onnx").read_bytes(), source="policy.onnx")
    assert policy.header.contract.observation_size == DESCRIBED
    assert '| activation | "elu" | user |' in (tmp_path / "run" / "import.md").read_text(encoding="utf-8")


def test_all_that_is_missing_is_asked_for_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, rsl_rl(DESCRIBED), control_dt=None)
    assert [line.split(":")[0].strip() for line in refusal(path).splitlines()[1:]] == ["control_dt", "activation"]


def test_a_file_of_isaac_lab_next_to_them_states_it(tmp_path: Path) -> None:
    path = write(tmp_path, rsl_rl(DESCRIBED), {"policy": POLICY, **LIMITED})
    described = reading_of(path).complete({})
    assert (described.activation, described.squash, described.output_limit) == ("relu", "none", 5.0)
    found = reading_of(path)
    assert found.sources["activation"] == "agent.yaml: policy.activation"
    assert tmp_path / "agent.yaml" in found.files
    said = 'activation is "relu" (agent.yaml: policy.activation) and "elu" (user)'
    assert said in refusal(path, activation="elu")
    # What the description states is compared, too.
    said = 'activation is "tanh" (physai.yaml: activation) and "relu" (agent.yaml: policy.activation)'
    assert said in refusal(write(tmp_path, rsl_rl(DESCRIBED), activation="tanh"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"actor_hidden_dims": [24, 8]},
            "widths of the hidden layers: [24, 8] (agent.yaml: policy.actor_hidden_dims) and [24, 16] (model_3.pt)",
        ),
        (
            {"actor_obs_normalization": True},
            "whether observations are normalised: True (agent.yaml: policy.actor_obs_normalization) and False",
        ),
        ({"activation": "softmax"}, "activation: String should match pattern"),
        ({"activation": ["elu"]}, "activation"),
    ],
)
def test_a_file_of_isaac_lab_that_contradicts_them_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, rsl_rl(DESCRIBED), {"policy": {**POLICY, **change}, **LIMITED})
    if change == {"activation": ["elu"]}:
        assert reading_of(path).complete({}).activation == "elu"
    else:
        assert message in refusal(path)


def test_a_file_of_isaac_lab_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("policy: {}", encoding="utf-8")
    path = write(tmp_path / "run", rsl_rl(DESCRIBED))
    (tmp_path / "run" / "agent.yaml").symlink_to(tmp_path / "agent.yaml")
    assert "leads outside the run's folder" in refusal(path)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (DESCRIBED + 1, 12, f"its weights have {DESCRIBED + 1} observations, and {DESCRIBED} are described"),
        (DESCRIBED, 11, "its weights have 11 actions, and 12 are described"),
    ],
)
def test_weights_of_another_size_are_refused_with_both(tmp_path: Path, inputs: int, outputs: int, message: str) -> None:
    path = write(tmp_path / "policy", rsl_rl(inputs, outputs), activation="elu")
    with pytest.raises(ForeignPolicyError, match=message):
        import_policy(path, model="go2", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_with_a_graph_has_its_activation(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    path = tmp_path / "policy" / "physai.yaml"
    path.write_text(template() + "\nactivation: elu\n", encoding="utf-8")
    network(path.parent / "policy.onnx", inputs=45)
    with pytest.raises(ForeignPolicyError, match=r"activation is elu .*, and policy.onnx has a graph, which shows it"):
        import_policy(path, model="go2", out=tmp_path / "run")


def test_weights_that_follow_a_motion_or_are_one_of_several_are_refused(tmp_path: Path) -> None:
    motion = {"position": "p", "orientation": "q", "quaternion": "wxyz", "body": "base", "lag": 0}
    path = write(tmp_path / "policy", rsl_rl(DESCRIBED), activation="elu", motion=motion)
    with pytest.raises(ForeignPolicyError, match="`motion` is stated, which is looked up in a graph, not in weights"):
        import_policy(path, model="go2", out=tmp_path / "run")
    (tmp_path / "policy" / "model_3.zip").write_bytes(rsl_rl(DESCRIBED))
    networks = [{"file": "model_3.zip", "reads": [{"terms": [0, 1, 2, 3, 4, 5, 6, 7]}]}]
    path = write(tmp_path / "policy", b"", network=None, networks=networks)
    with pytest.raises(
        ForeignPolicyError, match=r"weights alone are read as the one `network` of a physai\.yaml; export"
    ):
        import_policy(path, model="go2", out=tmp_path / "run")


@pytest.mark.parametrize("place", ["vecnormalize.pkl", "best_model/VecNormalize_3.pkl"])
def test_a_pickle_of_a_normaliser_is_refused_by_name(tmp_path: Path, place: str) -> None:
    path = write(tmp_path, b"", network="best_model.zip")
    (tmp_path / "best_model.zip").write_bytes(b"")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_bytes(b"")
    assert f"{tmp_path / place}: a pickle, such as VecNormalize writes" in refusal(path)


def network_of(library: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Place of a checkpoint in a run of Isaac Lab, its content and `agent.yaml`."""
    trunk, head = layers(SIZE, *HIDDEN, last=False), layers(HIDDEN[-1], 12)
    scaler = {"running_mean": torch.full((SIZE,), 0.1), "running_var": torch.full((SIZE,), 0.04)}
    if library == "rsl_rl":
        model = {**named("actor", layers(SIZE, *HIDDEN, 12)), "std": torch.ones(12)}
        return "model_1500.pt", {"model_state_dict": model}, {**AGENT, "policy": {**POLICY, "activation": "elu"}}
    if library == "rl_games":
        network = {**named("actor_mlp", trunk), **named("mu", head[0]), "sigma": torch.ones(12)}
        model = {f"a2c_network.{name}": value for name, value in network.items()}
        model |= {f"running_mean_std.{name}": value for name, value in scaler.items()}
        params = {
            "env": {"clip_observations": 5.0, "clip_actions": 2.0, "obs_groups": {"obs": ["policy"]}},
            "network": {
                "mlp": {"units": HIDDEN, "activation": "elu"},
                "space": {"continuous": {"mu_activation": "None"}},
            },
            "config": {"normalize_input": True, "clip_actions": False},
        }
        return "nn/go2.pth", {"model": model}, {"params": params}
    model = {**named("net_container", layers(SIZE, *HIDDEN, 12)), "log_std_parameter": torch.ones(12)}
    policy = {"network": [{"name": "net", "input": "STATES", "layers": HIDDEN, "activations": "elu"}]}
    agent = {"models": {"policy": {**policy, "output": "ACTIONS"}}, "agent": {"state_preprocessor": None}}
    return "checkpoints/agent_9.pt", {"policy": model}, agent


@pytest.mark.parametrize("library", ["rsl_rl", "rl_games", "skrl"])
def test_a_checkpoint_of_a_run_of_isaac_lab_asks_for_nothing_more(tmp_path: Path, library: str) -> None:
    place, content, agent = network_of(library)
    write_run(tmp_path, ENVIRONMENT, None, agent).unlink()
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(saved(content))
    found = reading_of(file, read_run)
    described = found.complete({"joints": USD, "command": COMMAND})
    assert (described.activation, described.squash) == ("elu", "none")
    assert described.output_limit == {"rsl_rl": 4.0, "rl_games": 2.0, "skrl": None}[library]
    assert found.observation_clip == (5.0 if library == "rl_games" else None)

    settings = {"activation": "elu", "squash": "none", "observation_clip": found.observation_clip}
    body = weights_body(file, SIZE, 12, settings)
    rows = (np.random.default_rng(2).standard_normal((20, SIZE)) * 4.0).astype(np.float32)
    session: Any = onnxruntime.InferenceSession(body.graph)
    got = session.run(None, {session.get_inputs()[0].name: rows})[0]
    value = torch.tensor(rows)
    with torch.no_grad():
        if library == "rl_games":
            value = ((value.clamp(-5.0, 5.0) - 0.1) / (0.04 + 1e-5) ** 0.5).clamp(-5.0, 5.0)
            wanted = layers(HIDDEN[-1], 12)(layers(SIZE, *HIDDEN, last=False)(value))
            assert "observations are clipped to ±5 before" in body.changes
        else:
            wanted = layers(SIZE, *HIDDEN, 12)(value)
    np.testing.assert_allclose(got, wanted.numpy(), atol=1e-5)


RL_GAMES = network_of("rl_games")[2]["params"]


@pytest.mark.parametrize(
    ("mean", "clips", "limit", "squash"),
    [
        ("None", False, None, "none"),
        ("None", True, None, None),
        ("None", None, 1.0, None),
        ("None", True, 1.0, "clip"),
        ("tanh", True, 1.0, "tanh"),
        ("tanh", True, 2.0, None),
    ],
)
def test_outputs_of_rl_games_are_bounded_as_its_player_does(
    mean: str, clips: bool | None, limit: float | None, squash: str | None
) -> None:
    params = {
        **RL_GAMES,
        "env": {} if limit is None else {"clip_actions": limit},
        "config": {} if clips is None else {"clip_actions": clips},
        "network": {"space": {"continuous": {"mu_activation": mean}}},
    }
    found = agent_statement({"params": params}, "rl_games", "agent.yaml")
    assert (found.squash and found.squash[0]) == squash


@pytest.mark.parametrize(
    ("policy", "own", "expected"),
    [
        ({"output": "tanh(ACTIONS)"}, {}, ("tanh", None)),
        ({"output": "ACTIONS", "clip_mean_actions": True}, {}, (None, None)),
        ({"output": "2.0 * tanh(ACTIONS)"}, {}, (None, None)),
        ({}, {"state_preprocessor": "RunningStandardScaler"}, (None, True)),
        ({}, {"observation_preprocessor": None, "state_preprocessor": "RunningStandardScaler"}, (None, False)),
    ],
)
def test_what_skrl_does_around_a_network_is_read(
    policy: dict[str, Any], own: dict[str, Any], expected: tuple[str | None, bool | None]
) -> None:
    found = agent_statement({"models": {"policy": policy}, "agent": own}, "skrl", "agent.yaml")
    assert (found.squash and found.squash[0], found.normalised and found.normalised[0]) == expected


def test_a_normaliser_of_skrl_with_numbers_of_its_own_is_refused() -> None:
    own = {"state_preprocessor": "RunningStandardScaler", "state_preprocessor_kwargs": {"epsilon": 0.1}}
    with pytest.raises(ForeignPolicyError, match=r"agent\.state_preprocessor_kwargs\.epsilon is 0\.1, and skrl's own"):
        agent_statement({"agent": own}, "skrl", "agent.yaml")


def test_what_rsl_rl_writes_today_is_read() -> None:
    actor = {"hidden_dims": [-1, 8], "activation": "lrelu", "obs_normalization": True}
    found = agent_statement({"actor": actor}, "rsl_rl", "agent.yaml")
    assert found.activation == ("leaky_relu", "actor.activation")
    assert found.normalised == (True, "actor.obs_normalization")
    assert found.hidden is None
