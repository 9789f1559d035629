"""TorchScript files become graphs that compute the same, and none of them runs in this process or writes a file."""

import hashlib
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from physai.foreign.body.apart import read_body
from physai.foreign.body.diagnosis import diagnose
from physai.foreign.body.torchscript import convert_torchscript
from physai.sdk.base.process.isolation import ApartError

pytestmark = pytest.mark.slow
OBSERVATIONS, ACTIONS, WIDTH = 11, 4, 16


def scripted(module: nn.Module) -> bytes:
    library: Any = torch.jit
    data = io.BytesIO()
    library.save(library.script(module.eval()), data)
    return data.getvalue()


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(OBSERVATIONS, WIDTH), nn.ELU(), nn.Linear(WIDTH, ACTIONS))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Estimating(nn.Module):
    """An estimate from the whole history, with which the newest sample is completed."""

    def __init__(self) -> None:
        super().__init__()
        self.estimator = nn.Linear(3 * OBSERVATIONS, 7)
        self.actor = nn.Linear(OBSERVATIONS + 7, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.estimator(x)
        speed, latent = parts[..., :3], parts[..., 3:]
        latent = nn.functional.normalize(latent, dim=-1, p=2.0)
        # TorchScript knows no names of the module.
        return self.actor(torch.cat((x[:, :11], speed, latent), dim=1))


class Remembering(nn.Module):
    """An LSTM whose state is in buffers, as exporters of legged robots write it."""

    hidden_state: Tensor
    cell_state: Tensor

    def __init__(self, layers: int, start: float) -> None:
        super().__init__()
        self.memory = nn.LSTM(OBSERVATIONS, WIDTH, layers)
        self.actor = nn.Linear(WIDTH, ACTIONS)
        self.register_buffer("hidden_state", torch.full((layers, 1, WIDTH), start))
        self.register_buffer("cell_state", torch.zeros(layers, 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        out, (hidden, cell) = self.memory(x.unsqueeze(0), (self.hidden_state, self.cell_state))
        self.hidden_state[:] = hidden
        self.cell_state[:] = cell
        return self.actor(out.squeeze(0))


class Constant(nn.Module):
    """A normaliser whose numbers are of double precision, and no buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Plain().layers
        self.mean = torch.linspace(-1.0, 1.0, OBSERVATIONS, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers((x - self.mean).float())


class Gated(nn.Module):
    """A GRU whose state is assigned, and of an own shape."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(OBSERVATIONS, WIDTH)
        self.actor = nn.Linear(WIDTH, ACTIONS)
        self.register_buffer("state", torch.zeros(1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.cell(x, self.state)
        return self.actor(self.state)


def graph_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    facts, onnx = convert_torchscript(data, source="policy.pt", width=None)
    body, admitted = read_body(onnx, source="policy.pt", folder=None)
    assert "refused" not in body
    return facts, admitted


def run(graph: bytes, observations: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
    """Outputs of successive calls, shape (calls, rows, actions), with the memory fed back from zero."""
    session = onnxruntime.InferenceSession(graph)
    names = [value.name for value in session.get_inputs()]
    rows = observations.shape[1]
    hidden = {value.name: np.zeros((rows, value.shape[1]), np.float32) for value in session.get_inputs()[1:]}
    outputs: list[Any] = []
    for observation in observations:
        action, *after = session.run(None, {names[0]: observation, **hidden})
        hidden = dict(zip(hidden, after, strict=True))
        outputs.append(action)
    return np.array(outputs)


def program(data: bytes, observations: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
    """The same by the program itself, a fresh one for each row."""
    library: Any = torch.jit
    columns: list[Any] = []
    for row in range(observations.shape[1]):
        module = library.load(io.BytesIO(data)).eval()
        with torch.no_grad():
            columns.append([module(torch.tensor(each[row : row + 1])).numpy()[0] for each in observations])
    return np.array(columns).transpose(1, 0, 2)


@pytest.mark.parametrize(
    ("module", "width", "remembers"),
    [
        (Plain(), OBSERVATIONS, []),
        (Estimating(), 3 * OBSERVATIONS, []),
        (Remembering(1, 0.0), OBSERVATIONS, ["cell_state", "hidden_state"]),
        (Remembering(2, 0.3), OBSERVATIONS, ["cell_state", "hidden_state"]),
        (Gated(), OBSERVATIONS, ["state"]),
        (Constant(), OBSERVATIONS, []),
    ],
    ids=["plain", "estimator", "lstm", "two layers that begin elsewhere", "gru", "double precision"],
)
def test_a_program_becomes_a_graph_that_computes_the_same_over_successive_calls(
    module: nn.Module, width: int, remembers: list[str]
) -> None:
    data = scripted(module)
    facts, graph = graph_of(data)
    assert (facts["width"], facts["memory"]) == (width, remembers)
    observations = np.random.default_rng(1).standard_normal((20, 3, width)).astype(np.float32)
    np.testing.assert_allclose(run(graph, observations), program(data, observations), atol=1e-5)


class Random(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + torch.randn(1, 4)


class Saving(Plain):
    path: str

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, self.path)
        return self.layers(x)


class Looping(Plain):
    def forward(self, x: Tensor) -> Tensor:
        count = 0
        while count >= 0:
            x = x + 1e-9
            count = (count + 1) % 1000
        return self.layers(x)


class Branching(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        if bool(x[0, 0] > 0.1):
            y = -y
        return y


class ForOne(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.view(11)).view(1, 4)


class Two(Plain):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.layers(x + y)


class Counting(Plain):
    """It counts its calls, and there is no axis of one robot."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1.0
        return self.layers(x) * self.calls[0]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Random(), r"draws random numbers \(aten::randn\)"),
        (Branching(), "cannot be converted"),
        (ForOne(), r"takes one row, and not 4, one for each robot: .*; keep the number of rows where it sets a shape"),
        (Two(), "takes 2 inputs"),
        (Counting(), "remembers in calls, which has no axis of one robot"),
    ],
)
def test_a_program_that_is_no_plain_policy_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(ApartError, match=message):
        convert_torchscript(scripted(module), source="policy.pt", width=OBSERVATIONS)


def test_a_program_that_loops_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("physai.foreign.body.torchscript.STEP_S", 5.0)
    data = scripted(Looping())
    before = time.monotonic()
    with pytest.raises(ApartError, match=r"hung: no message for 5 s \(running the program\)"):
        convert_torchscript(data, source="policy.pt", width=OBSERVATIONS)
    assert time.monotonic() - before < 60.0


def test_a_program_that_writes_a_file_is_refused_before_it_runs(tmp_path: Path) -> None:
    target = tmp_path / "written"
    try:
        data = scripted(Saving(str(target)))
    except RuntimeError as error:
        pytest.skip(f"this torch cannot write such a program: {str(error)[:80]}")
    with pytest.raises(ApartError, match=r"the operator aten::save"):
        convert_torchscript(data, source="policy.pt", width=OBSERVATIONS)
    assert not target.exists()


def test_a_pickle_is_none(tmp_path: Path) -> None:
    """Such a file as a training run keeps, in which a pickle would run a command."""
    ran = tmp_path / "ran"

    class Running:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    library: Any = torch
    data = io.BytesIO()
    library.save({"model": Running()}, data)
    with pytest.raises(ApartError, match="not a TorchScript file"):
        convert_torchscript(data.getvalue(), source="policy.pt", width=OBSERVATIONS)
    assert not ran.exists()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_what_is_no_archive_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ApartError, match="not a TorchScript file"):
        convert_torchscript(data, source="policy.pt", width=OBSERVATIONS)


def test_an_observation_of_another_width_is_refused_with_it() -> None:
    with pytest.raises(ApartError, match="does not take an observation of 12 numbers"):
        convert_torchscript(scripted(Plain()), source="policy.pt", width=12)


def test_the_doctor_reads_it_too(tmp_path: Path) -> None:
    file = tmp_path / "policy.pt"
    file.write_bytes(scripted(Remembering(1, 0.0)))
    found = diagnose(file)
    assert found.admitted
    assert found.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert [(tensor.name, tensor.width) for tensor in found.inputs] == [("observation", 11), ("hidden", 2 * WIDTH)]
    assert found.changes[1] == "its memory (cell_state, hidden_state) is an input and an output"
