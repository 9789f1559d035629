"""Parameters of the policy node: types, bounds, what may change when, and what they come to."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.ros.parameters import (
    PARAMETERS,
    ParameterError,
    Value,
    check,
    check_change,
    run_options,
    transport_options,
)

DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items()}


def test_the_defaults_drive_on_any_machine() -> None:
    options = run_options(DEFAULTS)
    assert options.stand_by
    assert options.realtime.priority is None
    assert options.realtime.cpu is None
    assert options.rate_hz is None
    assert options.heartbeat_s is None
    assert not options.unsafe_no_verdict
    assert transport_options(DEFAULTS) == {}


def test_what_is_given_counts() -> None:
    given: dict[str, Value] = {"root": "/robot", "priority": 80, "cpu": 3, "rate": 100.0, "heartbeat_s": 0.5}
    options = run_options({**DEFAULTS, **given})
    assert options.root == Path("/robot")
    assert (options.realtime.priority, options.realtime.cpu) == (80, 3)
    assert (options.rate_hz, options.heartbeat_s) == (100.0, 0.5)
    assert transport_options({**DEFAULTS, "binding": "my.yaml"}) == {"binding": "my.yaml"}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("priority", 99, "99 is outside 0 to 98"),
        ("priority", True, "expected an integer from 0 to 98"),
        ("cpu", 1.0, "expected an integer from -1 to 1023"),
        ("rate", 100, "100 is a int, expected a number with a decimal point from 0 to 10000"),
        ("rate", math.nan, "nan is outside"),
        ("heartbeat_s", -1.0, "-1.0 is outside 0 to 3600"),
        ("root", "a\x1b[2Jb", "not a path"),
        ("unsafe_no_verdict", "yes", "expected true or false"),
    ],
)
def test_bad_values_are_refused(name: str, value: Value, told: str) -> None:
    with pytest.raises(ParameterError, match=told.replace("[", r"\[")):
        check(name, value)
    with pytest.raises(ParameterError):
        run_options({**DEFAULTS, name: value})


@given(st.sampled_from([n for n, p in PARAMETERS.items() if isinstance(p.default, float)]), st.floats())
def test_no_number_beyond_its_bounds(name: str, value: float) -> None:
    parameter = PARAMETERS[name]
    if math.isfinite(value) and parameter.lower <= value <= parameter.upper:
        check(name, value)
    else:
        with pytest.raises(ParameterError):
            check(name, value)


def test_only_some_change_while_a_policy_is_loaded() -> None:
    check_change("priority", 80, loaded=False)
    check_change("activation_timeout_s", 9.0, loaded=True)
    with pytest.raises(ParameterError, match="priority takes effect at configure"):
        check_change("priority", 80, loaded=True)
    with pytest.raises(ParameterError, match="is outside"):
        check_change("activation_timeout_s", 0.0, loaded=True)
