"""Checkpoints of run folders, from which a run resumes bit for bit.

A checkpoint replaces the previous one with a single rename, so after a crash or on a full disk a complete one remains.
It holds only tensors, numbers and text and is loaded without unpickling code (`weights_only`).
"""

import dataclasses
import io
import logging
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from physai.sdk.base.errors import CheckpointError, ContractMismatchError, TaskError
from physai.sdk.base.files import write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.contract.io import parse_contract
from physai.sdk.policy.run_identity import FACTS_KEY, ID_KEY, Run
from physai.sim.policies.saved_task import kept_task
from physai.sim.tasks.task import Task
from physai.train.collectors.collector import Learner
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.runner import Trainer, build_graph
from physai.train.runs.identity import KEY_FILE, run_key
from physai.train.runs.run_config import CHECKPOINT_FILE, CONFIG_FILE, load_config
from physai.train.settings.config import TrainConfig
from physai.twin.model.twin import load_twin

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
MAX_CHECKPOINT_BYTES = 4 << 30

MISFIT = (LookupError, AttributeError, TypeError, RuntimeError, ValueError, TaskError)
"""Errors that torch and the environment raise for state of the wrong shape or type."""


def brief(error: Exception) -> str:
    """The message of torch as one line: it gives a line to every tensor that does not fit."""
    return " ".join(str(error).split())[:400]


@dataclass(frozen=True)
class LoadedRun:
    """A trained policy and where it came from."""

    folder: Path
    task: Task
    config: TrainConfig
    graph: PolicyGraph
    provenance: dict[str, str]
    key: Ed25519PrivateKey | None = None
    """Signs exported policies; None if the folder does not hold the run's key."""


def save_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Replaces the folder's checkpoint with the current state of all ranks, which the first one writes.

    Raises:
        CheckpointError: it cannot be written; the previous one is kept.
    """
    parts = trainer.ranks.gather(_part(trainer))
    if parts is not None:
        _write(folder, _state(trainer, parts))


def save_policy(folder: Path, learner: Learner, *, iteration: int, env_steps: int, seconds: float) -> None:
    """Replaces the folder's checkpoint with a policy and its critic: to export or begin from, not to be continued.

    Raises:
        CheckpointError: it cannot be written; the previous one is kept.
    """
    counts = {"iteration": iteration, "env_steps": env_steps, "seconds": seconds}
    _write(folder, {**counts, **_learned(learner)})


def _write(folder: Path, state: Mapping[str, Any]) -> None:
    write_state(folder / CHECKPOINT_FILE, {**state, "run": run_id(folder)})


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Replaces a file with tensors, numbers and text; see `read_state`.

    Raises:
        CheckpointError: it cannot be written; the previous one is kept.
    """
    data = io.BytesIO()
    torch.save({"format_version": FORMAT_VERSION, **state}, data)
    if data.tell() > MAX_CHECKPOINT_BYTES:
        raise CheckpointError(
            f"the checkpoint would have {data.tell()} bytes, the limit is {MAX_CHECKPOINT_BYTES}; use fewer worlds"
        )
    try:
        write_atomic(path, data.getvalue())
    except OSError as error:
        kept = "the previous one is kept" if path.exists() else "there is no previous one"
        raise CheckpointError(f"cannot save checkpoint in {path.parent}: {error.strerror or error}; {kept}") from error


def run_id(folder: Path) -> str:
    """Identity of the run that a folder is of; empty if it names none, or is none yet."""
    return load_config(folder)[2].get(ID_KEY, "") if (folder / CONFIG_FILE).exists() else ""


def _require_run(saved: str, folder: Path) -> None:
    """Raises CheckpointError for the checkpoint of another run than its folder is of."""
    stated = run_id(folder)
    if saved != stated:
        raise CheckpointError(
            f"{folder / CHECKPOINT_FILE} is of {_named(saved)}, {folder / CONFIG_FILE} of {_named(stated)}; restore "
            "the one that was changed from a copy"
        )


def _named(run: str) -> str:
    return f"the run {run[:64]}" if run else "a run without identity"


def _part(trainer: Trainer) -> dict[str, Any]:
    """Each rank's own part of a checkpoint."""
    return {
        "collector": trainer.collector.state_dict(),
        "pending": trainer.pending.state_dict() if trainer.pending else None,
    }


def _state(trainer: Trainer, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "iteration": trainer.iteration,
        "env_steps": trainer.env_steps,
        "seconds": trainer.seconds,
        "diverged_episodes": trainer.diverged_episodes,
        **learner_state(trainer.learner, trainer.generator),
        **parts[0],
        "other_ranks": list(parts[1:]),
    }


def learner_state(learner: Learner, order: torch.Generator) -> dict[str, Any]:
    """State from which a learner continues; `order` draws its minibatches."""
    return {
        **_learned(learner),
        "optimizer": learner.ppo.optimizer.state_dict(),
        "learning_rate": learner.ppo.learning_rate,
        "generator": order.get_state(),
    }


def _learned(learner: Learner) -> dict[str, Any]:
    """The weights, and the contract that they are for."""
    return {
        "contract": canonical_json(learner.graph.contract).decode(),
        "graph": learner.graph.state_dict(),
        "ppo": learner.ppo.state_dict(),
        "critic_normaliser": learner.critic_normaliser.state_dict(),
    }


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Reads a run's checkpoint.

    Raises:
        CheckpointError: it is missing, damaged, too large, of another format, or of another run than its folder.
    """
    path = folder / CHECKPOINT_FILE
    state = read_state(path)
    if not isinstance(state.get("contract"), str):
        raise CheckpointError(f"{path}: damaged: it has no contract")
    _require_run(str(state.pop("run", "")), folder)
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Reads what `write_state` wrote.

    Raises:
        CheckpointError: it is missing, damaged, too large or of another format.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path.parent} has no {path.name}; the run ended before the first one was saved; start it again with "
            f"`out` {path.parent}"
        )
    if path.stat().st_size > MAX_CHECKPOINT_BYTES:
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes, the limit is {MAX_CHECKPOINT_BYTES}")
    try:
        _require_stored(path)
        state = cast(dict[str, Any], torch.load(path, map_location="cpu", weights_only=True))
        version = state["format_version"]
    except Exception as error:  # torch raises half a dozen unrelated types for a damaged file
        # Its message is left out, because it suggests to run the code that such a file may hold.
        raise CheckpointError(
            f"{path}: damaged, or it holds other things than tensors, numbers and text, which are not loaded; "
            "restore it from a copy"
        ) from error
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: format version {version}, this physai reads {FORMAT_VERSION}")
    return state


def _require_stored(path: Path) -> None:
    """Raises ValueError for a zip that is larger unpacked: torch writes none, but would unpack it."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise ValueError(f"{entry.filename} is compressed")


def restore_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Restores a new trainer of the same task and configuration from the folder's checkpoint.

    With another number of ranks than it was saved with, weights, statistics and optimiser are the same, ranks that it
    has a state of continue from that, and further ones begin new episodes.

    Raises:
        CheckpointError: the checkpoint cannot be read or does not fit the trainer.
        ContractMismatchError: it was trained with another contract.
    """
    state = trainer.ranks.scatter(_shares(trainer, folder) if trainer.ranks.leads else [])
    try:
        load_learner(trainer.learner, trainer.generator, state)
        if state["begins"]:
            trainer.collector.begin_beside(state["collector"])
        else:
            trainer.collector.load_state_dict(state["collector"])
        if state["pending"] is not None:
            trainer.pending = trainer.new_rollout()
            trainer.pending.load_state_dict(state["pending"])
        trainer.iteration, trainer.seconds = int(state["iteration"]), float(state["seconds"])
        # Checkpoints of physai 0.1 lack these.
        trainer.diverged_episodes = trainer.diverged_before = int(state.get("diverged_episodes", 0))
        steps = trainer.config.num_envs * trainer.config.horizon * trainer.iteration
        trainer.env_steps = int(state.get("env_steps", steps))
    except MISFIT as error:
        raise CheckpointError(f"{folder / CHECKPOINT_FILE} does not fit this configuration: {brief(error)}") from error


def _shares(trainer: Trainer, folder: Path) -> list[dict[str, Any]]:
    """Part of the folder's checkpoint that each rank loads."""
    state = read_checkpoint(folder)
    saved = parse_contract(state["contract"], source=str(folder / CHECKPOINT_FILE))
    require_same(saved, trainer.task.contract, left="the checkpoint's contract", right="this task's contract")
    try:
        parts = [{name: state[name] for name in ("collector", "pending")}, *state.pop("other_ranks", [])]
        for part in parts if len(parts) > 1 else ():
            part["collector"]["begun"] = max(part["collector"]["begun"] for part in parts)
        if len(parts) != trainer.ranks.size:
            # All ranks learn from such a rollout together, so those that lack it collect it again.
            parts = [{**part, "pending": None} for part in parts]
        count = trainer.ranks.size
        shares = [{**state, **part, "begins": False} for part in parts[:count]]
        return shares + [{**state, **parts[0], "begins": True} for _ in range(count - len(parts))]
    except MISFIT as error:
        raise CheckpointError(f"{folder / CHECKPOINT_FILE} does not fit this configuration: {brief(error)}") from error


def learned_on(state: Mapping[str, Any]) -> str:
    """`cpu` or `cuda`: where a run learned whose checkpoint this is, by the size of its random numbers' state."""
    saved = state.get("generator")
    other = isinstance(saved, torch.Tensor) and saved.numel() != torch.Generator().get_state().numel()
    return "cuda" if other else "cpu"


def load_learner(learner: Learner, order: torch.Generator, state: Mapping[str, Any]) -> None:
    """Takes back `learner_state`; what torch raises for state that does not fit is among `MISFIT`.

    Raises:
        ValueError: it is of another kind of device.
    """
    here, there = order.device.type, learned_on(state)
    if here != there:
        raise ValueError(
            f"it learned on {there}, whose random numbers cannot go on on {here}; add `device` {there}, or begin a new "
            "run with `init_from`"
        )
    learner.graph.load_state_dict(state["graph"])
    learner.ppo.load_state_dict(state["ppo"])
    learner.critic_normaliser.load_state_dict(state["critic_normaliser"])
    _load_optimizer(learner.ppo.optimizer, state["optimizer"])
    learner.ppo.set_learning_rate(float(state["learning_rate"]))
    order.set_state(state["generator"])
    learner.graph.normaliser.refresh()
    learner.critic_normaliser.refresh()


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Takes over the averages of the gradients; torch checks neither their shapes nor the settings beside them."""
    own: Any = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, averages in saved["state"].items():
        for name, value in averages.items():
            if name != "step" and value.shape != parameters[number].shape:
                raise ValueError(f"{name} of weights {number} has shape {tuple(value.shape)}")
    optimizer.load_state_dict({"state": saved["state"], "param_groups": own["param_groups"]})


def _other_version(recorded: Mapping[str, str]) -> str:
    """Addition to a mismatch if another physai made the run; its tasks and robots may differ."""
    here, then = metadata.version("physai-sdk"), recorded.get("version.physai-sdk", "an unknown version")
    return "" if here == then else f"\nthe run was trained with physai-sdk {then}, this is {here}"


def load_run(folder: Path, *, task: str | Path | None = None, robot: str | Path | None = None) -> LoadedRun:
    """Loads the policy of a run folder.

    Args:
        folder: run folder.
        task: built-in name or Python file, if the run's task is not built in.
        robot: built-in name, MJCF or URDF file, if the run's robot is not built in.

    Raises:
        TaskError: a task or robot that is not built in was not named.
        CheckpointError: the folder is not a run folder or has no readable checkpoint.
        ContractMismatchError: the task has changed since the run.
    """
    source, config, recorded = load_config(folder)
    source = source.chosen(folder, task=task, robot=robot)
    state = read_checkpoint(folder)
    loaded = source.load()
    saved = parse_contract(state["contract"], source=str(folder / CHECKPOINT_FILE))
    try:
        require_same(saved, loaded.contract, left=f"the run's contract ({folder})", right="the task's current contract")
    except ContractMismatchError as error:
        raise ContractMismatchError(f"{error}{_other_version(recorded)}") from None
    graph = build_graph(loaded, config)
    try:
        graph.load_state_dict(state["graph"])
        iteration = int(state["iteration"])
    except MISFIT as error:
        raise CheckpointError(f"{folder / CHECKPOINT_FILE} does not fit its configuration: {brief(error)}") from error
    graph.normaliser.refresh()
    origin = {key: value for key, value in dataclasses.asdict(source).items() if value}
    twin = origin.pop("twin", None)
    if twin is not None:
        # The path is meaningless on another computer.
        origin["twin_hash"] = load_twin(twin).hash
    kept = kept_task(folder)
    if kept is not None:
        # So are the paths of the copies.
        origin |= {key: value for key, value in kept.names.items() if value}
        origin |= kept.hashes
    entries = {**recorded, **origin, "iteration": str(iteration), "run": folder.resolve().name}
    key = _key(folder, entries)
    if key is None:
        entries = {name: value for name, value in entries.items() if name not in (ID_KEY, FACTS_KEY)}
    return LoadedRun(folder=folder, task=loaded, config=config, graph=graph, provenance=entries, key=key)


def _key(folder: Path, entries: Mapping[str, str]) -> Ed25519PrivateKey | None:
    """The key of a run that has an identity; a warning if it is not there."""
    if ID_KEY not in entries:
        return None
    run = Run.parse(entries[FACTS_KEY], source=str(folder / CONFIG_FILE))
    key = run_key(folder, run)
    if key is None:
        logger.warning(
            "%s is missing, so an exported policy does not name the run %s…; copy it from where the run was trained",
            *(folder / KEY_FILE, run.id[:12]),
        )
    return key
