"""The robot's side of a flash: takes what it lacks, puts the bundle together, installs, activates, watches.

An upload that is cut short stays and is continued by the next flash. Once the robot has been told to install, it does
so whether or not anybody still listens; the slots are as safe as with any other installation. What is imported here is
little, so that the upload starts at once; the agent is imported while the upload comes in.
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

from physai.deploy_jetson.flash.protocol import (
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
from physai.deploy_jetson.flash.remote_inventory import PART_SUFFIX, RemoteInventory
from physai.deploy_jetson.flash.stream import GoneError, PeerWriter, Source, TurnLostError
from physai.deploy_jetson.flash.turn import Turn
from physai.deploy_jetson.slots.errors import InstallError
from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.deploy_jetson.agent.agent import UpdateAgent
    from physai.deploy_jetson.slots.health import HealthFinding

CHUNK_BYTES = 1 << 20
ACKNOWLEDGE_BYTES = 1 << 18
"""The other side hears of so many bytes that have arrived."""

_SWITCH_INTERVAL_S = 1e-4
_STAGE_PERIOD_S = 0.1
_WAITING_PERIOD_S = 1.0


class Receiver:
    """One conversation."""

    def __init__(self, root: Path, source: Source, sink: PeerWriter | BinaryIO, *, config: Path | None = None) -> None:
        """Prepares to listen.

        Args:
            root: the robot's tree.
            source: what the other side says.
            sink: gets what this side says.
            config: folder of the owner's files; None for the usual one of that tree.
        """
        self._root = root
        self._config = config
        self._source = source
        self._sink = sink
        self._heard = True
        self._saying = threading.Lock()
        self._said_s = 0.0
        self._ended = threading.Event()
        self._offer: Offer | None = None
        self._needs: dict[str, int] = {}
        self._allowance = 0
        self._turn = Turn(root)
        self._told = ("", 0.0)
        self._imports = threading.Thread(target=_import_agent, daemon=True)
        self._actions: dict[str, Callable[[Message], None]] = {
            "offer": self._take_offer,
            "time": self._take_time,
            "put": self._put,
            "install": self._install,
            "watch": self._watch,
        }

    def serve(self) -> int:
        """Listens until the other side has left, and returns the exit code of the process."""
        pulse = threading.Thread(target=self._stay_audible, daemon=True)
        try:
            self._say("hello", protocol=PROTOCOL, robot=RemoteInventory(self._root, self._config).robot())
            pulse.start()
            while line := self._source.line():
                message = decode(line)
                if message["say"] not in self._actions:
                    raise ProtocolError(f"a robot does not know what {message['say']!r:.40} means")
                self._actions[message["say"]](message)
        except GoneError:
            return 1
        except TurnLostError as error:
            self._turn.end()
            self._say("error", kind=TURN_LOST, text=str(error))
            return 1
        except PhysaiError as error:
            self._say("error", kind=type(error).__name__, text=str(error))
            return 2
        except ModuleNotFoundError as error:
            missing = f"the robot needs {error.name}, which is not installed there: pip install 'physai-sdk[robot]'"
            self._say("error", kind="MissingExtraError", text=missing)
            return 2
        except OSError as error:
            self._say("error", kind="OSError", text=f"{error.filename or self._root}: {error.strerror or error}")
            return 2
        finally:
            self._turn.end()
            self._ended.set()
            if pulse.is_alive():
                pulse.join()
            if self._imports.is_alive():
                # A thread that is cut off within an import can crash the interpreter at its end.
                self._imports.join()
        return 0

    def _say(self, what: str, **fields: Any) -> None:
        with self._saying:
            if not self._heard:
                return
            try:
                self._sink.write(encode(what, **fields))
                self._sink.flush()
                self._said_s = time.monotonic()
            except OSError:
                self._heard = False

    def _stay_audible(self) -> None:
        """Says that this process is alive wherever it has nothing else to say for a while: silence means dead."""
        while not self._ended.wait(ALIVE_S / 4):
            if time.monotonic() - self._said_s >= ALIVE_S:
                self._say("alive")

    def _take_offer(self, message: Message) -> None:
        if self._offer is not None:
            raise ProtocolError("one offer in a conversation")
        self._offer = offer = Offer.parse(message)
        self._turn.take(offer.wait_s, self._tell_waiting)
        self._source.others_wait = self._turn.others_wait
        holdings = RemoteInventory(self._root, self._config)
        holdings.check(offer)
        trial = holdings.trial() is not None
        if holdings.active_bundle() == offer.bundle:
            self._turn.end()
            self._say("holds", active=True, trial=trial, needs=[])
            return
        self._needs = holdings.needs(offer)
        self._allowance = MAX_UPLOADS * sum(offer.sizes[name] for name in self._needs)
        holdings.require_space(offer, self._needs)
        self._say("holds", active=False, trial=trial, needs=list(self._needs.items()))
        # The thread that receives must not wait for its turn as long as is usual.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._imports.start()

    def _tell_waiting(self) -> None:
        if not time.monotonic() - self._said_s < _WAITING_PERIOD_S:
            self._say("waiting", text="another flash of this robot is going on")
        if not self._heard:
            raise GoneError("nobody waits any more")

    def _put(self, message: Message) -> None:
        """Continues or begins one upload."""
        name, start = digest(message, "sha256"), number(message, "start")
        if self._offer is None or name not in self._needs:
            raise ProtocolError(f"{name[:12]} was not asked for")
        size = self._offer.sizes[name]
        # A bound on the whole: who sends a member again and again keeps others out.
        self._allowance -= size - min(start, size)
        if self._allowance < 0:
            raise ProtocolError(f"{name[:12]} was sent more than {MAX_UPLOADS} times")
        incoming, part = self._turn.incoming, f"{name}{PART_SUFFIX}"
        with _uploading(incoming, part):
            if start == 0:
                _unlink(part, incoming)
            found = self._receive(part, start, size)
        try:
            if found == name:
                os.rename(part, name, src_dir_fd=incoming, dst_dir_fd=incoming)
            else:
                os.unlink(part, dir_fd=incoming)
        except FileNotFoundError:
            raise InstallError("another command (`physai robot gc`?) removed the upload; flash again") from None
        self._say("stored" if found == name else "damaged", sha256=name)

    def _receive(self, part: str, start: int, size: int) -> str:
        """Appends what comes to an upload, and returns the SHA-256 of the whole."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o644, dir_fd=self._turn.incoming), "r+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != start or not start <= size:
                raise ProtocolError(f"{part[:12]} has another length than {start} of {size} bytes")
            hashed = file_digest(file, "sha256")
            done, told = start, start
            while done < size:
                data = self._source.data(min(CHUNK_BYTES, size - done))
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                hashed.update(data)
                done += len(data)
                if done - told >= ACKNOWLEDGE_BYTES:
                    self._say("got", bytes=done - told)
                    told = done
            if done > told:
                self._say("got", bytes=done - told)
            return hashed.hexdigest()

    def _take_time(self, message: Message) -> None:
        """Believes a signed statement of the time, for a robot whose clock cannot be."""
        if self._offer is None or not self._turn.is_held:
            raise ProtocolError("the time is told before an installation")
        self._agent().set_time(text(message, "statement").encode())

    def _install(self, message: Message) -> None:
        """Puts the bundle together, installs and activates it."""
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
        from physai.deploy_jetson.agent.incoming import assemble

        data = assemble(agent.store, offer.recipe)
        if sha256(data).hexdigest() != offer.bundle:
            raise InstallError("the members do not make the bundle that was offered; was its file changed meanwhile?")
        found = agent.install(data, unsafe_no_verdict=unsafe, progress=self._tell_stage)
        marker = found.marker
        runs = f"{marker.runtime.member} on {marker.runtime.backend}"
        self._say("installed", slot=found.slot, was_there=found.was_there, runs=runs, version=marker.version)
        self._forget_uploads(offer)
        if not found.active:
            agent.activate(retry=retry)
        self._say("trial", version=marker.version)
        self._turn.end()

    def _tell_stage(self, stage: str, done: float) -> None:
        now = time.monotonic()
        if stage != self._told[0] or not now - self._told[1] < _STAGE_PERIOD_S:
            self._told = (stage, now)
            self._say("stage", stage=stage, share=done)

    def _forget_uploads(self, offer: Offer) -> None:
        """Removes what now lies in a slot."""
        for name in offer.sizes:
            _unlink(name, self._turn.incoming)

    def _watch(self, message: Message) -> None:
        """Waits for the end of the trial, and brings it about unless the robot's own service does."""
        if self._offer is None:
            raise ProtocolError("nothing was offered, so there is nothing to watch")
        agent = self._agent()
        from physai.deploy_jetson.agent.watch import TrialWatcher

        watched = TrialWatcher(agent, tell=self._tell_health).watch_trial()
        end, reason = watched.end, watched.reason
        if end in ("none", "ended elsewhere"):
            for event in reversed(agent.store.state().events):
                if event.bundle_sha256 == self._offer.bundle and event.kind in ("committed", "rolled-back"):
                    end, reason = event.kind, event.reason
                    break
        self._say("end", end=end, text=reason)

    def _tell_health(self, finding: "HealthFinding") -> None:
        self._say("health", text=finding.reason, share=finding.progress)
        if not self._heard:
            raise GoneError("nobody waits for the end of the trial any more")

    def _agent(self) -> "UpdateAgent":
        from physai.deploy_jetson.agent.agent import UpdateAgent

        offer = self._offer
        wait_s = 0.0 if offer is None else offer.wait_s
        return UpdateAgent(
            root=self._root, config_root=self._config, wait_s=wait_s, warn=lambda text: self._say("note", text=text)
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
    """An upload that cannot be written is removed: a full disk needs the room."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            _unlink(part, incoming)
        remedy = _REMEDIES.get(error.errno or 0, "`physai robot doctor` says more")
        raise InstallError(f"the upload cannot be written: {error.strerror}; {remedy}") from None


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _import_agent() -> None:
    with suppress(ModuleNotFoundError):  # whoever uses it meets the error again, and says it
        importlib.import_module("physai.deploy_jetson.agent.agent")


def serve(root: Path, config: Path | None = None) -> int:
    """Speaks over standard input and output; whatever else prints goes to standard error.

    Args:
        root: the robot's tree.
        config: folder of the owner's files; None for the usual one of that tree.
    """
    asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if asked and "robot receive" not in asked:
        print("physai: this key may flash this robot (`physai flash`), and nothing else", file=sys.stderr)
        return 2
    sink = PeerWriter(os.dup(sys.stdout.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return Receiver(root, Source(sys.stdin.fileno()), sink, config=config).serve()
