"""Model of the disk images that the weakest POSIX file system can leave after a power cut.

As in ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014), with few guarantees:

- A change of a folder's entries (create, rename, remove) is atomic, and durable only once the folder is synced. Until
  then any subset of the changes may be on the disk, regardless of their order.
- The content of a file is durable only once the file is synced. Until then it may be missing, truncated anywhere, or
  partly or entirely zero at its full length.
- A symbolic link may be dangling until its folder is synced.
"""

import hashlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_IMAGES = 4096
"""Maximum number of images per moment; if more are possible, they are sampled."""

LOST_LINK = "/nowhere"


@dataclass(frozen=True)
class Names:
    """An atomic change of a folder's entries: new node of each name, None for removal."""

    folder: int
    changes: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Content:
    """Data written to a new file."""

    node: int
    data: bytes


@dataclass(frozen=True)
class Synced:
    """A sync of a file's content, or of a folder's entries."""

    node: int


Operation = Names | Content | Synced


@dataclass
class DiskNode:
    """A file, link or folder."""

    kind: str
    data: bytes = b""
    """Durable content of a file."""
    target: str = ""
    """Target of a link."""
    names: dict[str, int] = field(default_factory=dict[str, int])
    """Durable entries of a folder."""
    written: bytes | None = None
    """Content of a file that is not synced yet; None if it is."""
    loose: bool = False
    """Whether a link's target may still be lost."""
    pending: list[Names] = field(default_factory=list[Names])
    """Changes of a folder's entries that are not synced yet."""


Entry = tuple[str, bytes]
"""Kind and content: `f` and the file's bytes, `l` and the link's target, or `d` and no content."""

Image = dict[str, Entry]
"""Entries of a disk by path."""


def image_key(image: Image) -> bytes:
    """A hash of an image."""
    digest = hashlib.sha256()
    for path in sorted(image):
        kind, content = image[path]
        digest.update(f"{kind}{len(path)}:{len(content)}:{path}".encode() + content)
    return digest.digest()


def materialise(image: Image, root: Path) -> None:
    """Creates the files of an image in a new folder."""
    root.mkdir()
    for path in sorted(image):
        kind, content = image[path]
        if kind == "d":
            (root / path).mkdir()
        elif kind == "l":
            (root / path).symlink_to(content.decode())
        else:
            (root / path).write_bytes(content)


def image_of(root: Path) -> Image:
    """The image of a folder."""
    image: Image = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            image[name] = ("l", str(path.readlink()).encode())
        else:
            image[name] = ("d", b"") if path.is_dir() else ("f", path.read_bytes())
    return image


class Disk:
    """Applies operations, and enumerates the images that a power cut can leave."""

    def __init__(self, nodes: dict[int, DiskNode]) -> None:
        """Starts with a fully synced disk; node 0 is the root."""
        self._nodes = nodes

    def add(self, number: int, node: DiskNode) -> None:
        """Adds a node, before any name refers to it."""
        self._nodes[number] = node

    def apply(self, operation: Operation) -> None:
        """Applies one operation."""
        if isinstance(operation, Names):
            self._nodes[operation.folder].pending.append(operation)
        elif isinstance(operation, Content):
            self._nodes[operation.node].written = operation.data
        else:
            self._sync(self._nodes[operation.node])

    def _sync(self, node: DiskNode) -> None:
        if node.kind == "f" and node.written is not None:
            node.data, node.written = node.written, None
        for change in node.pending:
            _rename(node.names, change)
            for _, number in change.changes:
                if number is not None:
                    self._nodes[number].loose = False
        node.pending.clear()

    def images(self, chance: random.Random) -> Iterator[Image]:
        """Images that a power cut can leave now, possibly with duplicates; a sample if there are too many."""
        pending = [change for number in sorted(self._nodes) for change in self._nodes[number].pending]
        subsets = _subsets(pending, chance)
        for kept in subsets:
            folders = {number: dict(node.names) for number, node in self._nodes.items() if node.kind == "d"}
            for change in kept:
                _rename(folders[change.folder], change)
            yield from self._contents(folders, chance, most=max(2, MAX_IMAGES // len(subsets)))

    def is_sampled(self) -> bool:
        """Whether `images` yields only a sample."""
        variants = 1 << sum(len(node.pending) for node in self._nodes.values())
        for node in self._nodes.values():
            if node.written is not None:
                variants *= len(_half_written(node.data, node.written))
            variants *= 2 if node.loose else 1
        return variants > MAX_IMAGES

    def _contents(self, folders: dict[int, dict[str, int]], chance: random.Random, *, most: int) -> Iterator[Image]:
        fixed: Image = {}
        loose: list[tuple[str, list[Entry]]] = []
        for path, node in self._walk(folders, 0, ""):
            if node.kind == "d":
                fixed[path] = ("d", b"")
            elif node.kind == "l":
                whole = ("l", node.target.encode())
                fixed[path] = whole
                if node.loose:
                    loose.append((path, [whole, ("l", LOST_LINK.encode())]))
            elif node.written is None:
                fixed[path] = ("f", node.data)
            else:
                loose.append((path, [("f", data) for data in _half_written(node.data, node.written)]))
        yield from (fixed | dict(chosen) for chosen in _choices(loose, chance, most))

    def _walk(self, folders: dict[int, dict[str, int]], number: int, prefix: str) -> Iterator[tuple[str, DiskNode]]:
        for name, child in folders[number].items():
            path, node = f"{prefix}{name}", self._nodes[child]
            yield path, node
            if node.kind == "d":
                yield from self._walk(folders, child, f"{path}/")


def _rename(names: dict[str, int], change: Names) -> None:
    for name, number in change.changes:
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


def _subsets(pending: list[Names], chance: random.Random) -> list[list[Names]]:
    count = len(pending)
    if 1 << count <= MAX_IMAGES:
        return [[change for bit, change in enumerate(pending) if mask >> bit & 1] for mask in range(1 << count)]
    found = [pending[:length] for length in range(count + 1)]
    found += [pending[:index] + pending[index + 1 :] for index in range(count)]
    found += [[change] for change in pending]
    found += [[change for change in pending if chance.random() < 0.5] for _ in range(MAX_IMAGES // 4)]
    return found


def _half_written(old: bytes, new: bytes) -> list[bytes]:
    half = len(new) // 2
    zeros = bytes(len(new))
    found = [old, new, new[:1], new[:half], new[:-1], zeros, new[:half] + zeros[half:], zeros[:half] + new[half:]]
    return list(dict.fromkeys(found))


def _choices(
    loose: list[tuple[str, list[Entry]]], chance: random.Random, most: int
) -> Iterator[list[tuple[str, Entry]]]:
    total = 1
    for _, variants in loose:
        total *= len(variants)
    paths = [path for path, _ in loose]
    if total <= most:
        for chosen in itertools.product(*(variants for _, variants in loose)):
            yield list(zip(paths, chosen, strict=True))
        return
    for _ in range(most):
        yield [(path, chance.choice(variants)) for path, variants in loose]
