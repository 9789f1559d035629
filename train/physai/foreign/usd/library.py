"""OpenUSD's and MuJoCo's libraries, imported when a USD file is read."""

import importlib
from importlib.util import find_spec
from typing import Any

from physai.sdk.base.errors import MissingExtraError, ModelError

EXTRA = "pip install 'physai-sdk[usd]'"


def require_usd() -> None:
    """Check that USD files can be read here.

    Raises:
        MissingExtraError: `usd-core` or `mujoco-usd` is not installed.
    """
    for module, package in (("pxr", "usd-core"), ("mujoco._usd", "mujoco-usd")):
        if find_spec(module) is None:
            raise MissingExtraError(f"reading USD files needs {package}: {EXTRA}")


def pxr(name: str) -> Any:
    """Return a module of OpenUSD, such as `UsdPhysics`."""
    return importlib.import_module(f"pxr.{name}")


def refused(prim: Any, problem: str) -> ModelError:
    """Return the error for a problem with a prim, a property or a path."""
    path = prim.GetPath() if hasattr(prim, "GetPath") else prim
    return ModelError(f"{path}: {problem}")


def said(error: object) -> str:
    """Return the words of one of OpenUSD's errors, without the place in its source."""
    return " ".join(str(error).rpartition(" : ")[2].split()).strip("'\" ")[:300]
