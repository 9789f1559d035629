"""Reading of a policy whose network may be weights alone, with what stands next to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.foreign.body.checkpoints.ways_out import WAY_OUT
from physai.foreign.body.checkpoints.weights import ARCHIVE, convert_weights, is_weights
from physai.foreign.description import WEIGHTS_QUESTIONS, PolicyDescription
from physai.foreign.errors import ForeignPolicyError, OpenQuestionsError
from physai.foreign.readers.isaac.agent_file import agent_statement
from physai.foreign.readers.isaac.manager_terms import document
from physai.foreign.reading import PolicyReading, open_questions
from physai.sdk.base.file_names import MAX_POLICY_BYTES
from physai.sdk.base.files import read_bounded

if TYPE_CHECKING:
    from physai.foreign.body.networks import PolicyBody
    from physai.sdk.contract.policy_contract import PolicyContract

AGENT = "agent.yaml"
CHECKPOINTS = ("checkpoints", "nn")
"""Folders of a run in which skrl and rl_games keep them."""


@dataclass(kw_only=True)
class WeightsReading(PolicyReading):
    """Statements about a policy whose network may be weights alone."""

    weights: Mapping[str, Any] | None = None
    """Facts about the weights; None for a network with a graph."""
    observation_clip: float | None = None
    described: PolicyDescription | None = None

    def look(self, agent: Path | None = None) -> None:
        """Look into the network's file; if it holds weights alone, state what it and Isaac Lab's file next to it say.

        Args:
            agent: `agent.yaml` of the run; None to look for it.

        Raises:
            ForeignPolicyError: they contradict each other, or the weights need a normaliser that is in another file.
            ApartError: the weights cannot be read.
        """
        if not self.network.is_file() or "networks" in self.values:
            return
        data = read_bounded(self.network, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
        if not is_weights(data, self.network.suffix):
            return
        _require_no_normaliser(self.network)
        weights, _ = convert_weights(data, source=self.network.name, settings={})
        self.weights = weights
        for name, (value, source) in weights["stated"].items():
            self.state(name, value, f"{self.network.name}: {source}" if not source.startswith("code") else source)
        agent = agent or _agent(self.network)
        if agent is not None:
            self._state_agent(agent, weights)

    def _state_agent(self, agent: Path, weights: Mapping[str, Any]) -> None:
        found = agent_statement(document(agent) or {}, weights["library"], str(agent))
        self.files.add(agent)
        for name in ("activation", "squash", "output_limit"):
            if (entry := getattr(found, name)) is not None:
                self.state(name, entry[0], f"{AGENT}: {entry[1]}")
        normalised = bool(weights["normaliser"])
        for name, entry, own in (
            ("widths of the hidden layers", found.hidden, weights["hidden"]),
            ("whether observations are normalised", found.normalised, normalised),
        ):
            if entry is not None and entry[0] != own:
                self.contradictions.append(f"{name}: {entry[0]} ({AGENT}: {entry[1]}) and {own} ({self.network.name})")
        self.observation_clip = found.observation_clip

    def complete(self, settings: Mapping[str, Any]) -> PolicyDescription:
        """Add what the user states, and ask for what weights do not show."""
        stated = self.values.keys() | settings.keys()
        needed = [] if self.weights is None else [name for name in WEIGHTS_QUESTIONS if name not in stated]
        try:
            self.described = super().complete(settings)
        except OpenQuestionsError as error:
            raise open_questions(self.network, [*error.names, *needed]) from None
        if needed:
            raise open_questions(self.network, needed)
        return self.described

    def body(self, contract: PolicyContract) -> PolicyBody | None:
        """Return the graph of weights alone; None for a network with a graph."""
        from physai.foreign.body.networks import weights_body

        described = self.described
        if self.weights is None or described is None:
            for name in WEIGHTS_QUESTIONS:
                if name in self.values:
                    raise ForeignPolicyError(
                        f"{name} is {self.values[name]} ({self.sources[name]}), and {self.network.name} has a graph, "
                        "which shows it; leave it out"
                    )
            return None
        if described.motion is not None:
            raise ForeignPolicyError(f"`motion` is stated, which is looked up in a graph, not in weights; {WAY_OUT}")
        clip = self.observation_clip
        settings = {"activation": described.activation, "squash": described.squash, "observation_clip": clip}
        return weights_body(self.network, contract.observation_size, contract.action.size, settings)


def _agent(network: Path) -> Path | None:
    """Return the file of the run that the weights are of."""
    folder = network.resolve().parent
    home = folder.parent if folder.name in CHECKPOINTS else folder
    for file in (home / "params" / AGENT, home / AGENT):
        if file.is_file():
            if not file.resolve().is_relative_to(home):
                raise ForeignPolicyError(f"{file}: leads outside the run's folder")
            return file
    return None


def _require_no_normaliser(network: Path) -> None:
    """Refuse weights of Stable-Baselines3 with a pickle of `VecNormalize` next to them or in the folder of their name.

    Raises:
        ForeignPolicyError: there is one.
    """
    if network.suffix.lower() != ARCHIVE:
        return
    for folder in (network.parent, network.with_suffix("")):
        for file in islice(folder.glob("*ormalize*.pkl"), 1):
            raise ForeignPolicyError(
                f"{file}: a pickle, such as VecNormalize writes to normalise observations; a pickle is a program, and "
                f"none is read. With its normaliser inside, {WAY_OUT}"
            )
