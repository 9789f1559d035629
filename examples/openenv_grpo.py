"""A language model's trainer on a robot: TRL's GRPOTrainer, with the twin service as OpenEnv environment server.

    pip install 'physai-sdk[serve]' trl
    python examples/openenv_grpo.py --steps 40

The four parts of the usual demonstrations of GRPO with OpenEnv are here: a policy (a causal language model), an
environment server (`physai sim serve`, which this program starts), a frozen reference (TRL's, by `beta`), and a trainer
that reuses what was generated for `steps_per_generation` updates, the greatest age of its data.

The model is a random GPT-2 of 0.1 million weights over a vocabulary of 66 words: 4 words say what the sensors read, the
model's word is one of 5 efforts. **This shows that the parts fit together, not that language models drive robots**: PPO
by `physai train` learns this task in a minute. On a GPU, leave out `use_cpu` and put a pretrained model in the place of
`tiny_model`, and sentences of its language in that of `words`; this was not run.
"""

import argparse
import base64
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from websockets.sync.client import connect

from physai.service import running_service

TASK = "cartpole-swingup"
BINS = 16
# Position [m], angle [rad], and their speeds: what is read lies in the outermost bins beyond these.
REACH = np.array([2.0, np.pi, 4.0, 10.0])
EFFORTS = np.array([-1.0, -0.4, 0.0, 0.4, 1.0])
DECISIONS, STEPS_PER_DECISION = 40, 6


class Worlds:
    """Many worlds over one WebSocket: OpenEnv's protocol, profile `batch` of the twin service."""

    def __init__(self, url: str, task: str, worlds: int) -> None:
        """Connects; the first reset makes the worlds."""
        self._socket = connect(f"{url.replace('http', 'ws', 1)}/openenv/batch/{task}/ws", max_size=None)
        self._worlds = worlds

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Starts an episode in each world."""
        return self._ask("reset", {"worlds": self._worlds, "seed": seed})

    def steps(self, efforts: np.ndarray, count: int) -> dict[str, np.ndarray]:
        """Holds an effort [N] per world for `count` steps; the steps are the first axis of rewards and flags."""
        rows = np.repeat(efforts[None, :, None].astype("<f4"), count, axis=0)
        data = base64.b64encode(rows.tobytes()).decode()
        return self._ask("step", {"joint_effort_target": {"dtype": "<f4", "shape": rows.shape, "data": data}})

    def _ask(self, kind: str, data: dict[str, object]) -> dict[str, np.ndarray]:
        self._socket.send(json.dumps({"type": kind, "data": data}))
        reply = json.loads(self._socket.recv())
        if reply["type"] == "error":
            raise RuntimeError(reply["data"]["message"])
        arrays = {n: v for n, v in reply["data"]["observation"].items() if isinstance(v, dict) and "dtype" in v}
        return {
            n: np.frombuffer(base64.b64decode(v["data"]), v["dtype"]).reshape(v["shape"]) for n, v in arrays.items()
        }


def words(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """What the sensors read as 4 words per world, of which each has its own 16."""
    # The angle counts from hanging and does not end at a turn.
    angle = np.arctan2(np.sin(position[:, 1]), np.cos(position[:, 1]))
    read = np.column_stack([position[:, 0], angle, velocity]) / REACH
    return np.clip((0.5 + 0.5 * read) * BINS, 0, BINS - 1).astype(np.int64) + BINS * np.arange(4)


class Rollout:
    """TRL's `rollout_func`: the model and the worlds take turns; what the worlds say is no choice of the model's."""

    def __init__(self, worlds: Worlds, bound: float) -> None:
        """Plays in these worlds with efforts up to `bound` [N]."""
        self._worlds, self._bound, self._seed = worlds, bound, 0
        self.returns: list[float] = []

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, object]:
        """One episode per prompt."""
        self._seed += 1
        read = self._worlds.reset(self._seed)
        tokens: list[np.ndarray] = []
        chances: list[np.ndarray] = []
        earned, alive, past = np.zeros(len(prompts)), np.ones(len(prompts), bool), None
        model = trainer.model.eval()
        with torch.no_grad():
            for _ in range(DECISIONS):
                sensed = words(read["joint_pos"], read["joint_vel"])
                answer = model(torch.from_numpy(sensed), past_key_values=past, use_cache=True)
                spread = torch.distributions.Categorical(logits=answer.logits[:, -1])
                choice = spread.sample()
                past = model(choice[:, None], past_key_values=answer.past_key_values, use_cache=True).past_key_values
                # Every word is an answer, so that a random model need not find those that are.
                effort = self._bound * EFFORTS[choice.numpy() % len(EFFORTS)]
                reply = self._worlds.steps(effort, STEPS_PER_DECISION)
                earned += np.where(alive, reply["reward"].sum(axis=0), 0.0)
                # A world that ended has begun another episode, which is not the model's.
                alive &= ~(reply["terminated"] | reply["truncated"]).astype(bool).any(axis=0)
                read = reply
                tokens += [*sensed.T, choice.numpy()]
                chances += [np.zeros(len(prompts))] * 4 + [spread.log_prob(choice).numpy()]
        model.train()
        self.returns.append(float(earned.mean()))
        mask = [0, 0, 0, 0, 1] * DECISIONS
        return {
            "prompt_ids": [[4 * BINS]] * len(prompts),
            "completion_ids": np.array(tokens).T.tolist(),
            "logprobs": np.array(chances).T.tolist(),
            "env_mask": [mask] * len(prompts),
            "earned": earned.tolist(),
        }


def tiny_model(folder: Path) -> PreTrainedTokenizerFast:
    """Writes a random model, which TRL loads twice: as policy and as reference."""
    names = [f"s{sensor}_{number}" for sensor in range(4) for number in range(BINS)]
    names += ["<begin>", "<pad>"]
    vocabulary = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<pad>"))
    vocabulary.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, bos_token="<begin>", eos_token="<pad>", pad_token="<pad>"
    )
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    size = {"n_positions": 5 * DECISIONS + 8, "n_embd": 64, "n_layer": 2, "n_head": 2}
    torch.manual_seed(0)
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(names), **size, **ends, **quiet)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def main() -> None:
    """Trains, and prints the return of the first and the last episodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="updates (default: 40)")
    parser.add_argument("--group", type=int, default=32, help="episodes in a group (default: 32)")
    parser.add_argument("--reward", type=Path, help="file of your own reward(steps), which runs in a sandbox")
    arguments = parser.parse_args()
    rewards = {} if arguments.reward is None else {TASK: arguments.reward}
    with (
        tempfile.TemporaryDirectory() as scratch,
        running_service(Path(scratch) / "data", workers=0, rewards=rewards) as service,
    ):
        tokenizer = tiny_model(Path(scratch) / "model")
        rollout = Rollout(Worlds(service.url, TASK, arguments.group), bound=10.0)
        trainer = GRPOTrainer(
            model=str(Path(scratch) / "model"),
            processing_class=tokenizer,
            reward_funcs=lambda earned, **_: earned,
            rollout_func=rollout,
            train_dataset=Dataset.from_dict({"prompt": ["<begin>"] * 1000}),
            args=GRPOConfig(
                output_dir=f"{scratch}/out",
                use_cpu=True,
                bf16=False,
                max_steps=arguments.steps,
                per_device_train_batch_size=arguments.group,
                num_generations=arguments.group,
                steps_per_generation=1,
                max_completion_length=5 * DECISIONS,
                learning_rate=3e-3,
                lr_scheduler_type="constant",
                beta=0.001,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                logging_steps=10,
            ),
        )
        trainer.train()
    ends = max(1, len(rollout.returns) // 5)
    first, last = (float(np.mean(part)) for part in (rollout.returns[:ends], rollout.returns[-ends:]))
    print(f"return {first:.2f} in the first {ends} updates, {last:.2f} in the last, of {len(rollout.returns)} updates")


if __name__ == "__main__":
    main()
