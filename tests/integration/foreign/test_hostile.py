"""Two hundred hostile imports: each ends with an error of ours within 20 s, writes nothing, and runs nothing here."""

import io
import random
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from tests.integration.foreign.test_import import DESCRIPTION, SIZE, Plain, network
from tests.integration.foreign.test_torchscript import scripted
from torch import Tensor, nn

from physai.foreign import import_policy
from physai.sdk.base.errors import PhysaiError

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
LIMIT_S = 20.0


class Small(nn.Module):
    """A policy as TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIZE, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Endless(Small):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.sum() < 1e30):
            x = x * 1.0
        return self.layer(x)


class Huge(Small):
    def forward(self, x: Tensor) -> Tensor:
        big = torch.zeros([200000, 200000])
        return self.layer(x) + big.sum()


class Writing(Small):
    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, "written-by-a-policy")
        return self.layer(x)


class Mapping(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.from_file("written-by-a-policy", True, 12)


class Printing(Small):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(100_000):
            print("physai", x)
        return self.layer(x)


def folder(home: Path) -> Path:
    """A right policy, which is damaged then."""
    home.mkdir()
    network(home / "network.onnx")
    path = home / "physai.yaml"
    path.write_text(yaml.dump(DESCRIPTION, Dumper=Plain), encoding="utf-8")
    return path


TEXTS: list[str] = [
    "!!python/object/apply:os.system ['touch ran']",
    "network: !!python/object/apply:os.system ['touch ran']",
    "joints: !!python/object/new:subprocess.Popen [['touch', 'ran']]\nnetwork: network.onnx",
    "network: network.onnx\njoints: !!python/name:os.system",
    "network: /etc/passwd",
    "network: ../../../../etc/passwd",
    "network: .",
    "network: physai.yaml",
    "network: network.onnx\n" + "a: " + "[" * 5000,
    "network: network.onnx\na: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "network: network.onnx\njoints: &a [*a]",
    "network: network.onnx\ncontrol_dt: .nan",
    "network: network.onnx\ncontrol_dt: 1e400",
    "network: network.onnx\ncontrol_dt: " + "9" * 5000,
    "networks: [{file: ../network.onnx, reads: [{terms: [0]}]}]",
    "networks: [{file: network.onnx, reads: [{network: 3}]}]",
    "networks: [{file: network.onnx}]",
    "network: network.onnx\nmotion: {index: obs, position: x, orientation: y, quaternion: wxyz, body: base, lag: 0}",
    "\x00\x01\x02",
    "network: [network.onnx]",
    "network: 3",
    "? [a, b]\n: c\nnetwork: network.onnx",
]


def mutated(data: bytes, seed: int) -> bytes:
    """The same with a few bytes changed, left out or repeated."""
    draw = random.Random(seed)
    changed = bytearray(data)
    for _ in range(draw.randint(1, 12)):
        at = draw.randrange(max(1, len(changed)))
        kind = draw.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del changed[at : at + draw.randint(1, 64)]
        elif kind == 2:
            changed[at:at] = changed[at : at + draw.randint(1, 64)]
        else:
            del changed[at:]
    return bytes(changed)


def attempt(given: Path, home: Path, *, may_succeed: bool = False, **settings: Any) -> None:
    """Import it, and check how it ends."""
    before = set(home.rglob("*"))
    modules = set(sys.modules)
    start = time.monotonic()
    out = home / "run"
    said = ""
    try:
        import_policy(given, model="go2", out=out, settings=settings)
    except PhysaiError as error:
        said = str(error) or "nothing"
    succeeded = not said
    assert "Traceback" not in said
    assert len(said) < 3000
    assert may_succeed or not succeeded
    assert time.monotonic() - start < LIMIT_S + 20.0 * succeeded
    left = set(home.rglob("*")) - before
    assert succeeded or not left, left
    assert not (home / "ran").exists()
    assert not Path("written-by-a-policy").exists()
    assert not {name for name in set(sys.modules) - modules if name.startswith(("evil", "antigravity"))}


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_hostile_description_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder(tmp_path / "policy")
    path.write_text(text, encoding="utf-8")
    attempt(path, tmp_path)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_description_is_refused_or_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder(tmp_path / "policy")
    path.write_bytes(mutated(path.read_bytes(), seed))
    attempt(path, tmp_path, may_succeed=True)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_onnx_file_is_refused_or_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder(tmp_path / "policy")
    onnx_file = path.parent / "network.onnx"
    onnx_file.write_bytes(mutated(onnx_file.read_bytes(), seed))
    attempt(path, tmp_path, may_succeed=True)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_program_is_refused_or_still_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder(tmp_path / "policy")
    (path.parent / "network.pt").write_bytes(mutated(scripted(Small()), seed))
    path.write_text(path.read_text(encoding="utf-8").replace("network.onnx", "network.pt"), encoding="utf-8")
    attempt(path, tmp_path, may_succeed=True)


@pytest.mark.parametrize(
    "module", [Endless(), Huge(), Writing(), Mapping(), Printing()], ids=lambda module: type(module).__name__
)
def test_a_hostile_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: nn.Module) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("physai.foreign.body.torchscript.STEP_S", 10.0)
    path = folder(tmp_path / "policy")
    (path.parent / "network.pt").write_bytes(scripted(module))
    path.write_text(path.read_text(encoding="utf-8").replace("network.onnx", "network.pt"), encoding="utf-8")
    attempt(path, tmp_path, may_succeed=isinstance(module, Printing))


def pickled(home: Path) -> bytes:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (home / "ran",)

    data = io.BytesIO()
    library: Any = torch
    library.save({"model_state_dict": {"actor.0.weight": Evil()}}, data)
    return data.getvalue()


def zipped(home: Path) -> bytes:
    """An archive like that of a program, whose code is a bomb."""
    del home
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/version", "3")
        archive.writestr("archive/constants.pkl", b"\x80\x02.")
        archive.writestr("archive/data.pkl", b"0" * (512 << 20))
        archive.writestr("archive/code/__torch__.py", b"op_version_set = 1\n")
    return data.getvalue()


def nothing(home: Path) -> bytes:
    del home
    return b""


def random_bytes(home: Path) -> bytes:
    del home
    return np.random.default_rng(0).bytes(100_000)


@pytest.mark.parametrize("make", [pickled, zipped, random_bytes, nothing], ids=["pickle", "bomb", "noise", "empty"])
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".jit", ".onnx"])
def test_hostile_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], bytes], suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder(tmp_path / "policy")
    (path.parent / f"other{suffix}").write_bytes(make(tmp_path))
    text = path.read_text(encoding="utf-8").replace("network.onnx", f"other{suffix}")
    path.write_text(text, encoding="utf-8")
    attempt(path, tmp_path)


def external(location: str, length: str) -> Any:
    library: Any = onnx

    def make(model: Any) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = library.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", length)):
            tensor.external_data.add(key=key, value=value)

    return make


@pytest.mark.parametrize(
    "change",
    [
        external("/etc/passwd", "100"),
        external("../../../../../../etc/passwd", "100"),
        external("/dev/zero", "1000000000000"),
        external("/proc/self/mem", "100"),
        external("physai.yaml", "99999999999"),
        external("missing.data", "10"),
    ],
    ids=["root", "above", "device", "memory", "too long", "missing"],
)
def test_weights_elsewhere_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder(tmp_path / "policy")
    library: Any = onnx
    model = library.load(str(path.parent / "network.onnx"))
    change(model)
    (path.parent / "network.onnx").write_bytes(model.SerializeToString())
    attempt(path, tmp_path)
