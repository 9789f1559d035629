"""Start a run from the weights of another one (`--init-from`): fine-tuning in another twin, task or randomisation."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from physai.sdk.base.errors import CheckpointError, ContractMismatchError
from physai.sdk.contract.contract_diff import Difference, diff, format_diff
from physai.sdk.contract.io import parse_contract
from physai.train.runners.checkpoint import CHECKPOINT_FILE, brief, read_checkpoint
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import load_config
from physai.train.settings.config import TrainConfig

NETWORK = ("actor", "hidden", "gru_size", "activation")
"""Settings that decide which weights there are."""


def network_settings(run: Path) -> dict[str, Any]:
    """The settings that a run must share with the one that it starts from.

    Raises:
        CheckpointError: the folder is not a run folder, or its configuration is damaged.
    """
    config = asdict(load_config(run)[1])
    return {name: config[name] for name in NETWORK}


def require_same_network(config: TrainConfig, run: Path) -> None:
    """Check that a configuration builds the network whose weights a run holds.

    Raises:
        CheckpointError: it does not.
    """
    for name, value in network_settings(run).items():
        if getattr(config, name) != value:
            raise CheckpointError(
                f"{name} is {getattr(config, name)}, but {run} was trained with {value}; leave {name} out to take that "
                "over, or start without `init_from`"
            )


def load_initial_weights(trainer: Trainer, run: Path) -> int:
    """Take actor, critic, exploration noise and observation statistics from a run; nothing else of it.

    No code of the run is needed: its checkpoint holds tensors and its contract. A critic that lacks only what this task
    shows it in addition (`Task.seen`) gets weights of 0 for it; one of another size begins anew.

    Returns:
        Number of critic inputs with such weights, the last ones, which are not scaled yet.

    Raises:
        CheckpointError: the run has no readable checkpoint, or its weights do not fit.
        ContractMismatchError: it observes or acts in another way.
    """
    ranks = trainer.ranks
    state = ranks.scatter([_fitting(trainer, run)] * ranks.size if ranks.leads else [])
    learner = trainer.learner
    try:
        learner.graph.load_state_dict(state["graph"])
        # A critic that does not fit is missing.
        learner.ppo.load_state_dict(state["ppo"], strict=state["critic_normaliser"] is not None)
        if state["critic_normaliser"] is not None:
            learner.critic_normaliser.load_state_dict(state["critic_normaliser"])
    except (LookupError, RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{run / CHECKPOINT_FILE} does not fit this run: {brief(error)}") from error
    learner.graph.normaliser.refresh()
    learner.critic_normaliser.refresh()
    return int(state["added"])


def _fitting(trainer: Trainer, run: Path) -> dict[str, Any]:
    saved = read_checkpoint(run)
    contract = parse_contract(saved["contract"], source=str(run / CHECKPOINT_FILE))
    differences = tuple(one for one in diff(contract, trainer.task.contract) if _matters(one))
    if differences:
        text = format_diff(differences, left=str(run), right=trainer.task.name)
        raise ContractMismatchError(f"the weights of {run} are for other observations or actions:\n{text}")
    try:
        weights: Mapping[str, Any] = saved["ppo"]
        own = trainer.learner.ppo.state_dict()
        weights, statistics, added = _with_seen(weights, saved["critic_normaliser"], own, len(trainer.task.seen))
        fits = all(weights[name].shape == own[name].shape for name in own if name.startswith("critic."))
        kept = {name: value for name, value in weights.items() if fits or not name.startswith("critic.")}
        _require_finite({**saved["graph"], **kept}, run)
        return {
            "graph": saved["graph"],
            "ppo": kept,
            "critic_normaliser": statistics if fits else None,
            "added": added if fits else 0,
        }
    except (LookupError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{run / CHECKPOINT_FILE}: damaged: {error!r}") from error


def _with_seen(
    weights: Mapping[str, Any], statistics: Mapping[str, Any], own: Mapping[str, Any], seen: int
) -> tuple[Mapping[str, Any], Mapping[str, Any], int]:
    """Critic and statistics of its input with so many more columns, if they are what they lack."""
    first = "critic.0.weight"
    if not seen or weights[first].shape[1] + seen != own[first].shape[1]:
        return weights, statistics, 0
    wider = torch.nn.functional.pad(weights[first], (0, seen))
    mean = torch.nn.functional.pad(statistics["mean"], (0, seen))
    variance = torch.nn.functional.pad(statistics["variance"], (0, seen), value=1.0)
    return {**weights, first: wider}, {**statistics, "mean": mean, "variance": variance}, seen


def _matters(difference: Difference) -> bool:
    """Whether weights mean something else after this difference; masses, limits and noise may differ."""
    if difference.path.startswith(("observation", "action")):
        return True
    return difference.kind != "changed" and difference.path.startswith(("robot.joints", "command.fields"))


def _require_finite(tensors: Mapping[str, torch.Tensor], run: Path) -> None:
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{run / CHECKPOINT_FILE}: {name} is not finite; start from an earlier run")
