"""Two services with different data folders do not share a database."""

import tempfile
from pathlib import Path

import pytest
from tests.support.service import postgres_folder, running_postgres

from physai.sdk.base.errors import PhysaiError
from physai.sim.service.database.engine import open_database
from physai.sim.service.database.store import bind_store
from physai.sim.service.process import ServiceProcess


@pytest.mark.slow
def test_in_postgresql_the_second_folder_is_refused(tmp_path: Path) -> None:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as home, running_postgres(Path(home), programs) as server:
        engine = open_database(server.url)
        (tmp_path / "one").mkdir()
        bind_store(engine, tmp_path / "one")
        bind_store(engine, tmp_path / "one")
        with pytest.raises(
            PhysaiError, match=r"belongs to the store .* to none: .* start with the --data and the --db"
        ):
            ServiceProcess(tmp_path / "two", database=server.url).start()
        engine.dispose()
