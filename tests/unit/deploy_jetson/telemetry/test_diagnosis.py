"""A runtime's status in the words of ROS 2's diagnostics."""

from typing import Any

import pytest

from physai.deploy_jetson.telemetry.diagnosis import MAX_VALUES, diagnose
from physai.transport.dds.diagnostics import Level

ACTIVE = {"lifecycle": "active", "guard": "RUN", "why": "", "unsafe_no_verdict": False}


@pytest.mark.parametrize(
    ("status", "level", "message"),
    [
        ({}, Level.OK, "unconfigured"),
        ({"lifecycle": "inactive"}, Level.OK, "inactive"),
        ({"lifecycle": "inactive", "waiting_for": "joint_pos"}, Level.WARN, "inactive: waiting for joint_pos"),
        (ACTIVE, Level.OK, "RUN"),
        (ACTIVE | {"guard": "HOLD", "why": "sensor stale"}, Level.WARN, "HOLD: sensor stale"),
        (ACTIVE | {"guard": "DAMP"}, Level.ERROR, "DAMP"),
        (ACTIVE | {"guard": "PROTECTIVE_STOP"}, Level.ERROR, "PROTECTIVE_STOP"),
        (ACTIVE | {"unsafe_no_verdict": True}, Level.WARN, "RUN: NO VALID VERDICT"),
        (ACTIVE | {"guard": "DAMP", "unsafe_no_verdict": True}, Level.ERROR, "DAMP: NO VALID VERDICT"),
        (ACTIVE | {"guard": "something new"}, Level.ERROR, "something new"),
    ],
)
def test_levels(status: dict[str, Any], level: Level, message: str) -> None:
    found = diagnose(status)
    assert (found.level, found.message) == (level, message)


def test_facts_are_flat_and_bounded() -> None:
    found = diagnose(ACTIVE | {"stages_us": {"guard": {"p50": 12.3456789}}, "list": [1, 2], "ticks": 7})
    assert found.values["stages_us.guard.p50"] == "12.3457"
    assert found.values["ticks"] == "7"
    assert "list" not in found.values
    assert len(diagnose({str(n): n for n in range(1000)}).values) == MAX_VALUES
