"""Placement of generators and scorers on nodes of a Ray cluster: a file, and where that puts each of them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints, ValidationError, model_validator

from physai.cluster.placement.world_split import MAX_GENERATORS
from physai.compute.ray.cluster import ClusterError
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.contract.robot import Frozen

MAX_NAMED = 20
"""Nodes that a message lists."""

NodeName = Annotated[str, StringConstraints(min_length=1, max_length=253)]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]{0,315}$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Document = TypeVar("Document", bound=Frozen)


class PlacementGroup(Frozen):
    """Generators or scorers placed alike: on a node, or on any nodes that have labels and are the trainer's or not."""

    number: Annotated[int, Field(ge=1, le=MAX_GENERATORS)]
    processors: Annotated[int, Field(ge=1, le=256)] = 1
    """Of each: what Ray reserves for it, and the threads of a generator's engine."""
    node: NodeName | None = None
    """Name (`ray start --node-name`), host name or address of a node."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=16)
    """Labels that the node has (`ray start --labels`)."""
    colocated: bool | None = None
    """Whether on the trainer's node; None for either."""

    @model_validator(mode="after")
    def _one_way(self) -> "PlacementGroup":
        if self.node is not None and (self.labels or self.colocated is not None):
            other = "labels" if self.labels else "colocated"
            raise ValueError(f"node {self.node!r} says where they run, and so does {other}; remove one")
        return self

    @property
    def where(self) -> str:
        """In words, for messages."""
        if self.node is not None:
            return f"on {self.node}"
        side = {None: "", True: "on the trainer's node", False: "apart from the trainer"}[self.colocated]
        labels = ", ".join(f"{name}={value}" for name, value in self.labels.items())
        return " ".join(part for part in (side, f"where {labels}" if labels else "") if part) or "on any node"


class Placement(Frozen):
    """Nodes of a run's generators and scorers. The trainer is the process that is started, wherever that is."""

    format_version: Annotated[int, Field(ge=1, le=1)] = 1
    trainer: NodeName | None = None
    """Node that the trainer is to be on, as of `PlacementGroup.node`; None for any."""
    generators: Annotated[tuple[PlacementGroup, ...], Field(min_length=1, max_length=MAX_GENERATORS)]
    scorers: Annotated[tuple[PlacementGroup, ...], Field(max_length=MAX_GENERATORS)] = ()
    """Of `physai finetune --scoring apart`."""

    @model_validator(mode="after")
    def _count_in_bounds(self) -> "Placement":
        for role, count in (("generators", self.count), ("scorers", sum(group.number for group in self.scorers))):
            if not count <= MAX_GENERATORS:
                raise ValueError(f"{count} {role}, and a run has at most {MAX_GENERATORS}; remove some")
        return self

    @property
    def count(self) -> int:
        """All generators."""
        return sum(group.number for group in self.generators)

    @property
    def processors(self) -> int:
        """Processors of generators and scorers together."""
        return sum(group.number * group.processors for group in (*self.generators, *self.scorers))


PLACEMENT_FILE = DocumentKind(name="placement", format_version=1, max_bytes=1 << 20, max_depth=5, error=ClusterError)


def read_placement(path: Path) -> Placement:
    """Reads a placement.

    Raises:
        ClusterError: it cannot be read or is malformed.
    """
    return read_document(path, Placement, PLACEMENT_FILE, what="a placement")


def read_document(path: Path, model: type[Document], kind: DocumentKind[ClusterError], *, what: str) -> Document:
    """Reads a YAML file of one of this package's models.

    Raises:
        ClusterError: it cannot be read or is malformed.
    """
    document = read_yaml(path, what=what, max_bytes=kind.max_bytes, error=ClusterError)
    try:
        # From JSON a list is a tuple.
        return model.model_validate_json(json.dumps(document))
    except (ValidationError, TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise ClusterError(f"{path}: {error}") from None
        raise kind.invalid(error, source=str(path)) from None


def placement_text(placement: Placement, *, reasons: Sequence[str]) -> str:
    """The file that `read_placement` reads, with the reasons as comments."""
    import yaml

    document = json.loads(placement.model_dump_json(exclude_defaults=True))
    comments = "".join(f"# {' '.join(reason.split())}\n" for reason in reasons)
    return comments + yaml.safe_dump({"format_version": 1, **document}, sort_keys=False)


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """A node of a Ray cluster."""

    id: str
    address: str
    names: tuple[str, ...] = ()
    """Besides the address, that for people first."""
    processors: int
    labels: dict[str, str]

    def __str__(self) -> str:
        named = next((name for name in self.names if name != self.address), None)
        return self.address if named is None else f"{named} ({self.address})"


@dataclass(frozen=True)
class Seat:
    """Node and processors of a generator or scorer."""

    node: str | None = None
    """Id of a node; None for any."""
    processors: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """Ray's options of an actor there. If the node has died, Ray starts it on another one."""
        if self.node is None:
            return {"num_cpus": self.processors}
        from ray.util.scheduling_strategies import (  # type: ignore[import-untyped]
            NodeAffinitySchedulingStrategy,
        )

        strategy: Any = NodeAffinitySchedulingStrategy
        return {"num_cpus": self.processors, "scheduling_strategy": strategy(self.node, soft=True)}


def seats_on(ray: Any, placement: Placement) -> tuple[Seat, ...]:
    """`seats` on the cluster that this process, the trainer, is connected with.

    Raises:
        ClusterError: the cluster has no such nodes, or too few processors on them.
    """
    nodes = [
        ClusterNode(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            names=tuple(name for name in (node["NodeName"], node["NodeManagerHostname"]) if name),
            processors=int(node["Resources"].get("CPU", 0.0)),
            labels=dict(node["Labels"]),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    here = ray.get_runtime_context().get_node_id()
    return seats(placement, nodes, trainer=next(node for node in nodes if node.id == here))


def seats(placement: Placement, nodes: Sequence[ClusterNode], *, trainer: ClusterNode) -> tuple[Seat, ...]:
    """Seats of each generator of a placement, and then of each scorer, in their order.

    Those with the fewest nodes to choose from are placed first, on nodes that the fewest others may use, and there on
    the one with most processors free. This may miss a placement in which groups share nodes tightly; naming the nodes
    then finds it.

    Args:
        placement: what is asked for.
        nodes: all that are alive.
        trainer: the one of them that this process is on.

    Raises:
        ClusterError: there are no such nodes, or too few processors on them.
    """
    has = f"the cluster has {_listed(nodes, trainer)}"
    if placement.trainer is not None and (wanted := _named(placement.trainer, nodes, has)) != trainer:
        raise ClusterError(
            f"the placement has the trainer on {wanted}, and this process is on {trainer}; start `physai train` on "
            f"{wanted}, for instance with `ray job submit`, or change `trainer`"
        )
    groups = [("generators", group) for group in placement.generators]
    groups += [("scorers", group) for group in placement.scorers]
    choices = [_choices(role, group, nodes, trainer, has) for role, group in groups]
    wishes = Counter(node.id for choice in choices for node in choice)
    free = {node.id: node.processors for node in nodes}
    found: dict[int, list[Seat]] = {}
    for number in sorted(range(len(choices)), key=lambda number: len(choices[number])):
        (role, group), choice = groups[number], choices[number]
        found[number] = []
        for _ in range(group.number):
            node = min(
                (node for node in choice if free[node.id] >= group.processors),
                key=lambda node: (wishes[node.id], -free[node.id]),
                default=None,
            )
            if node is None:
                raise ClusterError(
                    f"{group.number} {role} {group.where} take {group.number * group.processors} processors, "
                    f"{group.processors} each, and there is room for {len(found[number])} of them; {has}; place fewer, "
                    "or start more nodes with `ray start --address`"
                )
            free[node.id] -= group.processors
            found[number].append(Seat(node.id, group.processors))
    return tuple(seat for number in range(len(choices)) for seat in found[number])


def _choices(
    role: str, group: PlacementGroup, nodes: Sequence[ClusterNode], trainer: ClusterNode, has: str
) -> list[ClusterNode]:
    if group.node is not None:
        return [_named(group.node, nodes, has)]
    found = [
        node
        for node in nodes
        if all(node.labels.get(name) == value for name, value in group.labels.items())
        and (group.colocated is None or (node == trainer) == group.colocated)
    ]
    if not found:
        raise ClusterError(
            f"{role} are to run {group.where}, and no node is such; {has}; change the placement, or start one with "
            "`ray start --address`, and --labels if need be"
        )
    return found


def _named(name: str, nodes: Sequence[ClusterNode], has: str) -> ClusterNode:
    found = [node for node in nodes if name == node.address or name in node.names]
    if not found:
        raise ClusterError(f"no node is called {name!r}; {has}; change the placement, or start the node")
    if len(found) > 1:
        raise ClusterError(
            f"{len(found)} nodes are called {name!r}: {', '.join(node.address for node in found[:MAX_NAMED])}; name "
            "one by its address"
        )
    return found[0]


def _listed(nodes: Sequence[ClusterNode], trainer: ClusterNode) -> str:
    parts: list[str] = []
    for node in sorted(nodes, key=lambda node: node != trainer)[:MAX_NAMED]:
        labels = "".join(f", {name}={value}" for name, value in node.labels.items() if not name.startswith("ray.io/"))
        plural = "" if node.processors == 1 else "s"
        role = " with the trainer" if node == trainer else ""
        parts.append(f"{node}{role}: {node.processors} processor{plural}{labels}")
    more = f"; and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else ""
    return "; ".join(parts) + more
