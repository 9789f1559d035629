"""The task under the contract of its stored policies, which were trained under format 1."""

from dataclasses import replace
from pathlib import Path

from physai.sdk.contract.io import load_contract
from physai.sdk.policy.header import POLICY_FILE
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.task import Task

POLICY = Path(__file__).parents[2] / "data" / "policies" / "cartpole-00" / POLICY_FILE


def make_task() -> Task:
    """See `physai.sim.tasks.registry`."""
    return replace(cartpole_swingup(), contract=load_contract(POLICY))
