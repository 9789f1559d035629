"""Fixtures of these tests; see `tests.support.fixtures_telemetry`."""

from tests.support.fixtures_telemetry import make_ticks, patient_with_the_last_file

__all__ = ["make_ticks", "patient_with_the_last_file"]
