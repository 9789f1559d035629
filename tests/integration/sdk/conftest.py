"""Fixtures of these tests; see `tests.support.fixtures_contract`."""

from tests.support.fixtures_contract import (
    contracts,
    full_contract,
    full_document,
    newest_contract,
    newest_document,
    small_contract,
    small_document,
)

__all__ = [
    "contracts",
    "full_contract",
    "full_document",
    "newest_contract",
    "newest_document",
    "small_contract",
    "small_document",
]
