"""How a motor's effort follows its command: dead time, time constant, gain and saturation put in are found again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.recorded_motor import recorded_motor

from physai.twin.logs.signals.response import effort_response, responding


def test_the_response_by_hand() -> None:
    """A step of 1 at 10 ms: nothing until 14 ms, 1 - 1/e of it 6 ms later."""
    time = np.array([0.0, 0.01, 0.02, 0.03])
    signal = responding(time, np.array([0.0, 1.0, 1.0, 1.0]), 0.004, 0.006)
    found = signal.sampled(np.array([0.0135, 0.014, 0.020, 0.030]))
    assert found[0] == 0.0
    assert found[1] == pytest.approx(0.0, abs=0.05)
    # The first step of 0.25 ms begins with the command's first effect.
    assert found[2] == pytest.approx(1.0 - np.exp(-1.0), abs=0.02)
    assert found[3] == pytest.approx(1.0 - np.exp(-16.0 / 6.0), abs=0.01)


@settings(max_examples=25, deadline=None)
@given(
    gain=st.floats(0.7, 1.2),
    dead_s=st.floats(0.0, 0.01),
    constant_s=st.floats(0.0, 0.008),
    seed=st.integers(0, 1000),
)
def test_what_was_put_in_is_found(gain: float, dead_s: float, constant_s: float, seed: int) -> None:
    (found,) = effort_response(recorded_motor(gain=gain, dead_s=dead_s, constant_s=constant_s, seed=seed))
    assert found is not None
    assert found.gain == pytest.approx(gain, abs=max(0.01, 4.0 * found.gain_std))
    assert found.lag.lag_s == pytest.approx(dead_s + constant_s, abs=0.002)
    assert found.effort_max is None
    # By chance at most: three standard deviations of noise.
    assert found.inertia < 2e-4
    assert found.period_s == pytest.approx(0.002)


def test_a_motor_that_lacks_effort_where_it_accelerates() -> None:
    """0.004 kg·m² at up to 39.5 rad/s²: 0.16 N·m of the 0.5 that are commanded, which are no lower gain."""
    (found,) = effort_response(recorded_motor(gain=1.0, dead_s=0.004, constant_s=0.003, inertia=0.004))
    assert found is not None
    assert found.inertia == pytest.approx(0.004, rel=0.03)
    assert found.gain == pytest.approx(1.0, abs=0.02)
    # At 33 Hz a swing of 1 Hz has no acceleration that parabolas over 30 ms could show.
    (slow,) = effort_response(recorded_motor(gain=1.0, dead_s=0.03, constant_s=0.0, inertia=0.004, period_s=0.03))
    assert slow is None or slow.inertia == 0.0


def test_a_motor_at_its_limit() -> None:
    """Commands of 1.5 N·m in a motor of 1 N·m: the limit is found, and does not count as a lower gain."""
    (found,) = effort_response(recorded_motor(gain=0.95, dead_s=0.004, constant_s=0.0, limit=1.0, size=1.5))
    assert found is not None
    assert found.effort_max == pytest.approx(1.0, abs=0.02)
    assert found.gain == pytest.approx(0.95, abs=0.02)


def test_nothing_is_said_of_motors_without_quick_commands() -> None:
    log = recorded_motor(gain=1.0, dead_s=0.005, constant_s=0.0)
    smooth = 0.5 * np.sin(2.0 * np.pi * 0.3 * log.time)[:, None]
    rng = np.random.default_rng(0)
    quiet = replace(log, command=smooth, joint_effort=smooth + 0.02 * rng.standard_normal(smooth.shape))
    assert effort_response(quiet) == (None,)
    assert effort_response(replace(log, joint_effort=None)) == (None,)
