"""A data folder and its database stay together; strangers are refused, and nothing of either is changed."""

import os
import re
from importlib import metadata
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from physai.compute.database import connect
from physai.sdk.base.errors import PhysaiError
from physai.service.database.engine import MIGRATIONS, open_database
from physai.service.database.store import STORE_FILE, bind_store, require_store
from physai.service.database.tables import EntryRow, StoreRow
from physai.service.jobs.queue import JobQueue
from physai.service.registry.blobs import BlobStore


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_database(f"sqlite:///{tmp_path}/service.db")


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def identifier(engine: Engine) -> str | None:
    with Session(engine) as session:
        return session.scalar(select(StoreRow.id))


def register(engine: Engine, sha256: str) -> None:
    with Session(engine) as session, session.begin():
        session.add(EntryRow(sha256=sha256, kind="policy", name="", version=1, facts="{}", size=1, created=0.0))


def test_new_ones_are_joined_and_may_move(tmp_path: Path, engine: Engine) -> None:
    data = folder(tmp_path / "data")
    bind_store(engine, data)
    assert (data / STORE_FILE).read_text("utf-8").strip() == identifier(engine)
    data.rename(tmp_path / "moved")
    bind_store(engine, tmp_path / "moved")
    require_store(engine, tmp_path / "moved")


def test_a_second_folder_is_refused(tmp_path: Path, engine: Engine) -> None:
    bind_store(engine, folder(tmp_path / "data"))
    second = folder(tmp_path / "second")
    for check in (bind_store, require_store):
        with pytest.raises(PhysaiError) as refused:
            check(engine, second)
        assert str(refused.value).startswith(
            f"the database sqlite:///{tmp_path}/service.db belongs to the store {(identifier(engine) or '')[:12]}, "
            f"the data folder {second} to none: "
        )
        assert not list(second.iterdir())
    other = open_database(f"sqlite:///{tmp_path}/other.db")
    bind_store(other, second)
    with pytest.raises(PhysaiError, match=f"to the store {(identifier(other) or '')[:12]}: what one names"):
        bind_store(engine, second)


def test_a_new_database_does_not_get_a_folder_with_files(tmp_path: Path, engine: Engine) -> None:
    data = folder(tmp_path / "data")
    BlobStore(data / "blobs").put(b"of another database")
    with pytest.raises(PhysaiError, match=r"belongs to no store, the data folder .* to none, though it holds files: "):
        bind_store(engine, data)
    assert identifier(engine) is None
    assert not (data / STORE_FILE).exists()


@pytest.mark.parametrize("stored", [True, False])
def test_those_of_an_older_version_are_joined_if_the_folder_has_what_the_database_names(
    tmp_path: Path, engine: Engine, stored: bool
) -> None:
    data = folder(tmp_path / "data")
    sha256 = BlobStore(data / "blobs").put(b"a policy")
    register(engine, sha256 if stored else "0" * 64)
    if stored:
        bind_store(engine, data)
        require_store(engine, data)
    else:
        with pytest.raises(PhysaiError, match="start with the --data and the --db that were used together before"):
            bind_store(engine, data)


def test_tables_of_an_older_version_are_brought_up_to_date(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    engine, config = connect(url), Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for number, spec in enumerate((f'{{"policy": "{"a" * 64}"}}', '{"task": "x"}')):
            values = f"'{number:016d}', 'validate', '{spec}', 'succeeded', 0, 0, 0, 1.0, '{{}}', ''"
            names = "id, kind, spec, state, attempt, crashes, cancel, created, result, submitted_by"
            connection.exec_driver_sql(f"INSERT INTO jobs ({names}) VALUES ({values})")
    data = folder(tmp_path / "data")
    BlobStore(data / "blobs").put(b"of that version")
    bind_store(open_database(url), data)
    jobs = JobQueue(open_database(url))
    assert [job["id"] for job in jobs.validations(["a" * 64])] == ["0" * 16]
    assert [job["id"] for job in jobs.all()] == [f"{1:016d}", "0" * 16]


def test_tables_of_a_newer_version_are_refused_in_one_sentence(tmp_path: Path, engine: Engine) -> None:
    with engine.begin() as connection:
        (before,) = connection.exec_driver_sql("SELECT version_num FROM alembic_version").one()
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(PhysaiError) as refused:
        open_database(f"sqlite:///{tmp_path}/service.db")
    assert str(refused.value) == (
        f"database sqlite:///{tmp_path}/service.db has tables of version 9999, and physai "
        f"{metadata.version('physai-sdk')} knows those up to version {before}: a newer physai has used it; install "
        "that one again, or restore a backup of database and data folder from before it"
    )


def test_jobs_do_not_go_to_an_empty_folder(tmp_path: Path, engine: Engine) -> None:
    JobQueue(engine).submit("play", {})
    with pytest.raises(PhysaiError, match="belongs to no store"):
        bind_store(engine, folder(tmp_path / "data"))


def test_a_start_that_was_killed_half_way_is_finished(tmp_path: Path, engine: Engine) -> None:
    data = folder(tmp_path / "data")
    (data / STORE_FILE).write_text("0123456789abcdef" * 2, "utf-8")
    bind_store(engine, data)
    assert identifier(engine) == "0123456789abcdef" * 2


def test_a_damaged_identifier_is_reported(tmp_path: Path, engine: Engine) -> None:
    data = folder(tmp_path / "data")
    (data / STORE_FILE).write_text("mine", "utf-8")
    with pytest.raises(PhysaiError, match=re.escape(f"{data}/store holds 'mine', which is no identifier")):
        bind_store(engine, data)


def test_unfinished_uploads_go_with_the_next_start_and_others_with_time(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    incoming = tmp_path / "blobs" / "incoming"
    for name in ("upload-1", "put-1", "put-2"):
        (incoming / name).write_bytes(b"half")
    os.utime(incoming / "put-1", (0, 0))
    blobs.clear_incoming(uploads=False)
    assert {path.name for path in incoming.iterdir()} == {"upload-1", "put-2"}
    blobs.clear_incoming(uploads=True)
    assert {path.name for path in incoming.iterdir()} == {"put-2"}


def test_an_adoption_that_was_interrupted_is_completed(tmp_path: Path, engine: Engine) -> None:
    """The folder has its identifier, and the process died before the database had it."""
    data, known = folder(tmp_path / "data"), "1" * 32
    (data / STORE_FILE).write_text(f"{known}\n")
    (data / "blobs" / "aa").mkdir(parents=True)
    (data / "blobs" / "aa" / ("a" * 64)).touch()
    register(engine, "b" * 64)
    with pytest.raises(PhysaiError, match="belongs to no store"):
        bind_store(engine, data)
    register(engine, "a" * 64)
    bind_store(engine, data)
    assert identifier(engine) == known
    require_store(engine, data)
