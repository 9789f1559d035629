"""Opens the files of a stage: within one folder, bounded, and none that is missing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from physai.foreign.usd.library import pxr, refused, said
from physai.sdk.base.errors import ModelError

SUFFIXES = (".usd", ".usda", ".usdc", ".usdz")
MAX_LAYERS = 256
MAX_BYTES = 256 * 1024 * 1024
"""Greatest size of all files of a stage together."""
MAX_PRIMS = 100_000
MAX_DEPTH = 128


def open_stage(source: Path) -> Any:
    """Open a stage whose files all lie in the folder of the first.

    Raises:
        ModelError: a file is missing, no USD, lies outside of the folder, or there are too many or too large ones; the
            stage has too many prims, or does not compose.
    """
    folder = source.resolve().parent
    pending: list[tuple[str, str]] = [(str(source.resolve()), "/")]
    seen: set[str] = set()
    total = 0
    while pending:
        name, prim = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if len(seen) > MAX_LAYERS:
            raise refused(prim, f"the stage has more than {MAX_LAYERS} files")
        total += _size(name, prim, folder)
        if total > MAX_BYTES:
            raise refused(prim, f"the stage's files have {total} bytes up to {_short(name, folder)}, of {MAX_BYTES}")
        pending.extend(_named(_layer(name, prim, folder), prim))
    return _composed(source)


def _composed(source: Path) -> Any:
    usd = pxr("Usd")
    try:
        stage = usd.Stage.Open(str(source.resolve()))
    except pxr("Tf").ErrorException as error:
        raise ModelError(f"/: does not compose: {said(error)}") from None
    for error in stage.GetCompositionErrors():
        raise refused(error.rootSite.path, f"does not compose: {said(error)}")
    # Instances become prims of their own, as OpenUSD computes no mass from their shapes. The file stays as it is.
    stage.SetEditTarget(stage.GetSessionLayer())
    for number, prim in enumerate(usd.PrimRange.Stage(stage, usd.TraverseInstanceProxies())):
        if number >= MAX_PRIMS:
            raise refused(prim, f"the stage has more than {MAX_PRIMS} prims")
    while instances := [prim for prim in stage.Traverse() if prim.IsInstance()]:
        for prim in instances:
            prim.SetInstanceable(False)
    for prim in stage.Traverse():
        if prim.GetPath().pathElementCount > MAX_DEPTH:
            raise refused(prim, f"is nested deeper than {MAX_DEPTH}")
        for attribute in prim.GetAuthoredAttributes():
            if isinstance(attribute.Get(), pxr("Sdf").UnregisteredValue):
                raise refused(attribute, f"has a value that is no {attribute.GetTypeName() or 'value of USD'}")
    return stage


def _size(name: str, prim: str, folder: Path) -> int:
    outer = pxr("Ar").SplitPackageRelativePathOuter(name)[0]
    real = Path(os.path.realpath(outer))
    if not os.path.isabs(outer):  # the resolver has found no such file
        raise refused(prim, f"names {outer}, which is missing")
    if not real.is_relative_to(folder):
        raise refused(prim, f"names {outer}, outside of the folder {folder}; put the file into the folder")
    if real.suffix.lower() not in SUFFIXES:
        raise refused(prim, f"names {_short(outer, folder)}, no USD file ({', '.join(SUFFIXES)})")
    if not real.is_file():
        raise refused(prim, f"names {_short(outer, folder)}, which is missing")
    return real.stat().st_size if outer == name else 0


def _layer(name: str, prim: str, folder: Path) -> Any:
    try:
        layer = pxr("Sdf").Layer.FindOrOpen(name)
    except pxr("Tf").ErrorException as error:
        raise refused(prim, f"{_short(name, folder)} is no USD file: {said(error)}") from None
    if layer is None:
        raise refused(prim, f"{_short(name, folder)} is missing or no USD file")
    return layer


def _named(layer: Any, prim: str) -> Iterator[tuple[str, str]]:
    """Yield the files that a layer composes with, and the prim that names each."""
    found: list[tuple[str, str]] = [(path, prim) for path in layer.subLayerPaths]

    def look(path: Any) -> None:
        spec = layer.GetPrimAtPath(path) if path.IsPrimPath() or path.IsPrimVariantSelectionPath() else None
        if spec is None:
            return
        if spec.HasInfo("clips"):
            raise refused(path, "has value clips, which are not read")
        for listed in (spec.referenceList, spec.payloadList):
            found.extend((item.assetPath, str(path)) for item in listed.GetAddedOrExplicitItems() if item.assetPath)

    layer.Traverse("/", look)
    for asset, where in found:
        if os.path.isabs(asset) or ":" in asset or "`" in asset:
            raise refused(where, f"names {asset!r}; a file has to be named relative to the one that names it")
        yield pxr("Sdf").ComputeAssetPathRelativeToLayer(layer, asset), where


def _short(name: str, folder: Path) -> str:
    return os.path.relpath(name, folder)
