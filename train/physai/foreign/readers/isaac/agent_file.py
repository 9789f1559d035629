"""Statements of Isaac Lab's `agent.yaml` about a network: those that the weights of a checkpoint do not show.

The file is written by Isaac Lab's training scripts for rsl_rl, rl_games and skrl. What their programs do with it stands
in rsl_rl's `models/mlp_model.py`, rl_games' `algos_torch/network_builder.py`, `algos_torch/players.py` and Isaac Lab's
`rl_games/rl_games.py`, and skrl's `utils/model_instantiators/torch/gaussian.py`.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

from physai.foreign.body.checkpoints.ways_out import WAY_OUT
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.isaac.manager_terms import mapping
from physai.foreign.readers.values import number, short

ALIASES = {"lrelu": "leaky_relu", "leakyrelu": "leaky_relu", "swish": "silu"}
"""Names of activations in these files that differ from ours."""


@dataclass(frozen=True, kw_only=True)
class AgentStatement:
    """Statements about the actor, each with its key; None for what the file does not state."""

    activation: tuple[str, str] | None = None
    squash: tuple[str, str] | None = None
    hidden: tuple[list[Any], str] | None = None
    """Widths of the hidden layers."""
    normalised: tuple[bool, str] | None = None
    """Whether the observation is normalised."""
    observation_clip: float | None = None
    output_limit: tuple[float, str] | None = None


def agent_statement(agent: dict[str, Any], library: str, where: str) -> AgentStatement:
    """Read the keys of a library.

    Args:
        agent: the file.
        library: `rsl_rl`, `rl_games` or `skrl`; others are not in such files.
        where: name of the file, for messages.

    Raises:
        ForeignPolicyError: a value is not of its kind.
    """
    read = {"rsl_rl": _rsl_rl, "rl_games": _rl_games, "skrl": _skrl}.get(library)
    return AgentStatement() if read is None else read(agent, where)


def _activation(value: Any, key: str) -> tuple[str, str] | None:
    rows = cast("list[Any]", value) if isinstance(value, list) else [value]
    names = {str(row).lower() for row in rows}
    return None if len(names) != 1 or value is None else (ALIASES.get(str(rows[0]).lower(), str(rows[0]).lower()), key)


def _widths(value: Any, key: str) -> tuple[list[Any], str] | None:
    # rsl_rl has -1 for the width of the input.
    return (cast("list[Any]", value), key) if isinstance(value, list) and -1 not in value else None


def _flag(value: Any, key: str) -> tuple[bool, str] | None:
    return (value, key) if isinstance(value, bool) else None


def _rsl_rl(agent: dict[str, Any], where: str) -> AgentStatement:
    if "actor" in agent:
        model, name, prefix = mapping(agent["actor"], f"{where}: actor"), "actor", ""
    else:
        model, name, prefix = mapping(agent.get("policy"), f"{where}: policy"), "policy", "actor_"
    limit = agent.get("clip_actions")
    normalised = _flag(model.get(f"{prefix}obs_normalization"), f"{name}.{prefix}obs_normalization")
    return AgentStatement(
        activation=_activation(model.get("activation"), f"{name}.activation"),
        hidden=_widths(model.get(f"{prefix}hidden_dims"), f"{name}.{prefix}hidden_dims"),
        normalised=normalised or _flag(agent.get("empirical_normalization"), "empirical_normalization"),
        output_limit=None if limit is None else (number(limit, f"{where}: clip_actions"), "clip_actions"),
    )


def _rl_games(agent: dict[str, Any], where: str) -> AgentStatement:
    params = mapping(agent.get("params"), f"{where}: params")
    network, config, env = (
        mapping(params.get(name), f"{where}: params.{name}") for name in ("network", "config", "env")
    )
    mlp = mapping(network.get("mlp"), f"{where}: params.network.mlp")
    space = mapping(network.get("space"), f"{where}: params.network.space")
    continuous = mapping(space.get("continuous"), f"{where}: params.network.space.continuous")
    limit = number(env.get("clip_actions", math.inf), f"{where}: params.env.clip_actions")
    clip = number(env.get("clip_observations", math.inf), f"{where}: params.env.clip_observations")
    final, key = str(continuous.get("mu_activation")).lower(), "params.network.space.continuous.mu_activation"
    squash = (final, key) if final == "tanh" and limit == 1.0 else None
    if final == "none" and config.get("clip_actions") is False:
        squash = "none", f"{key}, params.config.clip_actions"
    elif final == "none" and config.get("clip_actions") is True and limit == 1.0:
        squash = "clip", f"{key}, params.config.clip_actions"
    return AgentStatement(
        activation=_activation(mlp.get("activation"), "params.network.mlp.activation"),
        squash=squash,
        hidden=_widths(mlp.get("units"), "params.network.mlp.units"),
        normalised=_flag(config.get("normalize_input"), "params.config.normalize_input"),
        observation_clip=clip if math.isfinite(clip) else None,
        output_limit=(limit, "params.env.clip_actions") if math.isfinite(limit) else None,
    )


def _skrl(agent: dict[str, Any], where: str) -> AgentStatement:
    models, own = (mapping(agent.get(name), f"{where}: {name}") for name in ("models", "agent"))
    policy = mapping(models.get("policy"), f"{where}: models.policy")
    networks = cast("list[Any]", policy["network"]) if isinstance(policy.get("network"), list) else []
    key = "models.policy.network[0]"
    network = mapping(networks[0], f"{where}: {key}") if len(networks) == 1 else {}
    squash = {"ACTIONS": "none", "tanh(ACTIONS)": "tanh"}.get(str(policy.get("output")))
    if policy.get("clip_mean_actions") is True:
        squash = None
    labels = [f"{label}_preprocessor" for label in ("observation", "state") if f"{label}_preprocessor" in own]
    # The first is of skrl 2; a critic may have one of its own.
    normalised = (own[labels[0]] is not None, f"agent.{labels[0]}") if labels else None
    for label in labels:
        settings = mapping(own.get(f"{label}_kwargs"), f"{where}: agent.{label}_kwargs")
        if odd := sorted({"epsilon", "clip_threshold"} & set(settings)):
            raise ForeignPolicyError(
                f"{where}: agent.{label}_kwargs.{odd[0]} is {short(settings[odd[0]])}, and skrl's own is read so far; "
                f"{WAY_OUT}"
            )
    return AgentStatement(
        activation=_activation(network.get("activations"), f"{key}.activations"),
        squash=None if squash is None else (squash, "models.policy.output"),
        hidden=_widths(network.get("layers"), f"{key}.layers"),
        normalised=normalised,
    )
