"""Rules of a robot for the word of validators: sources, greatest age, and the end of a policy that lost its verdict."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from physai.sdk.contract.robot import Frozen

OnRevoked = Literal["finish", "hold", "back"]
"""`finish`: HOLD to a standstill, then end the run. `hold`: HOLD, until another policy is active. `back`: as `hold`,
and the version before is activated, if its verdict is not revoked."""

OnStale = Literal["warn", "finish", "hold"]


def _is_source(text: str) -> str:
    if not text.startswith(("/", "http://", "https://")):
        raise ValueError("give an absolute path of a file or folder, or a URL that begins with http:// or https://")
    return text


StatusSource = Annotated[str, Field(max_length=1024, pattern=r"^[!-~]+$"), AfterValidator(_is_source)]
"""A file, a folder, or a URL."""


class StatusRules(Frozen):
    """Rules for status documents, in a robot's settings."""

    sources: Annotated[tuple[StatusSource, ...], Field(max_length=8)] = ()
    """Places that are asked for status documents."""
    poll_s: Annotated[float, Field(ge=0.1, le=86400.0)] = 1.0
    """Period of asking [s]."""
    max_age_s: Annotated[float, Field(ge=1.0, le=1e9)] | None = None
    """Greatest age of the newest word with which a policy may run [s]; None for any, and for no word at all."""
    on_revoked: OnRevoked = "hold"
    """End of a policy whose verdict was revoked, or whose robot left the conditions to which it was narrowed."""
    drive_after_revoked: Annotated[bool, Field(exclude_if=lambda drives: not drives)] = False
    """Whether a robot that drives after a boot does so, too, if a verdict was revoked on it and no operator has had it
    driven since; left out of the document if not."""
    on_stale: OnStale = "hold"
    """What follows once the word is too old; `warn` only says so."""

    def stricter(self, max_age_s: float | None) -> Self:
        """These rules, with a greatest age that is at most `max_age_s` [s]; None changes nothing."""
        ages = [age for age in (self.max_age_s, max_age_s) if age is not None]
        return self.model_copy(update={"max_age_s": min(ages, default=None)})
