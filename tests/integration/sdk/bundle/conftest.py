"""Fixtures of these tests; see `tests.support.fixtures_bundle`."""

from tests.support.fixtures_bundle import complete, make_golden, make_onnx, make_verdict, now, workshop

__all__ = ["complete", "make_golden", "make_onnx", "make_verdict", "now", "workshop"]
