"""The folder of a user for what can be made again."""

from pathlib import Path

import pytest

from physai.sdk.base.errors import DeviceError
from physai.sdk.base.user_cache import user_cache


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"PHYSAI_CACHE": "/own", "XDG_CACHE_HOME": "/shared"}, "/own/warp"),
        ({"XDG_CACHE_HOME": "/shared"}, "/shared/physai/warp"),
        ({"PHYSAI_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/one/.cache/physai/warp"),
    ],
)
def test_the_folder_follows_the_variables(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PHYSAI_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/one")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_cache("warp") == Path(folder)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PHYSAI_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    # A user number that no account has, as in containers.
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    with pytest.raises(DeviceError, match="set PHYSAI_CACHE to a folder"):
        user_cache("warp")
