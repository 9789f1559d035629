"""The mutation suite of the gates: a quick part in every run, the whole with `pytest -m mutation`."""

from pathlib import Path

import pytest

from physai.gates.checks import engine

HERE = Path(__file__).parent


# Before pytest itself leaves out what lacks the marker asked for.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long part out unless its marker is asked for; if nothing else is, the quick part has it too."""
    asked = str(config.getoption("markexpr"))
    skip = pytest.mark.skip(reason="part of the whole mutation suite: pytest -m mutation")
    for item in (item for item in items if item.path.is_relative_to(HERE)):
        if asked == "mutation":
            item.add_marker(pytest.mark.mutation)
        elif "mutation" not in asked and item.get_closest_marker("mutation"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _no_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine gate has tests of its own; here its kernels would be compiled for every robot."""
    from physai.sdk.base.errors import MissingExtraError

    def missing(name: str) -> None:
        raise MissingExtraError(f"the second engine {name} is not asked here")

    monkeypatch.setattr(engine, "load_engine", missing)
