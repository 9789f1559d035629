"""Database or disk go away under a working service and come back: no job, upload or session suffers."""

from pathlib import Path

import pytest
from tests.support.outages import STORES, may_mount, play_outages
from tests.support.service import postgres_folder

FEW = {"postgresql-ends": 7, "postgresql-hangs": 6, "disk-full": 7}
MANY = {"postgresql-ends": 67, "postgresql-hangs": 67, "disk-full": 66}


def require(kind: str, folder: Path) -> None:
    if kind == "disk-full" and not may_mount(folder):
        pytest.skip("a small disk needs the right to mount a tmpfs, which this process has not")
    if kind != "disk-full" and postgres_folder() is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_outages_cost_nothing(tmp_path: Path, kind: str) -> None:
    require(kind, tmp_path)
    assert len(play_outages(tmp_path, kind, FEW[kind], longest_s=20.0, seed=1)) == FEW[kind]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", STORES)
def test_200_outages_of_up_to_a_minute_cost_nothing(tmp_path: Path, kind: str) -> None:
    require(kind, tmp_path)
    assert len(play_outages(tmp_path, kind, MANY[kind], longest_s=60.0, seed=2)) == MANY[kind]
