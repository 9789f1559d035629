"""Facts about preferences that a policy learned from, in its metadata and its verdict.

`physai finetune` writes one entry per field into the provenance of a run, `preferences.database` and so on, and
exported policies repeat them. The id of the run covers them: an exported policy states all of them or is refused.
"""

from collections.abc import Mapping
from typing import Annotated, Self

import rfc8785
from pydantic import Field, ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.contract.robot import Frozen, Sha256

PREFIX = "preferences."
"""Begins the entries of a provenance."""

RUN_FILE = "preferences"
"""Name under which a run's facts hold `entries_sha256`."""

Count = Annotated[int, Field(ge=0, le=10**9)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class StatedPreferencesError(PhysaiError):
    """The stated preferences are incomplete, malformed, or not those that the run was started with."""


class Preferences(Frozen):
    """Data, raters, reward model and reference of a policy, by hash."""

    database: Sha256
    """Of segments, pairs and answers, as `physai preferences status --json` prints it."""
    raters: Sha256
    """Of the database's hash and the names of those who counted; names are personal data and stay in the database."""
    reward_model: Sha256
    reference: Sha256 | None = Field(default=None, exclude_if=lambda reference: reference is None)
    """Of the policy file that was fine-tuned; left out if the policy learned by preferences alone."""
    answers: Count
    """Answers of these raters, those that cannot tell among them."""
    rater_count: Count
    simulated: Count
    """Raters that are simulated teachers by their names."""
    agreement: Annotated[float, Field(ge=-1.0, le=1.0)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Krippendorff's α of the raters; left out if no two answered the same pair."""
    held_out: Count
    """Answers that the reward model was tested with."""
    accuracy: Share | None = Field(default=None, exclude_if=lambda value: value is None)
    """Share of them that it predicts; left out if there are none."""
    accuracy_lower: Share | None = Field(default=None, exclude_if=lambda value: value is None)
    """Lower bound of the share, 95 % Clopper-Pearson interval."""
    accuracy_upper: Share | None = Field(default=None, exclude_if=lambda value: value is None)

    @classmethod
    def stated(cls, provenance: Mapping[str, str], *, source: str) -> Self | None:
        """Parse the entries of a provenance; None if it has none.

        Raises:
            StatedPreferencesError: an entry is missing or malformed.
        """
        entries = preference_entries(provenance)
        if not entries:
            return None
        try:
            return cls.model_validate_strings(
                {n: entries[PREFIX + n] for n in cls.model_fields if PREFIX + n in entries}
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            raise StatedPreferencesError(
                f"{source}: {PREFIX}{name}: {first['msg']} (got {first['input']!r:.80}); the run learned from "
                "preferences and was cut off, or the entry was changed: train it again"
            ) from None

    @property
    def entries(self) -> dict[str, str]:
        """The entries of a provenance that state this."""
        values = self.model_dump(mode="json")
        return {PREFIX + name: value if isinstance(value, str) else repr(value) for name, value in values.items()}


def preference_entries(provenance: Mapping[str, str]) -> dict[str, str]:
    """The entries of a provenance that are about preferences."""
    return {name: value for name, value in provenance.items() if name.startswith(PREFIX)}


def entries_sha256(provenance: Mapping[str, str]) -> str:
    """SHA-256 of these entries, as a run's facts hold it."""
    return sha256_hex(rfc8785.dumps(preference_entries(provenance)))


def require_as_started(provenance: Mapping[str, str], files: Mapping[str, str], *, source: str) -> None:
    """Check that a policy states all that its run was started with.

    Args:
        provenance: of the policy.
        files: of the facts of the run that it names.
        source: origin of the policy, for messages.

    Raises:
        StatedPreferencesError: an entry was changed, added or left out.
    """
    started, found = files.get(RUN_FILE), entries_sha256(provenance)
    if started is not None and found != started:
        raise StatedPreferencesError(
            f"{source}: what it states of preferences has SHA-256 {found}, but its run was started with {started}; "
            "entries were changed or left out: restore config.json and export the run again"
        )
