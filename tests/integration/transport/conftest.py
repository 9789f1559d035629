"""Fixtures of these tests; see `tests.support.fixtures_transport`."""

from tests.support.fixtures_transport import contract_of, domain

__all__ = ["contract_of", "domain"]
