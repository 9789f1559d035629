"""A module that is missing is installed by the extra that the message names."""

import pytest

from physai.sdk.base.extras import extra_with, missing_extra, requirements


@pytest.mark.parametrize(
    ("module", "preferred", "extra"),
    [
        ("torch", "sim", "train"),  # the simulator's verbs prefer `sim`, which does not have it
        ("mujoco", "sim", "sim"),
        ("mujoco", "train", "train"),
        ("yaml", "robot", "robot"),
        ("mujoco_warp", None, "sim"),
        ("ray", "train", "cluster"),
        ("fastapi", "sim", "serve"),
        ("no_such_library", "sim", "sim"),
        ("no_such_library", None, None),
    ],
)
def test_the_extra_that_has_a_module(module: str, preferred: str | None, extra: str | None) -> None:
    assert extra_with(module, preferred) == extra


def test_the_message_names_what_is_missing_and_the_way_out() -> None:
    error = missing_extra("sim", ModuleNotFoundError(name="torch._subclasses"), preferred="sim")
    assert str(error) == "sim needs torch._subclasses, which is not installed: pip install 'physai-sdk[train]'"
    error = missing_extra("count", ModuleNotFoundError(name="no_such_library"))
    assert str(error) == "count needs no_such_library, which is not installed: install what provides no_such_library"


def test_requirements_by_extra() -> None:
    lines = ["numpy>=1.26", "torch>=2.9; extra == 'train'", "physai-sdk[sim]; extra == 'train'", "uv ; extra=='dev'"]
    assert requirements(lines) == {"": ["numpy"], "train": ["torch"], "dev": ["uv"]}


def test_a_module_of_the_standard_library_is_in_no_extra() -> None:
    """Root's setup under a Python that the service's account may not read said: pip install what provides _strptime."""
    error = missing_extra("robot setup", ModuleNotFoundError(name="_strptime"))
    assert "robot setup needs _strptime of Python's standard library" in str(error)
    assert "pip install" not in str(error)
