"""Tick records made by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.patience import PATIENCE_S

from physai.deploy_jetson.telemetry.flight import recorder as flight_recorder
from physai.deploy_jetson.ticks.tick_ring import TICK_DTYPE, Ticks

PERIOD_NS = 10_000_000
DEADLINE_NS = 5_000_000

MakeTicks = Callable[..., Ticks]


@pytest.fixture(autouse=True)
def patient_with_the_last_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder's process is a nice one: on a busy machine it waits for all others."""
    monkeypatch.setattr(flight_recorder, "PATIENCE_S", PATIENCE_S)


@pytest.fixture
def make_ticks() -> MakeTicks:
    """Makes records at 100 Hz; a keyword is a column, as one value or one per tick."""

    def make(count: int, *, first: int = 0, late_ns: Any = 0, **columns: Any) -> Ticks:
        ticks = np.zeros(count, TICK_DTYPE)
        ticks["tick"] = first + np.arange(count)
        for name in ("sensor_age_ns", "inference_ns", "guard_ns", "send_ns", "whole_ns"):
            ticks[name] = 1000
        for name, values in columns.items():
            ticks[name] = values
        due = ticks["tick"] * PERIOD_NS
        ticks["deadline_ns"], ticks["woke_ns"] = due + DEADLINE_NS, due + late_ns
        return ticks

    return make
