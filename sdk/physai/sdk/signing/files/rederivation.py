"""Recomputes the verdict in a report folder from the record of its run, before a validator signs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.parameters.option import Option
from physai.sdk.base.plugins import contributions
from physai.sdk.signing.files.user_keys import key_folder, trusted_validators

if TYPE_CHECKING:
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.evidence.requirements import Requirements
    from physai.sdk.evidence.verdict import Verdict
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey

RECORDS = "physai.verdict_records"
"""Entry-point group of functions that recompute a verdict from the record of its run."""


@dataclass(frozen=True, kw_only=True)
class VerdictTerms:
    """Terms on which a validator recomputes a verdict and signs it.

    Attributes:
        robot: robot the verdict applies to: ur10e, or one unit ur10e/cell-3. None for every unit of the bundle's model.
        days: validity of the verdict in days.
        replay: batches of episodes to replay, or `all`.
        device: `--device` of the validation.
        task: task file of the verdict, if the task is not built in.
        model: MJCF or URDF of the robot, if it is not built in.
        trust: trust file whose validators may have signed twin and tick times. None for
            ~/.config/physai/keys/trust.json.
        requirements: the robot's requirements on verdicts; None for the defaults.
        say: receives the progress of the recomputation.
    """

    robot: Annotated[str | None, Option(metavar="NAME")] = None
    days: Annotated[float, Option(metavar="N")] = 90
    replay: Annotated[str | int, Option(metavar="N")] = "all"
    device: str = "cpu"
    task: str | None = None
    model: Annotated[Path | str | None, Option(metavar="FILE", old=("--robot-file",))] = None
    trust: Path | str | None = None
    requirements: Requirements | None = None
    say: Callable[[str], None] = lambda text: None


class Rederive(Protocol):
    """See `physai.gates.record.rederive`."""

    def __call__(
        self,
        report: Path,
        members: Mapping[str, bytes],
        *,
        task: str | None,
        robot: str | None,
        replays: int | None,
        device: str,
        validators: tuple[PublicKey, ...],
        tell: Callable[[str], None],
    ) -> Verdict: ...


def rederived(bundle: Bundle, report: Path | str, terms: VerdictTerms, key: SigningKey) -> Verdict:
    """The verdict in a report folder, recomputed from its record by the validator with this key.

    Raises:
        PhysaiError: the simulator is not installed, or the record gives another verdict.
    """
    from physai.sdk.signing.exam import JOURNAL_FILE, with_opened

    path = Path(report)
    plugins = contributions(RECORDS)
    if not plugins:
        raise MissingExtraError(
            "a verdict is recomputed before it is signed, which needs the simulator: pip install 'physai-sdk[sim]'"
        )
    rederive: Rederive = next(iter(plugins.values())).load()
    verdict = rederive(
        path if path.is_dir() else path.parent,
        bundle.members,
        task=terms.task,
        robot=None if terms.model is None else str(terms.model),
        replays=_replays(str(terms.replay)),
        device=terms.device,
        validators=(*trusted_validators(terms.trust), key.public_key("validator")),
        tell=terms.say,
    )
    if verdict.exam is None or verdict.exam.validator != key.key_id:
        return verdict
    return verdict.model_copy(update={"exam": with_opened(verdict.exam, key_folder() / JOURNAL_FILE)})


def _replays(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 6 and int(text) >= 1):
        raise PhysaiError(f"`replay` {text!r}: give a number of batches, at least 1, or all")
    return int(text)
