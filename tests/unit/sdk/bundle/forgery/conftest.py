"""The forger of `python -m benchmarks forgery`, at the work of the tests' own keys."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.harness.forgery.forger import Forger, Parts, archive

Workshop = Any


@pytest.fixture(scope="session")
def make_forger(workshop: Workshop) -> Callable[[int], Forger]:
    """A forger by the seed of what he draws."""
    originals = (workshop.complete(), workshop.complete(version=9), workshop.complete(task="balance"))
    return lambda seed: Forger(originals, workshop.publisher, workshop.validator, seed)


@pytest.fixture(scope="session")
def make_archive() -> Callable[[Parts], bytes]:
    """`archive`."""
    return archive
