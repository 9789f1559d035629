"""Contracts that the guard's tests count with."""

from typing import Any

import pytest
from tests.support.guard_driver import contract_of

from physai.sdk.contract.policy_contract import PolicyContract


@pytest.fixture
def pendulum(small_document: dict[str, Any]) -> PolicyContract:
    """One effort joint, ±2.5 N·m, 0.5 N·m per period of 10 ms, 15 rad/s, two reused commands, samples up to 20 ms."""
    small_document["action"]["terms"][0] |= {"kind": "joint_effort_incremental", "scale": [0.5]}
    return contract_of(small_document)


@pytest.fixture
def arm(full_document: dict[str, Any]) -> PolicyContract:
    """Incremental positions of elbow and shoulder, 0.03 rad per period of 20 ms, and effort of the slide."""
    full_document["action"]["terms"][0] |= {
        "kind": "joint_pos_incremental",
        "scale": [0.03, 0.03],
        "lower": [-1.5, -1.5],
        "upper": [1.5, 1.5],
    }
    return contract_of(full_document)
