"""Fixtures of policies for a cart on a rail; see `tests.support.fixtures_gates`."""

from tests.support.fixtures_gates import bench, credible_twin, evidence_fixture, own_keys, task, write_policy

__all__ = ["bench", "credible_twin", "evidence_fixture", "own_keys", "task", "write_policy"]
