"""Ray's environment variables do not outlive the cluster that they were set for."""

import os
import sys
from pathlib import Path

import pytest

from physai.compute.ray.ray_environment import restored_environment


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("physai.compute.ray.ray_environment._used", {})
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)


def test_what_was_set_changed_or_removed_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = dict(os.environ)
    with restored_environment():
        os.environ["RAY_JOB_ID"] = "1"
        os.environ["PYTHONBREAKPOINT"] = "ray.util.rpdb.set_trace"
        del os.environ["OMP_NUM_THREADS"]
    assert dict(os.environ) == before


def test_the_next_cluster_of_this_process_has_the_same_token_and_no_other_sees_it() -> None:
    with restored_environment():
        os.environ.setdefault("RAY_AUTH_TOKEN", "a" * 64)
    assert "RAY_AUTH_TOKEN" not in os.environ
    with restored_environment():
        assert os.environ["RAY_AUTH_TOKEN"] == "a" * 64
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize("where", ["variable", "file"])
def test_who_has_a_token_presents_it(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    if where == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "b" * 64)
    else:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("b" * 64)
    with restored_environment():
        assert os.environ["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_MODE" not in os.environ
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with restored_environment():
        assert os.environ["RAY_AUTH_MODE"] == "disabled"
