"""Both kinds of database that the service can use."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import httpx._config
import pytest
from tests.support.service import postgres, postgres_folder

# A busy machine may need longer for an answer than httpx's 5 s. Its functions share this object as their default.
httpx._config.DEFAULT_TIMEOUT_CONFIG.read = 60.0  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Generator[str | None]:
    if request.param == "sqlite":
        yield None
        return
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, postgres(Path(folder), programs) as url:
        yield url
