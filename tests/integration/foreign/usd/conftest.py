"""Robots in USD, written by hand, and what becomes of them."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mujoco
import pytest

from physai.sdk.base.errors import ModelError

HEAD = '#usda 1.0\n(\n    defaultPrim = "robot"\n    metersPerUnit = {metres}\n    upAxis = "{up}"\n{more})\n'


@dataclass(frozen=True, kw_only=True)
class Read:
    """A robot that was read."""

    model: Any
    decisions: dict[str, str]

    @property
    def data(self) -> Any:
        """Its state in the pose of the stage."""
        data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, data)
        return data


class Stages:
    """Writes stages, and reads them in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0

    def write(self, prims: str, *, metres: float = 1.0, up: str = "Z", more: str = "", name: str = "") -> Path:
        # OpenUSD keeps the files that it has read, so each has a name of its own.
        self.written += 1
        path = self.folder / (name or f"r{self.written}.usda")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD.format(metres=metres, up=up, more=more) + prims, encoding="utf-8")
        return path

    def read(self, prims: str, **head: Any) -> Read:
        return self.load(self.write(prims, **head))

    def load(self, path: Path) -> Read:
        from physai.foreign.usd.converter import converted

        text, decisions = converted(path, lambda facts: None)
        spec: Any = mujoco.MjSpec.from_string(text)
        return Read(model=spec.compile(), decisions=dict(decisions))

    def refusal(self, prims: str, **head: Any) -> str:
        with pytest.raises(ModelError) as caught:
            self.read(prims, **head)
        return str(caught.value)


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    if find_spec("mujoco._usd") is None:
        pytest.skip("mujoco-usd is not installed: pip install 'physai-sdk[usd]'")
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to the working folder
    return Stages(tmp_path)


@pytest.fixture
def body() -> Callable[..., str]:
    """A rigid body: its name, place, mass, inertia, and what is in it."""

    def made(
        name: str,
        at: tuple[float, float, float] = (0, 0, 0),
        *,
        mass: str = "float physics:mass = 2\n point3f physics:centerOfMass = (0, 0, 0)\n"
        "float3 physics:diagonalInertia = (0.1, 0.2, 0.25)",
        apis: str = "",
        kind: str = "Xform",
        more: str = "",
    ) -> str:
        return (
            f'def {kind} "{name}" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"{apis}])\n{{\n{mass}\n'
            f'double3 xformOp:translate = {at}\nuniform token[] xformOpOrder = ["xformOp:translate"]\n{more}\n}}\n'
        )

    return made


@pytest.fixture
def joint() -> Callable[..., str]:
    """A joint of a type between two bodies of /robot; an end without a body is the world's."""

    def made(
        kind: str,
        name: str,
        ends: tuple[str, str],
        *,
        axis: str = "Y",
        more: str = "",
        apis: str = "",
        places: tuple[tuple[float, ...], tuple[float, ...]] = ((0, 0, 0), (0, 0, 0)),
    ) -> str:
        lines = [f"rel physics:body{end} = </robot/{body}>" for end, body in enumerate(ends) if body]
        lines += [f"point3f physics:localPos{end} = {place}" for end, place in enumerate(places)]
        lines += [f'uniform token physics:axis = "{axis}"'] if kind in ("Revolute", "Prismatic", "Spherical") else []
        listed = f" (prepend apiSchemas = [{apis}])" if apis else ""
        return f'def Physics{kind}Joint "{name}"{listed}\n{{\n' + "\n".join([*lines, more]) + "\n}\n"

    return made


def robot_of(*prims: str, apis: str = '"PhysicsArticulationRootAPI"') -> str:
    listed = f" (prepend apiSchemas = [{apis}])" if apis else ""
    return f'def Xform "robot"{listed}\n{{\n' + "\n".join(prims) + "\n}\n"


@pytest.fixture
def robot() -> Callable[..., str]:
    """Prims below /robot, an articulation."""
    return robot_of
