"""Batches of episodes: request to and result from a worker process."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from physai.sdk.base.formats.canonical import sha256_hex
from physai.sim.engines.protocol import Array
from physai.sim.envs.rng import episode_seeds
from physai.twin.model.conditions import Condition

Arm = Literal["policy", "float", "quantised", "baseline", "reference"]
"""Which graph plays: the one under test, its float32 original, its quantised sibling, an older policy, or the one that
it was fine-tuned from."""

VERDICT_STREAM = 0x5EED_7E12D1C7
"""Seeds of the episodes that decide verdicts; training, evaluation, export and search never use them."""
TUNING_STREAM = 0x5EED_705E45C4
"""Seeds of the episodes of the falsification search; they never decide a verdict."""

_VISIT = "visit."


def stream_seed(stream: int, seed: int) -> int:
    """Combine one of the two streams with the user's seed."""
    return (stream + (seed << 40)) & 0xFFFFFFFFFFFFFFFF


def seeds_of(stream: int, first: int, count: int) -> tuple[int, ...]:
    """Return the seeds of `count` episodes of a stream, starting with number `first`."""
    worlds = np.arange(first, first + count)
    return tuple(int(seed) for seed in episode_seeds(stream, worlds, np.zeros_like(worlds)))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Episodes to play at once; the result does not depend on the process that plays them."""

    arm: Arm = "policy"
    condition: Condition
    seeds: tuple[int, ...]
    """Seed of each episode."""
    values: tuple[tuple[float, ...], ...] | None = None
    """Twin's parameters of each episode; None to draw them from the posterior with the episode's seed."""
    joint_pos_offset: tuple[tuple[float, ...], ...] | None = None
    """Constant offset of each episode's readings of the joint positions [rad or m]; None to draw it."""
    engine: str = "mujoco"
    visits: int = 0
    """Number of visited graph inputs to return."""
    early_s: float = 0.0
    """Time at which to record the joint positions [s]; 0 for never."""

    @property
    def key(self) -> str:
        """SHA-256 of the fields."""
        record = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "condition"}
        if self.joint_pos_offset is None:
            # Keys of batches without given offsets stay as they were.
            del record["joint_pos_offset"]
        return sha256_hex(json.dumps({**record, "condition": self.condition.as_json()}, sort_keys=True).encode())


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """Result of a batch: n episodes, J joints in the robot's order, P parameters of the twin."""

    success: Bools
    """Whether every judgement of an episode met the task's criterion, shape (n,)."""
    held: Array
    """Share of the episode in which the success condition was met, shape (n,)."""
    length_s: Array
    """Length of the episode [s], shape (n,)."""
    diverged: Bools
    """Whether the physics became non-finite, shape (n,)."""
    guard_state: Array
    """Highest `GuardState`, shape (n,)."""
    guard_reasons: Array
    """Bitwise or of the `Reason` flags of all control periods in which the guard intervened, shape (n,)."""
    guard_step: Array
    """First control period in which the guard intervened, -1 for none, shape (n,)."""
    guard_excess: Array
    """Maximum amount by which a command exceeded a limit [rad, m, N·m or N], shape (n,)."""
    broken_limits: Array
    """Joint limits that the true state violated: bit 0 position, bit 1 speed, bit 2 effort, shape (n,)."""
    broken_step: Array
    """First control period with a violated limit, -1 for none, shape (n,)."""
    pos_usage: Array
    """Maximum position, scaled to 0 at the middle of the range and 1 at a limit; NaN without limits, shape (n, J)."""
    vel_usage: Array
    """Maximum speed divided by its limit; NaN without a limit, shape (n, J)."""
    effort_usage: Array
    """Maximum commanded effort divided by its limit; NaN for position commands, shape (n, J)."""
    saturated: Array
    """Share of the control periods with a command at its bound, shape (n,)."""
    values: Array
    """Parameters of the twin, shape (n, P)."""
    lag_s: Array
    """Delay of commands [s], shape (n,)."""
    late: Array
    """Number of control periods whose command was late, shape (n,)."""
    early_pos: Array
    """Joint positions after `early_s`, NaN if not recorded, shape (n, J)."""
    visits: dict[str, Array] = field(default_factory=dict[str, Array])
    """Visited inputs of the graph by name, shape (visits, size)."""

    def __len__(self) -> int:
        return len(self.success)

    def fits(self, batch: Batch) -> bool:
        """Whether the arrays have the shapes of a result of this batch."""
        count = len(batch.seeds)
        arrays: list[Array] = [getattr(self, f.name) for f in fields(self) if f.name != "visits"]
        # A wrong type would turn `~success` into a bitwise negation of integers.
        is_yes_or_no = self.success.dtype == self.diverged.dtype == np.bool_
        return is_yes_or_no and all(array.ndim >= 1 and len(array) == count for array in arrays)

    @property
    def successes(self) -> int:
        """Number of episodes that succeeded."""
        return int(self.success.sum())

    @property
    def violated(self) -> Bools:
        """Episodes in which a limit was violated, the guard intervened or the physics diverged, shape (n,)."""
        return (self.guard_step >= 0) | (self.broken_step >= 0) | self.diverged

    def to_bytes(self) -> bytes:
        """Serialize as an .npz file."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "visits"}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays, **{_VISIT + name: value for name, value in self.visits.items()})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Deserialize what `to_bytes` wrote.

        Raises:
            ValueError: the bytes are not such a file.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                # No pickle: these bytes may come from a record that someone else wrote.
                arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise ValueError(str(error)) from error
        visits = {name.removeprefix(_VISIT): arrays.pop(name) for name in list(arrays) if name.startswith(_VISIT)}
        if set(arrays) != {f.name for f in fields(cls)} - {"visits"}:
            raise ValueError(f"unexpected arrays {', '.join(arrays)}")
        return cls(**arrays, visits=visits)


def joined(played: tuple[BatchResult, ...]) -> BatchResult:
    """Concatenate batches, including their visits."""
    names = [f.name for f in fields(BatchResult) if f.name != "visits"]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in played]) for name in names}
    keys: Mapping[str, Any] = played[0].visits
    visits = {key: np.concatenate([part.visits[key] for part in played]) for key in keys}
    return BatchResult(**arrays, visits=visits)
