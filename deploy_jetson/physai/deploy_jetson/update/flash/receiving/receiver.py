"""The robot's side of a flash: receives missing members, assembles the bundle, installs, activates and watches it.

An interrupted upload is kept and resumed by the next flash. An installation continues even if the connection is lost.
This module imports little, so that the upload starts at once; the agent is imported during the upload.
"""

import errno
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from physai.deploy_jetson.update.flash.protocol import (
    ALIVE_S,
    MAX_UPLOADS,
    PROTOCOL,
    TURN_LOST,
    Message,
    Offer,
    ProtocolError,
    decode,
    digest,
    encode,
    flag,
    number,
    text,
)
from physai.deploy_jetson.update.flash.receiving.remote_inventory import PART_SUFFIX, RemoteInventory
from physai.deploy_jetson.update.flash.receiving.stream import GoneError, PeerStream, PeerWriter, TurnLostError
from physai.deploy_jetson.update.flash.receiving.turn import Turn
from physai.deploy_jetson.update.slots.slot_errors import InstallError
from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.deploy_jetson.update.agent.agent import UpdateAgent
    from physai.deploy_jetson.update.slots.health import HealthFinding

CHUNK_BYTES = 1 << 20
ACKNOWLEDGE_BYTES = 1 << 18
"""Number of received bytes after which the robot sends `got`."""

_SWITCH_INTERVAL_S = 1e-4
_STAGE_PERIOD_S = 0.1
_WAITING_PERIOD_S = 1.0


class Receiver:
    """The robot's side of one conversation."""

    def __init__(
        self, root: Path, source: PeerStream, sink: PeerWriter | BinaryIO, *, config: Path | None = None
    ) -> None:
        """Initialises the receiver.

        Args:
            root: the robot's tree.
            source: input from the sender.
            sink: output to the sender.
            config: folder of the owner's files; None selects the default for that tree.
        """
        self._root = root
        self._config = config
        self._source = source
        self._sink = sink
        self._connected = True
        self._send_lock = threading.Lock()
        self._last_sent_s = 0.0
        self._ended = threading.Event()
        self._offer: Offer | None = None
        self._needs: dict[str, int] = {}
        self._allowance = 0
        self._turn = Turn(root)
        self._last_stage = ("", 0.0)
        self._imports = threading.Thread(target=_import_agent, daemon=True)
        self._actions: dict[str, Callable[[Message], None]] = {
            "offer": self._take_offer,
            "time": self._take_time,
            "put": self._put,
            "install": self._install,
            "watch": self._watch,
        }

    def serve(self) -> int:
        """Serves the conversation until the sender closes it; returns the exit code of the process."""
        pulse = threading.Thread(target=self._send_keepalives, daemon=True)
        try:
            self._send("hello", protocol=PROTOCOL, robot=RemoteInventory(self._root, self._config).robot())
            pulse.start()
            while line := self._source.line():
                message = decode(line)
                if message["say"] not in self._actions:
                    raise ProtocolError(f"unknown message {message['say']!r:.40}")
                self._actions[message["say"]](message)
        except GoneError:
            return 1
        except TurnLostError as error:
            self._turn.end()
            self._send("error", kind=TURN_LOST, text=str(error))
            return 1
        except PhysaiError as error:
            self._send("error", kind=type(error).__name__, text=str(error))
            return 2
        except ModuleNotFoundError as error:
            missing = f"the robot needs {error.name}, which is not installed there: pip install 'physai-sdk[robot]'"
            self._send("error", kind="MissingExtraError", text=missing)
            return 2
        except OSError as error:
            self._send("error", kind="OSError", text=f"{error.filename or self._root}: {error.strerror or error}")
            return 2
        finally:
            self._turn.end()
            self._ended.set()
            if pulse.is_alive():
                pulse.join()
            if self._imports.is_alive():
                # A daemon thread that is killed during an import can crash the interpreter at exit.
                self._imports.join()
        return 0

    def _send(self, what: str, **fields: Any) -> None:
        with self._send_lock:
            if not self._connected:
                return
            try:
                self._sink.write(encode(what, **fields))
                self._sink.flush()
                self._last_sent_s = time.monotonic()
            except OSError:
                self._connected = False

    def _send_keepalives(self) -> None:
        """Sends keepalives while nothing else is sent."""
        while not self._ended.wait(ALIVE_S / 4):
            if time.monotonic() - self._last_sent_s >= ALIVE_S:
                self._send("alive")

    def _take_offer(self, message: Message) -> None:
        if self._offer is not None:
            raise ProtocolError("only one offer is allowed in a conversation")
        self._offer = offer = Offer.parse(message)
        self._turn.take(offer.wait_s, self._report_waiting)
        self._source.others_wait = self._turn.others_wait
        holdings = RemoteInventory(self._root, self._config)
        holdings.check(offer)
        trial = holdings.trial() is not None
        if holdings.active_bundle() == offer.bundle:
            self._turn.end()
            self._send("holds", active=True, trial=trial, needs=[])
            return
        self._needs = holdings.needs(offer)
        self._allowance = MAX_UPLOADS * sum(offer.sizes[name] for name in self._needs)
        holdings.require_space(offer, self._needs)
        self._send("holds", active=False, trial=trial, needs=list(self._needs.items()))
        # The import thread holds the GIL in long stretches: a short switch interval keeps the upload fast.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._imports.start()

    def _report_waiting(self) -> None:
        if not time.monotonic() - self._last_sent_s < _WAITING_PERIOD_S:
            self._send("waiting", text="another flash of this robot is going on")
        if not self._connected:
            raise GoneError("the sender is gone")

    def _put(self, message: Message) -> None:
        """Starts or resumes one upload."""
        name, start = digest(message, "sha256"), number(message, "start")
        if self._offer is None or name not in self._needs:
            raise ProtocolError(f"{name[:12]} was not requested")
        size = self._offer.sizes[name]
        # Bounds the total: a sender that repeats a member forever would block other flashes.
        self._allowance -= size - min(start, size)
        if self._allowance < 0:
            raise ProtocolError(f"{name[:12]} was sent more than {MAX_UPLOADS} times")
        incoming, part = self._turn.incoming, f"{name}{PART_SUFFIX}"
        with _uploading(incoming, part):
            if start == 0:
                _unlink(part, incoming)
            received = self._receive(part, start, size)
        try:
            if received == name:
                os.rename(part, name, src_dir_fd=incoming, dst_dir_fd=incoming)
            else:
                os.unlink(part, dir_fd=incoming)
        except FileNotFoundError:
            raise InstallError("another command (`physai robot gc`?) removed the upload; flash again") from None
        self._send("stored" if received == name else "damaged", sha256=name)

    def _receive(self, part: str, start: int, size: int) -> str:
        """Appends received bytes to an upload; returns the SHA-256 of the whole file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o644, dir_fd=self._turn.incoming), "r+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != start or not start <= size:
                raise ProtocolError(f"the upload of {part[:12]} does not have {start} of {size} bytes")
            hashed = file_digest(file, "sha256")
            done, acknowledged = start, start
            while done < size:
                data = self._source.data(min(CHUNK_BYTES, size - done))
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                hashed.update(data)
                done += len(data)
                if done - acknowledged >= ACKNOWLEDGE_BYTES:
                    self._send("got", bytes=done - acknowledged)
                    acknowledged = done
            if done > acknowledged:
                self._send("got", bytes=done - acknowledged)
            return hashed.hexdigest()

    def _take_time(self, message: Message) -> None:
        """Applies a signed time statement, for a robot with an unreliable clock."""
        if self._offer is None or not self._turn.is_held:
            raise ProtocolError("a time statement must come between offer and installation")
        self._agent().set_time(text(message, "statement").encode())

    def _install(self, message: Message) -> None:
        """Assembles, installs and activates the bundle."""
        unsafe, retry = flag(message, "unsafe_no_verdict"), flag(message, "retry")
        offer = self._offer
        if offer is None or not self._turn.is_held:
            raise ProtocolError("nothing is to be installed")
        agent = self._agent()
        if unsafe and not agent.config.requirements().unsafe_no_verdict:
            raise InstallError(
                "this robot takes no bundle without a verdict over ssh; its owner may let it (settings: "
                "unsafe_no_verdict), or install it on the robot itself"
            )
        from physai.deploy_jetson.update.agent.incoming import assemble

        data = assemble(agent.store, offer.recipe)
        if sha256(data).hexdigest() != offer.bundle:
            raise InstallError("the members do not make the bundle that was offered; was its file changed meanwhile?")
        found = agent.install(data, unsafe_no_verdict=unsafe, progress=self._report_stage)
        marker = found.marker
        runs = f"{marker.runtime.member} on {marker.runtime.backend}"
        self._send("installed", slot=found.slot, was_there=found.was_there, runs=runs, version=marker.version)
        self._forget_uploads(offer)
        if not found.active:
            agent.activate(retry=retry)
        self._send("trial", version=marker.version)
        self._turn.end()

    def _report_stage(self, stage: str, done: float) -> None:
        now = time.monotonic()
        if stage != self._last_stage[0] or not now - self._last_stage[1] < _STAGE_PERIOD_S:
            self._last_stage = (stage, now)
            self._send("stage", stage=stage, share=done)

    def _forget_uploads(self, offer: Offer) -> None:
        """Removes the uploads of an installed bundle."""
        for name in offer.sizes:
            _unlink(name, self._turn.incoming)

    def _watch(self, message: Message) -> None:
        """Watches the trial until it ends."""
        if self._offer is None:
            raise ProtocolError("nothing was offered, so there is nothing to watch")
        agent = self._agent()
        from physai.deploy_jetson.update.agent.watch import TrialWatcher

        watched = TrialWatcher(agent, tell=self._report_health).watch_trial()
        end, reason = watched.end, watched.reason
        if end in ("none", "ended elsewhere"):
            # The robot's own service was faster: report what it recorded.
            for event in reversed(agent.store.state().events):
                if event.bundle_sha256 == self._offer.bundle and event.kind in ("committed", "rolled-back"):
                    end, reason = event.kind, event.reason
                    break
        self._send("end", end=end, text=reason)

    def _report_health(self, finding: "HealthFinding") -> None:
        self._send("health", text=finding.reason, share=finding.progress)
        if not self._connected:
            raise GoneError("the sender no longer waits for the end of the trial")

    def _agent(self) -> "UpdateAgent":
        from physai.deploy_jetson.update.agent.agent import UpdateAgent

        offer = self._offer
        wait_s = 0.0 if offer is None else offer.wait_s
        return UpdateAgent(
            root=self._root, config_root=self._config, wait_s=wait_s, warn=lambda text: self._send("note", text=text)
        )


_MAKE_ROOM = "make room on the robot: `physai robot gc --idle`"
_REMEDIES = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EROFS: "the robot's file system is mounted read-only (mount -o remount,rw)",
    errno.EACCES: "log in as the user that owns the robot's tree",
}


@contextmanager
def _uploading(incoming: int, part: str) -> Generator[None]:
    """Turns OSError into InstallError and removes the upload."""
    try:
        yield
    except OSError as error:
        # If the disk is full, this frees the space.
        with suppress(OSError):
            _unlink(part, incoming)
        remedy = _REMEDIES.get(error.errno or 0, "`physai robot doctor` says more")
        raise InstallError(f"the upload cannot be written: {error.strerror}; {remedy}") from None


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _import_agent() -> None:
    with suppress(ModuleNotFoundError):  # raised again at the first use, and reported there
        importlib.import_module("physai.deploy_jetson.update.agent.agent")


def serve(root: Path, config: Path | None = None) -> int:
    """Serves one conversation over standard input and output.

    Args:
        root: the robot's tree.
        config: folder of the owner's files; None selects the default for that tree.
    """
    requested = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if requested and "robot receive" not in requested:
        print("physai: this key may flash this robot (`physai flash`), and nothing else", file=sys.stderr)
        return 2
    # Libraries may print: move stdout to stderr, so that only messages reach the sender.
    sink = PeerWriter(os.dup(sys.stdout.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return Receiver(root, PeerStream(sys.stdin.fileno()), sink, config=config).serve()
