"""Other frameworks' own code drives their adapters in a real service; only the language model follows a script.

A test is skipped where its framework is not installed: CONTRIBUTING.md says how to install them all.
"""

import asyncio
import importlib.util
import inspect
import re
from collections.abc import Generator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from tests.support.page_code import page_code
from tests.support.scripted_model import CHAT_TEMPLATE, END, Script, byte_tokenizer

from physai.service import ServiceError
from physai.service.serving.process import ServiceProcess, running_service

PAGE = "how-to/other-frameworks.md"
INSTALL = "is not installed; see 'Other frameworks' in CONTRIBUTING.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


def framework(name: str) -> Any:
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} {INSTALL}")
    # One that is there but cannot be imported is a failure.
    return importlib.import_module(name)


def tokenizer() -> Any:
    return byte_tokenizer(framework("transformers"), framework("tokenizers"), CHAT_TEMPLATE)


def move_to_target(read: str) -> str:
    """A call that moves to the newest target in what the model read."""
    pose = re.findall(r'"ee_pose_target \[m, 1\]": (\[[^]]*\])', read)[-1]
    return f'<tool_call>\n{{"name": "move_to", "arguments": {{"pose": {pose}, "seconds": 4.0}}}}\n</tool_call>'


def open_sessions(service: ServiceProcess) -> int:
    return len(httpx.get(f"{service.url}/v1/sessions").json())


class VerlServer:
    """What verl's loops use of a rollout server."""

    def __init__(self, script: Script, output: Any) -> None:
        self._script, self._output = script, output

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        return self._output(token_ids=self._script.answer(prompt_ids))


def run_verl(url: str, answers: list[Any]) -> tuple[Any, Script]:
    """One trajectory of the loop that verl makes from the page's file, as its worker does."""
    agent_loop = framework("verl.experimental.agent_loop.agent_loop")
    hydra, omegaconf = framework("hydra"), framework("omegaconf")
    replica = framework("verl.workers.rollout.replica")
    multi_turn = {
        "max_user_turns": None,
        "max_assistant_turns": None,
        "max_parallel_calls": 1,
        "max_tool_response_length": 4096,
        "tool_response_truncate_side": "middle",
        "format": "hermes",
    }
    rollout = {"prompt_length": 8192, "response_length": 16384, "full_determinism": False, "multi_turn": multi_turn}
    config = omegaconf.OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    (entry,) = omegaconf.OmegaConf.create(page_code(PAGE, "loops.yaml", url))
    script = Script(tokenizer(), answers)

    async def run() -> Any:
        loop = hydra.utils.instantiate(
            config=entry,
            trainer_config=agent_loop.DictConfigWrap(config=config),
            server_manager=VerlServer(script, replica.TokenOutput),
            tokenizer=script.tokenizer,
            processor=None,
            hf_model_type="qwen3",
            dataset_cls=None,
            data_config=agent_loop.DictConfigWrap(config.data),
            tools=agent_loop.ToolListWrap([]),
        )
        assert isinstance(loop, agent_loop.AgentLoopBase)
        prompt = [{"role": "user", "content": "Reach every target."}]
        return await loop.run({}, raw_prompt=prompt, extra_info={"seed": 4})

    return asyncio.run(run()), script


def test_verl_runs_a_trajectory(service: ServiceProcess) -> None:
    output, script = run_verl(service.url, [*[move_to_target] * 3, "Done."])
    assert output.reward_score == 1.0
    assert output.as_dict()["rm_scores"].tolist() == [*[0.0] * (len(output.response_ids) - 1), 1.0]
    assert output.num_turns == 8
    assert sum(output.extra_fields["tool_rewards"]) == pytest.approx(1.0)
    # The model is trained on its four answers only: what the tools said is masked.
    said = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert script.tokenizer.decode(said).count(END) == 4
    assert "goals_met" not in script.tokenizer.decode(said)
    assert '"goals_met": 3, "episode_over": true' in script.read[-1]
    assert '"name": "move_to"' in script.read[0]
    assert "Success: within 2 cm" in script.read[0]
    assert open_sessions(service) == 0


def test_verl_shows_the_model_its_mistakes(service: ServiceProcess) -> None:
    wrong = '<tool_call>\n{"name": "act", "arguments": {"targets": [0.1], "seconds": 1.0}}\n</tool_call>'
    again = '<tool_call>\n{"name": "reset", "arguments": {}}\n</tool_call>'
    output, script = run_verl(service.url, [wrong, move_to_target, again, move_to_target, "Done."])
    assert "targets must be a list of 6 numbers" in script.read[1]
    # `reset` starts the same episode again: its first target is the one of the first prompt.
    assert move_to_target(script.read[3]) == move_to_target(script.read[0])
    assert output.reward_score == 1 / 3
    assert open_sessions(service) == 0


@pytest.mark.slow
def test_verl_does_not_learn_from_a_service_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client would try for 50 s to reach the service again.
    monkeypatch.setattr("physai.service.client.remote_session.RESUME_S", 0.5)
    with running_service(tmp_path / "data", workers=0) as passing:

        def stop_then_move(read: str) -> str:
            passing.kill()
            return move_to_target(read)

        with pytest.raises(ServiceError):
            run_verl(passing.url, [stop_then_move, "Done."])


class VllmEngine:
    """What OpenRLHF's executor uses of vLLM."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def generate(self, tokens: list[int], params: Any, **_: Any) -> Any:
        answer = self._script.answer(tokens)
        said = self._script.tokenizer.decode(answer)
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=answer, text=said, finish_reason="stop", logprobs=None)]
        )


def run_openrlhf(url: str, answers: list[Any], **attributes: Any) -> tuple[dict[str, Any], Script]:
    """One rollout of OpenRLHF's own executor, as the page's file makes it."""
    framework("openrlhf.utils.agent")
    page: dict[str, Any] = {"__name__": "agent_module"}
    exec(page_code(PAGE, "agent.py", url), page)
    for name, value in attributes.items():
        setattr(page["Reach"], name, value)
    script = Script(tokenizer(), answers)
    prompt = "<|im_start|>user\nReach every target. {state}<|im_end|>\n<|im_start|>assistant\n"
    params = SimpleNamespace(max_tokens=None, logprobs=None)
    run = page["AgentExecutor"]().execute(prompt, "4", params, 16384, script.tokenizer, VllmEngine(script))
    return asyncio.run(run), script


def test_openrlhf_runs_a_rollout(service: ServiceProcess) -> None:
    response, script = run_openrlhf(service.url, [move_to_target] * 3)
    assert response["reward"] == pytest.approx(1.0)
    assert float(response["scores"]) == 1.0
    assert {name: float(value) for name, value in response["extra_logs"].items()} == {
        "goals_judged": 3.0,
        "goals_met": 3.0,
    }
    # Three answers, and between them what the skills said in turns of the user.
    assert len(response["action_ranges"]) == 3
    tokens = response["observation_tokens"]
    for start, end in response["action_ranges"]:
        answer = script.tokenizer.decode(tokens[start:end])
        assert answer.startswith("<tool_call>")
        assert answer.endswith(END)
    assert script.read[1].count("<|im_start|>user") == 2
    assert '"goals_met": 1' in script.read[1]
    assert open_sessions(service) == 0


def test_openrlhf_shows_the_model_its_mistakes(service: ServiceProcess) -> None:
    hostile = [
        "<tool_call>no JSON</tool_call>",
        "<tool_call>" + "[" * 5000 + "</tool_call>",
        f'<tool_call>{{"name": "act", "arguments": {{"targets": [{"9" * 5000}], "seconds": 1}}}}</tool_call>',
        '<tool_call>{"name": "act"}</tool_call>',
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": "close", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "act", "arguments": {"targets": [NaN, 0, 0, 0, 0, 0], "seconds": 1}}</tool_call>',
    ]
    response, script = run_openrlhf(service.url, ["".join(hostile), "I give up."])
    answers = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", script.read[1])
    assert len(answers) == len(hostile)
    assert all(answer.startswith("error: a call is JSON") for answer in answers[:5])
    assert "no skill 'close'" in answers[5]
    assert "targets[0] is nan" in answers[6]
    assert response["reward"] == 0.0
    assert open_sessions(service) == 0


def test_openrlhf_stops_after_the_last_turn_and_drops_what_ran_out(service: ServiceProcess) -> None:
    look = '<tool_call>{"name": "read_state", "arguments": {}}</tool_call>'
    response, _ = run_openrlhf(service.url, [look] * 9, max_turns=2)
    assert len(response["action_ranges"]) == 2
    # An answer that fills the context is the last one, done or not; the session goes with the agent.
    response, _ = run_openrlhf(service.url, [look, look + " " * 16384])
    assert len(response["action_ranges"]) == 2
    assert open_sessions(service) == 0


GRPO: dict[str, Any] = {
    "max_steps": 1,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "max_completion_length": 8192,
    "learning_rate": 0.01,
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_steps": 1,
}
"""One update of a trainer on a CPU, from two rollouts for each of two prompts."""


def tiny_qwen(transformers: Any, words: Any) -> Any:
    """A model of one layer that knows a tokenizer's words and nothing else."""
    transformers.set_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    return transformers.Qwen3ForCausalLM(config)


def test_trl_trains_with_the_environment(service: ServiceProcess, tmp_path: Path) -> None:
    trl, transformers = framework("trl"), framework("transformers")
    datasets, schemas = framework("datasets"), framework("transformers.utils.chat_template_utils")
    page: dict[str, Any] = {}
    exec(page_code(PAGE, "trl_twin.py", service.url), page)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    words = byte_tokenizer(transformers, framework("tokenizers"), template.read_text(encoding="utf-8"))
    model = tiny_qwen(transformers, words)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    read: list[str] = []

    class Trainer(trl.GRPOTrainer):
        """Answers by script: rollouts with an odd number give up, the others move to all three targets."""

        def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[Any, None]:
            texts = [words.decode(ids) for ids in prompt_ids]
            read.extend(texts)
            first = all("<tool_response>" not in text for text in texts)
            answers = [
                "I give up." if (first and index % 2) or text.count("<tool_response>") == 3 else move_to_target(text)
                for index, text in enumerate(texts)
            ]
            return [words(answer + END, add_special_tokens=False)["input_ids"] for answer in answers], None

    prompt = [{"role": "user", "content": "Reach every target. "}]
    trainer = Trainer(
        model=model,
        args=trl.GRPOConfig(output_dir=str(tmp_path), **GRPO),
        train_dataset=datasets.Dataset.from_list([{"prompt": prompt, "seed": seed} for seed in (1, 2)]),
        processing_class=words,
        environment_factory=page["factory"],
    )
    assert [tool.__name__ for tool in trainer.tools] == ["act", "move_to", "read_state"]
    for tool in trainer.tools:
        schema = schemas.get_json_schema(tool)["function"]
        assert all(value["description"] for value in schema["parameters"].get("properties", {}).values())
    assert schemas.get_json_schema(trainer.tools[1])["function"]["parameters"]["required"] == ["pose", "seconds"]
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["rewards/PoseTwinTools/mean"] == 0.5
    assert log["tools/call_frequency"] == 1.5
    assert log["tools/failure_frequency"] == 0.0
    assert "Success: within 2 cm" in read[0]
    # Rollouts of one prompt begin in the same state, those of another in another.
    assert read[0] == read[1]
    assert read[2] == read[3] != read[0]
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_rlinf_steps_the_environment(service: ServiceProcess) -> None:
    envs, omegaconf = framework("rlinf.envs"), framework("omegaconf")
    worker, data = framework("rlinf.workers.env.env_worker"), framework("rlinf.data.embodied_io_struct")
    from agents.rlinf import TwinEnv, register

    register()
    settings = omegaconf.OmegaConf.create(page_code(PAGE, "env.yaml", service.url))
    train = {**settings, "seed": 1, "video_cfg": {"save_video": False}}
    config = omegaconf.OmegaConf.create({"env": {"train": train}})
    assert envs.get_env_cls("isaaclab", config.env.train) is TwinEnv
    # RLinf's methods as they are, on what they use of a worker; a whole one needs a cluster.
    this = SimpleNamespace(
        cfg=config,
        model_cfg=omegaconf.OmegaConf.create({"model_type": "mlp_policy", "num_action_chunks": 5, "action_dim": 1}),
        stage_num=1,
        use_external_reward_model=True,
        _rank=0,
        _world_size=1,
        worker_info=None,
        last_obs_list=[],
        last_intervened_info_list=[],
        enable_train=True,
        enable_eval=False,
        train_enable_offload=False,
    )
    kind = worker.EnvWorker
    this._build_chunk_final_obs = partial(kind._build_chunk_final_obs, this)
    this.env_list = kind._setup_env_and_wrappers(this, TwinEnv, config.env.train, 4)
    kind._init_env(this)
    (states,) = (observation["states"] for observation in this.last_obs_list)
    step, metrics = inspect.unwrap(kind.env_interact_step), list[float]()
    for index in range(12):
        output, info = step(this, torch.full((4, 5, 1), (-1.0) ** index), 0)
        assert isinstance(output, data.EnvOutput)
        prepared = output.to_dict()
        assert prepared["obs"]["states"].shape == prepared["final_obs"]["states"].shape == states.shape
        assert output.rewards.shape == output.dones.shape == (4, 5)
        ended = output.dones[:, -1]
        assert sorted(info) == (["episode_len", "return", "reward", "success_once"] if ended.any() else [])
        assert all(len(value) == int(ended.sum()) for value in info.values())
        differs = (output.final_obs["states"] != output.obs["states"]).any(dim=1)
        assert torch.equal(differs, ended)
        metrics.extend(info.get("episode_len", torch.zeros(0)).tolist())
    # 60 steps of 50 with staggered starts: each of the four worlds ended.
    assert len(metrics) >= 4
    assert max(metrics) <= 50
    kind.finish_rollout(this)
    this.env_list[0].close()
    assert open_sessions(service) == 0
