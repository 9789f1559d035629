"""Segments of episodes: what is shown to raters, and what a reward model learns from."""

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Frozen

Floats = npt.NDArray[np.float32]
MAX_STEPS = 10_000
MAX_COLUMNS = 4096
MAX_TERMS = 64
MAX_NUMBERS = 1 << 22
"""Numbers of one segment, 16 MiB."""
MAX_DOCUMENT = 1 << 20
"""Characters of a document of a database, such as what a fit has learnt."""
REWARD = "reward"
"""The first term of every segment: the task's own reward."""


class PreferenceError(PhysaiError):
    """A preference database, an answer or a segment is not as it must be."""


class DatabaseError(PreferenceError):
    """A preference database cannot be read or written now, or what it holds is damaged."""


class SegmentLayout(Frozen):
    """Properties that all segments of a database share: one contract, one length, one set of terms."""

    task: Annotated[str, Field(max_length=256)]
    fingerprint: Annotated[str, Field(max_length=128)]
    """Of the contract."""
    step_dt: Annotated[float, Field(gt=0.0, le=10.0)]
    """Time between two steps [s]."""
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    qpos: Annotated[int, Field(ge=1, le=MAX_COLUMNS)]
    critic: Annotated[int, Field(ge=1, le=MAX_COLUMNS)]
    actions: Annotated[int, Field(ge=1, le=MAX_COLUMNS)]
    terms: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(min_length=1, max_length=MAX_TERMS)]
    seen: Annotated[tuple[Annotated[str, Field(max_length=256)], ...], Field(max_length=MAX_COLUMNS)] = ()
    """Names of the last critic inputs; see `physai.rlhf.answers.motion_features`."""

    @model_validator(mode="after")
    def _bounded(self) -> "SegmentLayout":
        if not self.steps * sum(self.widths) <= MAX_NUMBERS:
            raise ValueError(
                f"{self.steps} steps of {sum(self.widths)} numbers exceed {MAX_NUMBERS} numbers; use shorter segments"
            )
        if not len(set(self.seen)) == len(self.seen) <= self.critic:
            raise ValueError(
                f"{len(self.seen)} of {self.critic} critic inputs have names, some of them equal or too many"
            )
        return self

    @property
    def named(self) -> dict[str, int]:
        """Columns of the critic's inputs that have names."""
        first = self.critic - len(self.seen)
        return {name: first + index for index, name in enumerate(self.seen)}

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """Columns of positions, critic inputs, actions and terms."""
        return self.qpos, self.critic, self.actions, len(self.terms)

    def differences(self, other: "SegmentLayout") -> str:
        """The fields in which two differ, with both values."""
        mine, theirs = self.model_dump(), other.model_dump()
        both = {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}
        # Dozens of names would hide what differs.
        counted = {name: tuple(len(one) for one in two) for name, two in both.items() if name == "seen"}
        return ", ".join(f"{name} {a} and {b}" for name, (a, b) in {**both, **counted}.items())


@dataclass(frozen=True, kw_only=True)
class Segment:
    """T steps of one episode; all float32, first axis the step."""

    episode_seed: int
    start_step: int
    """Step of the episode at which it begins."""
    qpos: Floats
    """MuJoCo's generalised positions before each step, (T, nq): the motion to be shown."""
    critic: Floats
    """Critic inputs before each step, (T, C)."""
    action: Floats
    """Network outputs in [-1, 1], (T, A)."""
    terms: Floats
    """Value of each term of the layout after each step, per second, (T, K)."""


def encode(segment: Segment, layout: SegmentLayout) -> tuple[bytes, str]:
    """Compressed numbers, and the SHA-256 of what was compressed.

    Raises:
        PreferenceError: the shapes are not those of the layout, or a number is not finite.
    """
    parts = (segment.qpos, segment.critic, segment.action, segment.terms)
    for part, width in zip(parts, layout.widths, strict=True):
        if part.shape != (layout.steps, width):
            raise PreferenceError(f"a segment's part has shape {part.shape}, expected {(layout.steps, width)}")
    table = np.concatenate(parts, axis=1).astype("<f4")
    if not np.isfinite(table).all():
        raise PreferenceError(f"a segment of episode {segment.episode_seed} holds numbers that are not finite")
    data = table.tobytes()
    return zlib.compress(data, 6), hashlib.sha256(data).hexdigest()


def decode(data: bytes, layout: SegmentLayout, *, sha256: str, episode_seed: int, start_step: int) -> Segment:
    """Reads `encode` back.

    Raises:
        PreferenceError: the numbers are damaged, not finite or not of this layout.
    """
    columns = sum(layout.widths)
    size = 4 * layout.steps * columns
    try:
        # One byte more than expected: a bomb is not expanded, and a surplus is noticed.
        raw = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise PreferenceError(f"a segment is damaged: {error}") from error
    if len(raw) != size or hashlib.sha256(raw).hexdigest() != sha256:
        raise PreferenceError(f"a segment is damaged: {len(raw)} bytes, expected {size} with SHA-256 {sha256}")
    table = np.frombuffer(raw, "<f4").reshape(layout.steps, columns).astype(np.float32)
    if not np.isfinite(table).all():
        raise PreferenceError(f"a segment of episode {episode_seed} is damaged: it holds numbers that are not finite")
    qpos, critic, action, terms = np.split(table, np.cumsum(layout.widths)[:-1], axis=1)
    return Segment(
        episode_seed=episode_seed, start_step=start_step, qpos=qpos, critic=critic, action=action, terms=terms
    )


def parse_layout(text: str) -> SegmentLayout:
    """Reads a layout from JSON.

    Raises:
        PreferenceError: it is malformed.
    """
    try:
        return SegmentLayout.model_validate_json(text)
    except ValidationError as error:
        raise PreferenceError(f"the database's layout is damaged: {error.errors()[0]['msg']}") from error


def parse_object(text: str) -> dict[str, Any]:
    """Reads a JSON object of a database.

    Raises:
        PreferenceError: it is none, or too long.
    """
    if not len(text) <= MAX_DOCUMENT:
        raise PreferenceError(f"a document of the database is longer than {MAX_DOCUMENT} characters")
    try:
        found: Any = json.loads(text)
        # Numbers that are not finite have no place in an answer of the service.
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise PreferenceError(f"a document of the database is no JSON: {text[:80]!r}") from error
    if not isinstance(found, dict):
        raise PreferenceError(f"a document of the database is no JSON object: {text[:80]!r}")
    return cast("dict[str, Any]", found)
