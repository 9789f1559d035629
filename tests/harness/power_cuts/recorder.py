"""A file system that records its operations, for replay on `tests.harness.power_cuts.disk`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.power_cuts.disk import Content, Disk, DiskNode, Names, Operation, Synced

from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem, folder_of

Ignores = Callable[[str, str], bool]
"""Whether to omit a sync; called with `sync` or `sync_folder`, and the path."""


@dataclass
class OperationLog:
    """The initial disk and the recorded operations."""

    start: dict[int, DiskNode]
    made: list[tuple[Operation, dict[int, DiskNode]]] = field(
        default_factory=list[tuple[Operation, dict[int, DiskNode]]]
    )
    """Each operation with the nodes it creates."""

    def disk(self) -> Disk:
        """The disk before the first operation."""
        return Disk({number: _copy(node) for number, node in self.start.items()})

    def follow(self, disk: Disk, index: int) -> None:
        """Applies operation `index` to the disk."""
        operation, nodes = self.made[index]
        for number, node in nodes.items():
            disk.add(number, _copy(node))
        disk.apply(operation)


def _copy(node: DiskNode) -> DiskNode:
    return DiskNode(node.kind, node.data, node.target, dict(node.names), node.written, node.loose, list(node.pending))


class RecordingFileSystem(PosixFileSystem):
    """A real file system whose operations are recorded."""

    def __init__(self, root: Path, *, ignores: Ignores = lambda kind, path: False) -> None:
        """Records the initial content of the root.

        Args:
            root: an existing folder.
            ignores: selects syncs to omit, to test that a replay detects the missing sync.
        """
        super().__init__(root)
        self._ignores = ignores
        self._count = 0
        self._numbers: dict[str, int] = {"": 0}
        self.recording = OperationLog({0: DiskNode("d")})
        self._take_stock(root, "")

    def _take_stock(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.iterdir()):
            name = f"{prefix}{path.name}"
            if path.is_symlink():
                node = DiskNode("l", target=str(path.readlink()))
            elif path.is_dir():
                node = DiskNode("d")
            else:
                node = DiskNode("f", data=path.read_bytes())
            number = self._new(name)
            self.recording.start[number] = node
            self.recording.start[self._numbers[folder_of(name)]].names[path.name] = number
            if node.kind == "d":
                self._take_stock(path, f"{name}/")

    def create(self, path: str, data: bytes) -> None:
        """See FileSystem."""
        super().create(path, data)
        self._name(path, DiskNode("f"))
        self.recording.made.append((Content(self._numbers[path], data), {}))

    def link(self, path: str, target: str) -> None:
        """See FileSystem."""
        super().link(path, target)
        self._name(path, DiskNode("l", target=target, loose=True))

    def make_folder(self, path: str) -> None:
        """See FileSystem."""
        super().make_folder(path)
        self._name(path, DiskNode("d"))

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        if folder_of(old) != folder_of(new):
            raise ValueError(f"{old} → {new}: the disk model does not support renaming across folders")
        super().rename(old, new)
        number = self._numbers.pop(old)
        self._numbers[new] = number
        changes = ((_name_of(old), None), (_name_of(new), number))
        self.recording.made.append((Names(self._numbers[folder_of(new)], changes), {}))

    def remove(self, path: str) -> None:
        """See FileSystem."""
        super().remove(path)
        self._forget(path)

    def remove_folder(self, path: str) -> None:
        """See FileSystem."""
        super().remove_folder(path)
        self._forget(path)

    def sync(self, path: str) -> None:
        """See FileSystem."""
        super().sync(path)
        if not self._ignores("sync", path):
            self.recording.made.append((Synced(self._numbers[path]), {}))

    def sync_folder(self, path: str) -> None:
        """See FileSystem."""
        super().sync_folder(path)
        if not self._ignores("sync_folder", path):
            self.recording.made.append((Synced(self._numbers[path]), {}))

    def _new(self, path: str) -> int:
        self._count += 1
        self._numbers[path] = self._count
        return self._count

    def _name(self, path: str, node: DiskNode) -> None:
        number = self._new(path)
        operation = Names(self._numbers[folder_of(path)], ((_name_of(path), number),))
        self.recording.made.append((operation, {number: node}))

    def _forget(self, path: str) -> None:
        del self._numbers[path]
        self.recording.made.append((Names(self._numbers[folder_of(path)], ((_name_of(path), None),)), {}))


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]
