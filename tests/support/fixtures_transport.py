"""Contracts of the built-in robots, and a DDS domain on loopback that is this test run's own."""

import os
from collections.abc import Callable

import pytest

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.tasks.registry import load_task
from physai.transport.dds.domain import LOOPBACK

ContractOf = Callable[[str], PolicyContract]


@pytest.fixture(scope="session")
def contract_of() -> ContractOf:
    known: dict[str, PolicyContract] = {}

    def load(task: str) -> PolicyContract:
        if task not in known:
            known[task] = load_task(task).contract
        return known[task]

    return load


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> int:
    """Loopback only, in a domain that no other test run of this machine is likely to have."""
    number = 1 + os.getpid() % 100
    monkeypatch.setenv("CYCLONEDDS_URI", LOOPBACK)
    monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
    return number
