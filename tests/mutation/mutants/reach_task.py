"""The task under the contract of its stored policies, which were trained under format 1."""

from dataclasses import replace
from pathlib import Path

from physai.sdk.contract.io import load_contract
from physai.sdk.policy.header import POLICY_FILE
from physai.sim.tasks.arms.reach import ur10e_reach
from physai.sim.tasks.task import Task

POLICY = Path(__file__).parents[2] / "data" / "policies" / "reach" / POLICY_FILE


def make_task() -> Task:
    """See `physai.sim.tasks.registry`."""
    return replace(ur10e_reach(), contract=load_contract(POLICY))
