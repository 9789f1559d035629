"""Field episodes: outcomes of recorded episodes on a robot and of their replays in its twin."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen, Label, Name, Sha256, require_unique
from physai.sdk.evidence.origin import RobotName, is_unit_of

FORMAT_VERSION = 1
MIN_EPISODES, MAX_EPISODES = 20, 10_000
"""Least number: that of the pairs of `physai.sdk.stats.prediction_powered`."""
MAX_FIELD_BYTES = 8 << 20


class FieldEpisodesError(PhysaiError):
    """A file of field episodes is malformed, or of another policy or robot."""


class FieldEpisode(Frozen):
    """One recorded episode and its replay."""

    episode: Name
    """Id, unique in the file."""
    segment: Label
    """`scheduled` for a segment that the recorder drew at random; no other kind counts in a rate."""
    success: bool
    """Whether the episode succeeded on the robot."""
    replay_success: bool
    """Whether its replay in the twin did: same start and commands of the task, parameters drawn as by the gates."""
    recording_sha256: Sha256
    """Of the recording's bytes."""


class FieldEpisodes(Frozen):
    """A random sample of the episodes of one policy on one robot, with their replays in its twin."""

    format_version: Literal[1] = FORMAT_VERSION
    policy_sha256: Sha256
    """Of the bytes of the ONNX file that ran."""
    contract_fingerprint: Sha256
    robot: RobotName
    """`ur10e/cell-3`"""
    episodes: Annotated[tuple[FieldEpisode, ...], Field(max_length=MAX_EPISODES)]

    @model_validator(mode="after")
    def _is_a_sample(self) -> Self:
        if len(self.episodes) < MIN_EPISODES:
            raise ValueError(
                f"{len(self.episodes)} episodes; at least {MIN_EPISODES} are needed, because with fewer the interval "
                "is not known to cover"
            )
        for one in self.episodes:
            if one.segment != "scheduled":
                raise ValueError(
                    f"episode {one.episode} is of a segment {one.segment!r}, not 'scheduled': recordings that an event "
                    "started are no random sample; leave them out"
                )
        require_unique("episode", (one.episode for one in self.episodes))
        require_unique("recording", (one.recording_sha256 for one in self.episodes))
        return self

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits."""
        return sha256_hex(canonical_json(self))

    def require_subject(self, policy_sha256: str, contract_fingerprint: str, model: str) -> None:
        """Require that these episodes are of a policy, under its contract, on a robot of its model.

        Raises:
            FieldEpisodesError: they are of another one.
        """
        remedy = "give episodes of the policy that is validated"
        if self.policy_sha256 != policy_sha256:
            raise FieldEpisodesError(
                f"the field episodes are of the policy with SHA-256 {self.policy_sha256}, validated is "
                f"{policy_sha256}; {remedy}"
            )
        if self.contract_fingerprint != contract_fingerprint:
            raise FieldEpisodesError(
                f"the field episodes ran under the contract {self.contract_fingerprint}, the policy has "
                f"{contract_fingerprint}; {remedy}"
            )
        if not is_unit_of(self.robot, model):
            raise FieldEpisodesError(
                f"the field episodes are of the robot {self.robot}, the policy is for {model}; {remedy} on such a robot"
            )


_KIND = DocumentKind(
    name="file of field episodes",
    format_version=FORMAT_VERSION,
    max_bytes=MAX_FIELD_BYTES,
    max_depth=4,
    error=FieldEpisodesError,
)


def load_field_episodes(path: Path | str) -> FieldEpisodes:
    """Load a file of field episodes.

    Raises:
        FieldEpisodesError: it cannot be read, is malformed, or contains an episode that does not count.
    """
    with oserror_as(FieldEpisodesError, f"{path}: cannot be read"):
        data = read_plain(Path(path), limit=MAX_FIELD_BYTES)
    return _KIND.parse(FieldEpisodes, data, source=str(path))


def save_field_episodes(episodes: FieldEpisodes, path: Path | str) -> None:
    """Write a file of field episodes atomically.

    Raises:
        FieldEpisodesError: it cannot be written.
    """
    with oserror_as(FieldEpisodesError, f"{path}: cannot be written"):
        write_atomic(Path(path), canonical_json(episodes))
