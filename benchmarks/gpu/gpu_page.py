"""Writes docs/notes/gpu.md: `python -m benchmarks.gpu.gpu_page FILE`.

FILE is the output of `python -m benchmarks gpu --json`.
"""

import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from physai.sdk.base.errors import PhysaiError

MAX_BYTES = 1_000_000
HEADER = ("Result", "Median", "Unit", "Range", "Runs", "Compared with")
NOT_MEASURED = "not measured: "
_VERSIONS = ("physai-sdk", "torch", "warp-lang", "mujoco", "mujoco-warp")
_INTRODUCTION = """# Benchmarks on a GPU

`make bench-gpu` measures and writes this page: from `python -m benchmarks gpu --json`, with mjlab in an environment
of its own. A result that needs a card says "not measured" where there is none.
"""
_EXPLANATIONS = """
- `syncs_per_step`, `launches_per_step`, `allocs_per_step.eager`: values of tensors that the host waits for, kernels of
  torch and Warp, and results of torch operations in memory of their own, in one step whose operations are launched one
  by one. Both libraries are counted by the same code, mjlab in a step in which an episode ends. Launches of the
  solver's loop depend on how many iterations it takes. On a GPU both replay kernels from CUDA graphs: physai all of a
  step's, mjlab its simulation's.
- `allocs_per_step.TASK`: memory that torch's allocator hands out in a step that is replayed as a CUDA graph.
- `bytes_per_world`, `most_worlds`: memory of the device environment for one more world, and how many such worlds fit a
  card.
- `env_over_raw.ROBOT.WORLDS`: environment steps per second, observations included, over those of `mujoco_warp.step`
  with as many physics steps, both replayed as CUDA graphs; each block of the physics alone starts from the
  environment's states.
- `env_over_mjlab`, `train_over_mjlab`: environment steps per second of the Go2 over those of mjlab's flat Go1 task,
  alone and with learning, with as many worlds, physics steps, network units, passes and minibatches.
- `seconds_to_success.TASK`: wall time of `physai train` until an evaluation without exploration succeeds often enough,
  confirmed in held-out episodes.
- `cold_start_s.TASK`: wall time of a `physai train` of one iteration, kernels compiled before.
"""


class _Result(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    name: str = Field(max_length=200)
    value: float | None
    unit: str = Field(max_length=40)
    peer: str | None = Field(default=None, max_length=400)
    runs: list[float] = Field(max_length=1000)
    missing: str | None = Field(default=None, max_length=2000)


class _Machine(BaseModel):
    model_config = ConfigDict(strict=True)
    date: str = Field(max_length=40)
    cpu: str = Field(max_length=200)
    gpus: list[str] = Field(max_length=64)
    versions: dict[str, str | None] = Field(max_length=100)


class _Document(BaseModel):
    model_config = ConfigDict(strict=True)
    machine: _Machine
    results: list[_Result] = Field(max_length=1000)


def page(document: str) -> str:
    """The page in Markdown.

    Args:
        document: what `python -m benchmarks gpu --json` printed.

    Raises:
        PhysaiError: it is something else.
    """
    if len(document) > MAX_BYTES:
        raise PhysaiError(f"results of {len(document)} characters; the longest that are read have {MAX_BYTES}")
    try:
        found = _Document.model_validate_json(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PhysaiError(f"not the output of `python -m benchmarks gpu --json`: {where}: {first['msg']}") from None
    machine = found.machine
    versions = ", ".join(f"{name} {machine.versions.get(name) or 'not installed'}" for name in _VERSIONS)
    facts = [
        ("Card", "; ".join(machine.gpus) or "none"),
        ("CPU", machine.cpu),
        ("Versions", versions),
        ("Date", machine.date),
    ]
    parts = (_table(("Machine", ""), facts), _table(HEADER, [_row(result) for result in found.results]))
    return "\n".join((_INTRODUCTION, *parts)) + _EXPLANATIONS


def _row(result: _Result) -> tuple[str, ...]:
    name, peer = f"`{result.name}`", result.peer or ""
    if result.value is None or not result.runs:
        return (name, NOT_MEASURED + (result.missing or "no runs"), result.unit, "", "", peer)
    spread = f"{_number(min(result.runs))} … {_number(max(result.runs))}" if len(result.runs) > 1 else ""
    return (name, _number(result.value), result.unit, spread, str(len(result.runs)), peer)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    try:
        with Path(sys.argv[1]).open(encoding="utf-8") as file:
            text = page(file.read(MAX_BYTES + 1))
    except (PhysaiError, OSError) as problem:
        sys.exit(str(problem))
    print(text, end="")
