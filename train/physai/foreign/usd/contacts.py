"""Pairs of bodies that a stage lets touch each other, or not."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from physai.foreign.usd.bodies import UsdBody, all_prims
from physai.foreign.usd.frames import authored
from physai.foreign.usd.joints import UsdJoint
from physai.foreign.usd.library import pxr, refused
from physai.foreign.usd.shapes import UsdShape

MAX_SHAPES = 2000
"""Most colliding shapes of a stage with collision groups or filtered pairs."""
_SELF = ("physxArticulation:enabledSelfCollisions", "newton:selfCollisionEnabled")

Pair = frozenset[str]


def apart(stage: Any, bodies: dict[str, UsdBody], joints: list[UsdJoint], shapes: list[UsdShape]) -> set[Pair]:
    """Return the pairs of bodies that pass through each other, the world as ''.

    Raises:
        ModelError: a filter concerns some shapes of two bodies and not others, which MuJoCo cannot tell apart, or names
            what is no shape.
    """
    physics = pxr("UsdPhysics")
    found = {frozenset((joint.parent, joint.child)) for joint in joints if not joint.collides and joint.parent}
    for prim in all_prims(stage):
        if prim.HasAPI(physics.ArticulationRootAPI) and any(authored(prim, name) is False for name in _SELF):
            found |= {frozenset(pair) for pair in combinations(_articulated(prim, bodies, joints), 2)}
    colliding = [shape for shape in shapes if shape.collides]
    filters = physics.FilteredPairsAPI, physics.CollisionGroup
    if len(colliding) > MAX_SHAPES and any(
        prim.HasAPI(filters[0]) or prim.IsA(filters[1]) for prim in all_prims(stage)
    ):
        raise refused("/", f"has {len(colliding)} colliding shapes and filters of them, at most {MAX_SHAPES} are read")
    cause: dict[Pair, dict[frozenset[str], Any]] = {}
    for prim, first, second in (*_filtered(stage, colliding), *_groups(stage, colliding)):
        if first.body != second.body:
            between = cause.setdefault(frozenset((first.body, second.body)), {})
            between.setdefault(frozenset((first.path, second.path)), prim)
    sizes = Counter(shape.body for shape in colliding)
    for pair, between in cause.items():
        if len(between) < math.prod(sizes[body] for body in pair):
            paths, prim = next(iter(between.items()))
            raise refused(prim, f"keeps {' and '.join(sorted(paths))} apart, and not all shapes of their bodies")
    return found | set(cause)


def _articulated(root: Any, bodies: dict[str, UsdBody], joints: list[UsdJoint]) -> list[str]:
    """Return the bodies that joints connect with the body of an articulation's root, or with one below it."""
    prefix = str(root.GetPath())
    within = {path for path in bodies if path == prefix or path.startswith(f"{prefix}/")}
    if root.IsA(pxr("UsdPhysics").Joint):
        within = {joint.child for joint in joints if joint.path == prefix}
    grown = 0
    while grown < len(within):
        grown = len(within)
        within |= {joint.child for joint in joints if joint.parent in within}
    return sorted(within)


def _filtered(stage: Any, colliding: list[UsdShape]) -> Iterator[tuple[Any, UsdShape, UsdShape]]:
    for prim in all_prims(stage):
        if prim.HasAPI(pxr("UsdPhysics").FilteredPairsAPI):
            ours = _below(str(prim.GetPath()), colliding)
            for target in prim.GetRelationship("physics:filteredPairs").GetTargets():
                theirs = _below(str(target), colliding)
                if not (ours and theirs):
                    raise refused(prim, f"has a filtered pair with {target}, and one of the two has no shape")
                yield from ((prim, first, second) for first in ours for second in theirs if first is not second)


def _below(path: str, colliding: list[UsdShape]) -> list[UsdShape]:
    return [shape for shape in colliding if f"{shape.path}/".startswith(f"{path}/") or shape.body == path]


def _groups(stage: Any, colliding: list[UsdShape]) -> Iterator[tuple[Any, UsdShape, UsdShape]]:
    physics = pxr("UsdPhysics")
    groups = [prim for prim in all_prims(stage) if prim.IsA(physics.CollisionGroup)]
    if not groups:
        return
    table = physics.CollisionGroup.ComputeCollisionGroupTable(stage)
    queries = [physics.CollisionGroup(prim).GetCollidersCollectionAPI().ComputeMembershipQuery() for prim in groups]
    member = {
        shape.path: [prim for prim, query in zip(groups, queries, strict=True) if query.IsPathIncluded(shape.path)]
        for shape in colliding
    }
    for first, second in combinations(colliding, 2):
        for one in member[first.path]:
            for other in member[second.path]:
                if not table.IsCollisionEnabled(one.GetPath(), other.GetPath()):
                    yield one, first, second
