"""Settings of an archive of Stable-Baselines3, as far as they are texts: activation and bounds of the actions.

Everything here runs in a child process: the file is a stranger's.
"""

import math
import re
from typing import Any, cast

from physai.foreign.body.checkpoints.layouts import ActorWeights
from physai.foreign.body.checkpoints.tensors import ZOO_DATA
from physai.foreign.body.checkpoints.ways_out import WAY_OUT
from physai.foreign.errors import ForeignPolicyError

DEFAULTS = {
    ("stable_baselines3.common.policies", "ActorCriticPolicy"): "tanh",
    ("stable_baselines3.sac.policies", "SACPolicy"): "relu",
    ("stable_baselines3.td3.policies", "TD3Policy"): "relu",
}
"""Activation of a policy whose settings name none, by the module and the class of its constructor."""
MODULES = {"LeakyReLU": "leaky_relu"}
"""Names of activations by torch's classes, where these are not the same in small letters."""
Stated = dict[str, tuple[Any, str]]


def stated_by_baselines(settings: dict[str, Any], actor: ActorWeights) -> Stated:
    """Return activation, squash and bound of the actions with their sources.

    Raises:
        ForeignPolicyError: the bounds of the actions are not symmetric.
    """
    found: Stated = {}
    kwargs = _object(settings.get("policy_kwargs"))
    policy = _object(settings.get("policy_class"))
    made = re.match(r"<function (\w+)\.__init__ ", str(policy.get("__init__")))
    default = DEFAULTS.get((str(policy.get("__module__")), made[1] if made else ""))
    if named := re.fullmatch(r"<class 'torch\.nn\.modules\.activation\.(\w+)'>", str(kwargs.get("activation_fn"))):
        found["activation"] = MODULES.get(named[1], named[1].lower()), f"{ZOO_DATA}: policy_kwargs.activation_fn"
    elif default and "activation_fn" not in kwargs:
        found["activation"] = default, f"code: {policy['__module__']}.{made[1] if made else ''}"
    if actor.layout.squash:
        found["squash"] = actor.layout.squash, f"code: {policy.get('__module__', 'stable_baselines3')}"
    elif settings:
        squashed = str(settings.get("use_sde")) == "True" and str(kwargs.get("squash_output")) == "True"
        found["squash"] = "tanh" if squashed else "clip", f"{ZOO_DATA}: policy_kwargs; code: BasePolicy.predict"
    if settings:
        found["bound"] = (
            _bound(_object(settings.get("action_space")), len(actor.layers[-1][0])),
            f"{ZOO_DATA}: action_space",
        )
    return found


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _bound(space: dict[str, Any], actions: int) -> float:
    """Return the magnitude of all bounds of the actions."""
    rows = [str(space.get(name))[:100_000] for name in ("low", "high")]
    try:
        low, high = ([float(word) for word in re.sub(r"[\[\]\s]+", " ", row).split()] for row in rows)
    except ValueError:
        low, high = [], []
    if len(low) != actions or {*high} != {-one for one in low} or len({*low}) != 1 or not 0.0 < high[0] < math.inf:
        raise ForeignPolicyError(
            f"its actions are within {rows[0][:100]} and {rows[1][:100]}, expected the same bound for all {actions} "
            f"and to both sides; {WAY_OUT}"
        )
    return high[0]
