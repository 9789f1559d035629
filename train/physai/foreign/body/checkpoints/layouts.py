"""Layouts of checkpoints: which of their tensors are the actor's, and what their library computes with them.

- rsl_rl: (x - mean) / (std + 0.01), the actor's output is its action (`modules/normalization.py`,
  `modules/distribution.py`).
- rl_games: (x - mean) / √(variance + 1e-5) within ±5 (`algos_torch/running_mean_std.py`).
- skrl: (x - mean) / (√variance + 1e-8) within ±5 (`resources/preprocessors/torch/running_standard_scaler.py`).
- Stable-Baselines3: PPO's and A2C's actions are clipped to the action space, SAC's and TD3's are a tanh scaled to it
  (`common/policies.py`, `sac/policies.py`, `td3/policies.py`).

Everything here runs in a child process: the file is a stranger's.
"""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physai.foreign.body.checkpoints.ways_out import WAY_OUT
from physai.foreign.errors import ForeignPolicyError

SHOWN = 12
"""Names in a message."""
LSTM, GRU = "lstm", "gru"
GATES = {4: LSTM, 3: GRU}
"""Recurrent layers by the number of their gates."""


@dataclass(frozen=True, kw_only=True)
class WeightsLayout:
    """Names of a library's tensors, see `layouts.toml`; an empty name is that of nothing."""

    library: str
    roots: tuple[str, ...] = ("",)
    hidden: str
    last: str = ""
    optional_last: bool = False
    spread: str = ""
    memory: str = ""
    memory_norm: str = ""
    places: bool = False
    normaliser: str = ""
    others: str = "(?!)"
    squash: str = ""


RSL = "rsl_rl"
_TABLE: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["layouts"]
LAYOUTS = tuple(WeightsLayout(**row) for row in _TABLE)


@dataclass(frozen=True, kw_only=True)
class MemoryPlace:
    """Place of the recurrent layers among the others."""

    after: bool = False
    """Whether they are before the last layer, after all others; or else before the first one."""
    joins_input: bool = False
    """Whether they read the observation next to what the layers before give."""
    joins_output: bool = False
    """Whether the layers after them read the observation next to their output."""


@dataclass(frozen=True, kw_only=True)
class ActorWeights:
    """Tensors of an actor, checked: finite, and of shapes that fit together."""

    layout: WeightsLayout
    layers: tuple[tuple[Tensor, Tensor | None], ...]
    """Weight, shape (outputs, inputs), and bias of each layer."""
    memory: tuple[tuple[Tensor, Tensor, Tensor, Tensor], ...] = ()
    """Weights of the inputs and of the state, and their biases, of each recurrent layer."""
    kind: str = ""
    """`lstm` or `gru`."""
    place: MemoryPlace = field(default_factory=MemoryPlace)
    memory_norm: tuple[Tensor, Tensor] | None = None
    """Weight and bias of the layer normalisation after the recurrent layers."""
    norms: dict[int, tuple[Tensor, Tensor, bool]] = field(default_factory=dict[int, "tuple[Tensor, Tensor, bool]"])
    """Weight and bias of the layer normalisations by the layer before; whether the activation is before, too."""
    normaliser: str = ""
    """Name of the normaliser; empty for none."""
    mean: Tensor = field(default_factory=lambda: torch.zeros(0))
    divisor: Tensor = field(default_factory=lambda: torch.ones(0))
    clip: float | None = None
    """Bound of a normalised observation."""

    @property
    def observations(self) -> int:
        """Number of elements of the observation."""
        return int((self.memory[0][0] if self.memory and not self.place.after else self.layers[0][0]).shape[1])

    @property
    def hidden(self) -> list[int]:
        """Widths of the hidden layers."""
        return [len(weight) for weight, _ in self.layers[:-1]]


def actor_weights(tensors: dict[str, Tensor]) -> ActorWeights:
    """Find the actor in the tensors of a checkpoint.

    Raises:
        ForeignPolicyError: the layout is not known, or the tensors do not fit together.
    """
    for layout in LAYOUTS:
        for root in layout.roots:
            start = re.escape(root)
            sequence = re.compile(rf"{start}(?:{layout.hidden})\.(\d+)\.(?:weight|bias)")
            if not any(map(sequence.fullmatch, tensors)):
                continue
            last = next((name for name in tensors if re.fullmatch(rf"{start}(?:{layout.last})\.weight", name)), "")
            if last or not layout.last or layout.optional_last:
                return _Found(layout, root, tensors, sequence).actor(last.removesuffix(".weight"))
    raise ForeignPolicyError(
        f"its tensors are not those of {', '.join(dict.fromkeys(one.library for one in LAYOUTS))}: "
        f"{_listed(tensors)}; {WAY_OUT}"
    )


def _listed(names: dict[str, Tensor] | list[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return (", ".join(listed[:SHOWN]) + more) if listed else "none"


class _Found:
    """Tensors of a known layout."""

    def __init__(self, layout: WeightsLayout, root: str, tensors: dict[str, Tensor], sequence: re.Pattern[str]) -> None:
        self._layout, self._root, self._tensors, self._sequence = layout, root, tensors, sequence

    def actor(self, last: str) -> ActorWeights:
        """Return the weights; `last` is the name of the layer after the sequence, if there is one."""
        self._require_known(last)
        numbers, norms = self._numbers(last)
        normaliser, mean, divisor, clip = self._normaliser()
        kind, memory = self._memory()
        names = [*(self._name(str(number)) for number in numbers), *([last] if last else [])]
        place, width, joint = self._place(memory, names, len(mean) or None)
        layers: list[tuple[Tensor, Tensor | None]] = []
        for name in names:
            if joint and name == names[-1]:
                width = joint
            weight = self._matrix(f"{name}.weight", width)
            width = len(weight)
            bias = self._vector(f"{name}.bias", width) if f"{name}.bias" in self._tensors else None
            layers.append((weight, bias))
        self._require_means(len(layers[-1][0]))
        return ActorWeights(
            layout=self._layout,
            layers=tuple(layers),
            memory=memory,
            kind=kind,
            place=place,
            memory_norm=self._memory_norm(memory),
            norms={
                index: (*self._norm(self._name(str(number)), len(layers[index][0])), after)
                for index, (number, after) in norms.items()
            },
            normaliser=normaliser,
            mean=mean,
            divisor=divisor,
            clip=clip,
        )

    def _numbers(self, last: str) -> tuple[list[int], dict[int, tuple[int, bool]]]:
        """Numbers of the layers; and of normalisations by the layer before, with whether the activation is before."""
        found = sorted({int(match[1]) for name in self._tensors if (match := self._sequence.fullmatch(name))})
        layers: list[int] = []
        norms: dict[int, tuple[int, bool]] = {}
        expected = 0
        for number in found:
            weight = self._tensors.get(self._name(f"{number}.weight"))
            # A layer, its normalisation and its activation are three numbers; the activation's has no tensors.
            if layers and weight is not None and weight.dim() == 1 and number - layers[-1] in (1, 2):
                norms[len(layers) - 1] = number, number - layers[-1] == 2
                expected = layers[-1] + 3
                continue
            if number != expected:
                break
            layers.append(number)
            expected = number + 2
        if len(layers) + len(norms) < len(found) or not layers or (not last and len(layers) - 1 in norms):
            raise ForeignPolicyError(
                f"layers {found} of {self._name('')}: expected every second one, with an activation after each, or "
                f"every third with a layer normalisation as well; {WAY_OUT}"
            )
        return layers, norms

    def _norm(self, name: str, width: int) -> tuple[Tensor, Tensor]:
        return self._vector(f"{name}.weight", width), self._vector(f"{name}.bias", width)

    def _memory_norm(self, memory: tuple[tuple[Tensor, ...], ...]) -> tuple[Tensor, Tensor] | None:
        """Weight and bias of the layer normalisation after the recurrent layers; None if there is none."""
        pattern = rf"({re.escape(self._root)}(?:{self._layout.memory_norm or '(?!)'}))\.weight"
        name = next((match[1] for one in self._tensors if (match := re.fullmatch(pattern, one))), "")
        if name and not memory:
            raise ForeignPolicyError(f"{name} is of recurrent layers, of which there are none; {WAY_OUT}")
        return self._norm(name, memory[-1][1].shape[1]) if name else None

    def _place(
        self, memory: tuple[tuple[Tensor, ...], ...], names: list[str], observed: int | None
    ) -> tuple[MemoryPlace, int | None, int | None]:
        """Return the place of recurrent layers by the widths, the first layer's inputs, and the last one's."""
        if not memory:
            return MemoryPlace(), observed, None
        read, units = memory[0][0].shape[1], memory[-1][1].shape[1]
        if not self._layout.places:
            if observed not in (None, read):
                raise ForeignPolicyError(f"recurrent layers read {read} numbers, the normaliser has {observed}")
            return MemoryPlace(), units, None
        first, final = (self._matrix(f"{names[index]}.weight", None).shape[1] for index in (0, -1))
        hidden = len(self._matrix(f"{names[-2]}.weight", None))
        fitting: list[tuple[MemoryPlace, int]] = []
        for joined in (0, 1):
            if first == units + joined * read and final == hidden and observed in (None, read):
                fitting.append((MemoryPlace(joins_output=bool(joined)), hidden))
            fitting += [
                (MemoryPlace(after=True, joins_input=bool(given), joins_output=bool(joined)), final)
                for given in (0, 1)
                if read == hidden + given * first and final == units + joined * first and observed in (None, first)
            ]
        if len(fitting) != 1:
            raise ForeignPolicyError(
                f"recurrent layers that read {read} and give {units} numbers fit {len(fitting)} places among layers "
                f"from {first} to {hidden} and from {final} numbers; {WAY_OUT}"
            )
        return fitting[0][0], first, fitting[0][1]

    def _name(self, number: str) -> str:
        """Name of a layer of the sequence."""
        first = next(match for name in self._tensors if (match := self._sequence.fullmatch(name)))
        return first[0][: first.start(1)] + number

    def _require_known(self, last: str) -> None:
        layout, start = self._layout, re.escape(self._root)
        known = [self._sequence.pattern, rf"{start}(?:{layout.others})"]
        known += [rf"{re.escape(last)}\.(?:weight|bias)"] if last else []
        known += [rf"{start}(?:{layout.spread})"] if layout.spread else []
        known += [rf"{start}(?:{layout.memory})\.(?:weight|bias)_[ih]h_l\d+"] if layout.memory else []
        known += [rf"{start}(?:{layout.memory_norm})\.(?:weight|bias)"] if layout.memory_norm else []
        known += [rf"(?:{layout.normaliser})\.\w+"] if layout.normaliser else []
        unknown = [
            name
            for name in self._tensors
            if name.startswith(self._root) and not any(re.fullmatch(one, name) for one in known)
        ]
        if unknown:
            raise ForeignPolicyError(
                f"its tensors are those of {layout.library} and others, whose use is not known: {_listed(unknown)}; "
                f"{WAY_OUT}"
            )

    def _require_means(self, outputs: int) -> None:
        """Refuse networks whose outputs are logits, or standard deviations as well."""
        if not self._layout.spread:
            return
        pattern = rf"{re.escape(self._root)}(?:{self._layout.spread})"
        found = {name: value for name, value in self._tensors.items() if re.fullmatch(pattern, name)}
        if not found:
            raise ForeignPolicyError(
                f"no standard deviation of the actions ({pattern}): its outputs are not the means of a Gaussian alone; "
                f"{WAY_OUT}"
            )
        for name, value in found.items():
            sizes = list(value.shape)
            # The first of a layer, the last of a matrix for noise that depends on the state.
            if outputs not in (sizes[:1] if name.endswith((".weight", ".bias")) else sizes[-1:]):
                raise ForeignPolicyError(f"{name} has shape {sizes} for {outputs} outputs; {WAY_OUT}")

    def _normaliser(self) -> tuple[str, Tensor, Tensor, float | None]:
        """Return name, mean, divisor and bound of the normaliser."""
        names = [name.rsplit(".", 1)[0] for name in self._tensors]
        # skrl 2 has one of the observation and one of the critic's state, in this order by their names.
        name = min((name for name in names if re.fullmatch(self._layout.normaliser or "(?!)", name)), default="")
        if not name:
            return "", torch.zeros(0), torch.ones(0), None
        is_rsl = self._layout.library == RSL
        mean = self._vector(f"{name}.{'_mean' if is_rsl else 'running_mean'}", None)
        if is_rsl:
            divisor = self._vector(f"{name}._std", len(mean)) + 1e-2
        elif self._layout.library == "rl_games":
            divisor = torch.sqrt(self._vector(f"{name}.running_var", len(mean)) + 1e-5)
        else:
            divisor = torch.sqrt(self._vector(f"{name}.running_variance", len(mean))) + 1e-8
        if not bool(torch.all(divisor > 0.0)):
            raise ForeignPolicyError(f"{name} has a variance or a deviation below 0")
        return name, mean, divisor, None if is_rsl else 5.0

    def _memory(self) -> tuple[str, tuple[tuple[Tensor, Tensor, Tensor, Tensor], ...]]:
        pattern = rf"({re.escape(self._root)}(?:{self._layout.memory or '(?!)'}))\.weight_hh_l(\d+)"
        found = [match for name in self._tensors if (match := re.fullmatch(pattern, name))]
        memory: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        kind = ""
        for layer in range(len(found)):
            name = found[0][1]
            state = self._matrix(f"{name}.weight_hh_l{layer}", None)
            rows, units = state.shape
            kind = GATES.get(rows // max(units, 1), "") if rows % max(units, 1) == 0 else ""
            if not kind or (memory and len(memory[0][1]) != rows):
                raise ForeignPolicyError(
                    f"{name}.weight_hh_l{layer} has shape {[rows, units]}, neither of LSTM nor GRU"
                )
            inputs = self._matrix(f"{name}.weight_ih_l{layer}", units if memory else None, rows)
            biases = [self._vector(f"{name}.bias_{label}_l{layer}", rows) for label in ("ih", "hh")]
            memory.append((inputs, state, biases[0], biases[1]))
        return kind, tuple(memory)

    def _matrix(self, name: str, inputs: int | None, outputs: int | None = None) -> Tensor:
        value = self._tensor(name)
        if value.dim() != 2 or inputs not in (None, value.shape[1]) or outputs not in (None, value.shape[0]):
            wanted = f"[{outputs or 'outputs'}, {inputs or 'inputs'}]"
            raise ForeignPolicyError(f"{name} has shape {list(value.shape)}, expected {wanted}")
        return value

    def _vector(self, name: str, size: int | None) -> Tensor:
        value = self._tensor(name)
        # rsl_rl keeps its means and deviations as one row.
        value = value[0] if value.dim() == 2 and len(value) == 1 else value
        if value.dim() != 1 or size not in (None, len(value)):
            raise ForeignPolicyError(f"{name} has shape {list(value.shape)}, expected [{size or 'observations'}]")
        return value

    def _tensor(self, name: str) -> Tensor:
        value = self._tensors.get(name)
        if value is None or not value.is_floating_point() or not value.numel():
            raise ForeignPolicyError(f"{name} is missing, empty or not of floating-point numbers")
        value = value.to(torch.float32).contiguous()
        if not bool(torch.isfinite(value).all()):
            raise ForeignPolicyError(f"{name} has numbers that are not finite")
        return value
