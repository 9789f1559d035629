"""Two cart-poles on parallel rails whose carts are tied together by a rope."""

import math
from dataclasses import replace

import mujoco

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.tasks.pendulums.cartpole import anywhere, cartpole_swingup, hanging
from physai.sim.tasks.task import ResetFunction, Uniforms
from physai.sim.teams.team import Team, team_model

RAILS_APART = 0.8
"""Distance between the rails [m]."""
TRAINING = {
    "num_envs": 512,
    "horizon": 48,
    "epochs": 4,
    "minibatches": 4,
    "activation": "tanh",
    "discount_s": 1.5,
    "max_learning_rate": 3e-3,
    "stop_at_success": 0.97,
}
"""Settings of `physai train`: those of `cartpole-swingup`."""


def tethered_cartpoles(slack: float = 1.0) -> Team:
    """Two cart-poles swing their poles up and balance them while a rope holds their carts together.

    Each has the contract of `cartpole-swingup` and senses its own joints only.

    Args:
        slack: greatest distance between the carts along the rails [m]; infinite for no rope.

    Raises:
        TaskError: the slack is not above 0.
    """
    if not slack > 0.0:
        raise TaskError(f"the slack of the rope is {slack} m, it must be above 0")
    task = replace(
        cartpole_swingup(), reset=_near_the_middle(hanging, slack), training_reset=_near_the_middle(anywhere, slack)
    )
    members = {"left": task, "right": task}
    side = 0.5 * RAILS_APART

    def tie(spec: mujoco.MjSpec) -> None:
        longest = math.hypot(RAILS_APART, slack)
        rope = spec.add_tendon(name="rope", limited=True, range=[0.0, longest], width=0.008, rgba=[0.1, 0.3, 0.8, 1.0])
        for member in members:
            spec.body(f"{member}_cart").add_site(name=f"{member}_hook")
            rope.wrap_site(f"{member}_hook")

    return Team(
        name="cartpoles-tethered",
        summary="two cart-poles, tied together by a rope, swing up and balance their poles",
        members=members,
        model=team_model(
            members,
            {"left": (0.0, side, 0.0), "right": (0.0, -side, 0.0)},
            couple=tie if math.isfinite(slack) else None,
        ),
        training=TRAINING,
    )


def _near_the_middle(start: ResetFunction, slack: float) -> ResetFunction:
    """A start whose carts are as much nearer to the middle as the rope needs: it does not tear at them at once."""
    share = min(1.0, slack)

    def nearer(draw: Uniforms) -> tuple[Array, Array]:
        qpos, qvel = start(draw)
        qpos[:, 0] *= share
        return qpos, qvel

    return nearer
