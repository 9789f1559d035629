"""Options that several verbs share, as classes whose fields are options (`Option(flatten=True)`).

They turn files into the objects that procedures take: keys (with a prompt for the passphrase), requirements and the
validators of a trust file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.parameters.option import Option
from physai.sdk.base.terminal import printable
from physai.sdk.cli.shared.key_files import key_of_role

if TYPE_CHECKING:
    from physai.sdk.evidence.requirements import Requirements
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey

RayAddress = Annotated[str | None, Option(bare="auto", metavar="ADDRESS")]
"""Type of the parameter `ray` of procedures that may run on a cluster: the option `--ray [ADDRESS]`."""


@dataclass(frozen=True, kw_only=True)
class ValidatorSigning:
    """A validator's key that signs a result.

    Attributes:
        key: validator's key that signs the result. None for ~/.config/physai/keys/validator.key, if there is one;
            without a signature, evidence of a robot counts as of unknown origin.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """

    key: Path | None = None
    passphrase_file: Path | None = None

    def signing_key(self) -> SigningKey | None:
        """The key, or the user's own; None, with a note on stderr, without a usable one.

        Raises:
            KeyFileError: the key of `--key` cannot be used.
        """
        from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError
        from physai.sdk.signing.files.user_keys import key_folder

        if self.key is None and not (key_folder() / f"validator{PRIVATE_SUFFIX}").exists():
            return None
        try:
            return key_of_role("validator", self.key, self.passphrase_file)
        except KeyFileError as error:
            if self.key is not None:
                raise
            print(printable(f"not signed: {error}"), file=sys.stderr)
            return None


@dataclass(frozen=True, kw_only=True)
class TrustedValidators:
    """Validators whose signed evidence counts.

    Attributes:
        trust: trust file whose validators may have signed twin and tick times. None for
            ~/.config/physai/keys/trust.json.
    """

    trust: Path | None = None

    def keys(self) -> tuple[PublicKey, ...]:
        """Keys of the validators; see `trusted_validators`."""
        from physai.sdk.signing.files.user_keys import trusted_validators

        return trusted_validators(self.trust)


@dataclass(frozen=True, kw_only=True)
class RequirementOptions:
    """A robot's requirements on verdicts.

    Attributes:
        settings: the robot's requirements on verdicts, JSON. None for every gate.
        accept: further origins of evidence that the robot accepts: stand-in, computer, unknown. None for robot only.
    """

    settings: Path | None = None
    accept: Annotated[str | None, Option(metavar="KIND,…")] = None

    def requirements(self) -> Requirements | None:
        """The requirements; None if neither option is given.

        Raises:
            RequirementsError, OriginError: an option is malformed.
        """
        from physai.sdk.evidence.origin import parse_accepted
        from physai.sdk.evidence.requirements import Requirements

        if self.settings is None and self.accept is None:
            return None
        requirements = Requirements() if self.settings is None else Requirements.load(self.settings)
        if self.accept is None:
            return requirements
        return requirements.model_copy(update={"accept": parse_accepted(self.accept, option="--accept")})
