"""Values that a reader finds about a policy, with their sources, and how the user completes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from physai.foreign.description import GENERAL_QUESTIONS, OURS, QUESTIONS, PolicyDescription, lengths, unusable
from physai.foreign.errors import ForeignPolicyError, OpenQuestionsError
from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.plugins import contributions, load_plugin

if TYPE_CHECKING:
    from physai.foreign.body.networks import PolicyBody
    from physai.sdk.contract.policy_contract import PolicyContract


@dataclass(frozen=True, kw_only=True)
class PolicySource:
    """A policy as it is given to readers."""

    file: Path
    """The network's file, one that describes it, or their folder."""
    metadata: Mapping[str, str]
    """Metadata of the ONNX file; empty for a description."""
    inputs: tuple[str, ...] = ()
    """Names of the ONNX file's inputs."""


@dataclass(kw_only=True)
class PolicyReading:
    """Fields of a `PolicyDescription` that a reader found."""

    family: str
    network: Path
    """The ONNX or TorchScript file."""
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    """Where each value comes from: a file and a key, `code: …`, `inferred: …` or `user`."""
    contradictions: list[str] = field(default_factory=list[str])
    files: set[Path] = field(default_factory=set[Path])
    """Files that were read."""
    unread: list[str] = field(default_factory=list[str])
    """Statements of these files that mean nothing here, or that the reader does not know."""

    def state(self, name: str, value: Any, source: str) -> None:
        """Add a value; one that was stated before and differs is a contradiction."""
        if name in self.values and self.values[name] != value:
            self.contradictions.append(
                f"{name} is {_short(self.values[name])} ({self.sources[name]}) and {_short(value)} ({source})"
            )
            return
        self.values[name], self.sources[name] = value, source

    def body(self, contract: PolicyContract) -> PolicyBody | None:
        """Return the graph of a policy that is not the network's file alone; None for others."""
        del contract
        return None

    def complete(self, settings: Mapping[str, Any]) -> PolicyDescription:
        """Add what the user states, and return the whole description.

        Raises:
            ForeignPolicyError: values contradict each other, or one is not valid.
            OpenQuestionsError: one is missing.
        """
        for name, value in settings.items():
            if name not in PolicyDescription.model_fields:
                raise unknown_name("setting", name, PolicyDescription.model_fields)
            if name == "command" and _is_within(value, self.values.get(name)):
                # What is not judged is not allowed, and a policy may be judged for less than it was trained for.
                self.values[name], self.sources[name] = value, f"user, within {self.sources[name]}"
            elif name in OURS and name in self.values:
                self.values[name], self.sources[name] = value, f"user, in place of {self.sources[name]}"
            else:
                self.state(name, value, "user")
        for name, value in self.values.items():
            if wrong := unusable(value):
                raise ForeignPolicyError(f"{name} has {wrong} ({self.sources[name]}), expected finite numbers or names")
        self.contradictions += lengths(self.values)
        if self.contradictions:
            raise ForeignPolicyError("what is stated contradicts itself:\n  " + "\n  ".join(self.contradictions))
        needless = {"command"} if "motion" in self.values else set[str]()
        missing = [name for name in GENERAL_QUESTIONS if name not in self.values and name not in needless]
        if missing:
            raise open_questions(self.network, missing)
        document = json.dumps({"format_version": 1, **self.values})
        return _KIND.parse(PolicyDescription, document, source="the policy's description")


def _is_within(narrower: Any, stated: Any) -> bool:
    """Whether bounds of a command lie within others."""
    try:
        pairs = [
            (float(mine), float(theirs), sign)
            for sign, row, other in zip((1.0, -1.0), narrower, stated, strict=True)
            for mine, theirs in zip(row, other, strict=True)
        ]
    except (TypeError, ValueError):
        return False
    return all(sign * mine >= sign * theirs for mine, theirs, sign in pairs)


def open_questions(network: Path, names: Sequence[str], remark: str = "") -> OpenQuestionsError:
    """Return the error that asks for fields of a description by name."""
    lines = [f"{name}: {QUESTIONS[name]}; `settings` {name}=VALUE" for name in names]
    said = f"{network.name}: no file states these, and none of them is guessed{remark}:\n  "
    return OpenQuestionsError(said + "\n  ".join(lines), tuple(names))


_KIND = DocumentKind(
    name="description of a policy", format_version=1, max_bytes=1 << 20, max_depth=8, error=ForeignPolicyError
)

Reader = Callable[[PolicySource], PolicyReading | None]
"""Returns what it found; None for a policy of another family."""


def read(source: PolicySource, family: str | None) -> PolicyReading:
    """Read a policy with the reader of its family.

    Args:
        source: the policy.
        family: name of a reader; None to try all.

    Raises:
        ForeignPolicyError: no reader, or more than one, knows the policy, or the named one does not.
    """
    known = contributions("physai.policy_readers")
    found: dict[str, PolicyReading] = {}
    for name in known if family is None else [family]:
        reader = cast("Reader", load_plugin("physai.policy_readers", "family", name))
        try:
            reading = reader(source)
        except PhysaiError:
            raise
        except Exception as error:  # a reader meets files of all kinds, and may come from another package
            raise ForeignPolicyError(
                f"{source.file}: not as the reader {name} expects it: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        if reading is not None:
            found[name] = reading
    if len(found) == 1:
        return next(iter(found.values()))
    if family is not None:
        raise ForeignPolicyError(f"{source.file}: the reader {family} does not find what its family has")
    if found:
        raise ForeignPolicyError(f"{source.file}: more than one reader knows it; choose a `family`: {', '.join(found)}")
    raise ForeignPolicyError(
        f"{source.file}: no reader knows it ({', '.join(sorted(known))}); describe it in a physai.yaml, see "
        "docs/how-to/foreign-policy.md"
    )


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, skipkeys=True)
    return text if len(text) <= 80 else f"{text[:77]}…"
