"""Fixtures of these tests; see `tests.support.fixtures_calibration`."""

from tests.support.fixtures_calibration import pendulum, record

__all__ = ["pendulum", "record"]
