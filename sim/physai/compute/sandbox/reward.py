"""A user's reward or rubric from a Python file, run in a sandboxed process that is given arrays and returns numbers."""

import hashlib
import json
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from physai.compute.sandbox.frames import FACTS, NUMBERS, pack, pack_arrays
from physai.compute.sandbox.process import SandboxedProcess, SandboxError
from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.files import read_plain
from physai.sdk.base.terminal import printable

Floats = npt.NDArray[np.float64]
Form = Literal["reward", "rubric"]
"""A number per step, or one per episode."""
Layer = Literal["namespaces", "landlock"]
"""What may be done without, where kernel or container have none."""
LAYERS: tuple[Layer, ...] = get_args(Layer)
MAX_SOURCE = 1 << 20
"""Greatest size of a file [bytes]."""
MAX_REQUEST = 64 << 20
"""Greatest size of the arrays of one call [bytes]."""


def parse_layers(names: Collection[str]) -> list[Layer]:
    """Layers by name, from options that may list several, as `namespaces,landlock`.

    Raises:
        UnknownNameError: there is no such layer, or it cannot be done without.
    """
    given = [name for names_ in names for name in names_.split(",")]
    for name in given:
        if name not in LAYERS:
            raise unknown_name("layer that a sandbox can be without", name, LAYERS)
    return [layer for layer in LAYERS if layer in given]


class UserRewardError(PhysaiError):
    """A user's reward file cannot be run, failed, or returned what is no reward."""


@dataclass(frozen=True, kw_only=True)
class RewardLimits:
    """Resources that a reward may use."""

    call_s: float = 5.0
    """Time of one call on the clock [s]."""
    start_s: float = 60.0
    """Time to start Python, to load NumPy, and to run the file's own statements [s], each."""
    memory_bytes: int = 1 << 30
    """Address space, of which Python and NumPy take about a tenth."""
    cpu_s: int = 3600
    """Processor time of one process [s]; a new one is started before it is used up."""


class UserReward:
    """The function `reward` or `rubric` of a file. Every method may be called from any thread; calls wait in line.

    The file is read once: what is hashed is what runs. The process lives from call to call, and a new one is started
    after one that crashed or was killed, so the function must keep nothing between calls that it cannot do without.
    """

    def __init__(
        self,
        path: Path,
        *,
        limits: RewardLimits | None = None,
        without: Collection[Layer] = (),
        label: str | None = None,
    ) -> None:
        """Starts the process and loads the file in it.

        Args:
            path: Python file that defines `reward(steps)` or `rubric(episode)`.
            limits: what it may use.
            without: layers that may be missing.
            label: name of the file in messages; its path if None.

        Raises:
            UserRewardError: the file cannot be read or loaded, or a layer is missing here that is not in `without`.
        """
        try:
            self._source = read_plain(path, limit=MAX_SOURCE)
        except OSError as error:
            raise UserRewardError(f"{path}: {error.strerror or error}; give a Python file") from error
        if len(self._source) > MAX_SOURCE:
            raise UserRewardError(f"{path}: more than {MAX_SOURCE} bytes, the most that a reward file may have")
        self.sha256 = hashlib.sha256(self._source).hexdigest()
        self.form: Form = "reward"
        self.missing: dict[str, str] = {}
        """Layers that are missing, with the reasons."""
        self._name = label or str(path)
        self._limits = limits or RewardLimits()
        self._without = frozenset(without)
        self._lock = threading.Lock()
        self._line = 1
        self._calls = 1
        self._spent_s = 0.0
        self._process: SandboxedProcess | None = None
        self._start()

    def __enter__(self) -> "UserReward":
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process."""
        self.close()

    def close(self) -> None:
        """Ends the process; a later call starts another."""
        with self._lock:
            self._stop()

    @property
    def pid(self) -> int | None:
        """Identifier of the process; None if there is none."""
        return None if self._process is None else self._process.pid

    @property
    def confinement(self) -> str:
        """The layers that hold it, and those that are missing, for people."""
        held = [name for name in LAYERS if name not in self.missing]
        lacking = "".join(f", WITHOUT {name} ({why})" for name, why in self.missing.items())
        return f"held by {', '.join(['rlimits', 'seccomp', *held])}{lacking}"

    def score(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Floats:
        """Calls the function.

        Args:
            arrays: what it is given, by name; the first axis of each is the step.

        Returns:
            A number per step for `reward`, shape (steps,); one for `rubric`, shape (1,).

        Raises:
            UserRewardError: the function raised, took too long or too much, ended its process, or returned numbers that
                are not finite or not as many as there are steps. The next call is not affected.
        """
        rows = {len(array) for array in arrays.values()}
        if len(rows) != 1:
            raise ValueError(f"arrays with {sorted(rows)} steps")
        (steps,) = rows
        size = sum(8 * array.size for array in arrays.values())
        if not size <= MAX_REQUEST:
            raise UserRewardError(f"{self._name}: {size} bytes for one call, at most {MAX_REQUEST}; score fewer steps")
        with self._lock:
            numbers = self._call(arrays, steps)
        finite = np.isfinite(numbers)
        if not finite.all():
            at = int(np.argmin(finite))
            where = f"for step {at} of {steps}" if self.form == "reward" else f"for an episode of {steps} steps"
            raise self._error(self._line, f"{self.form}() returned {numbers[at]} {where}; return finite numbers")
        return numbers

    def _call(self, arrays: Mapping[str, npt.NDArray[Any]], steps: int) -> Floats:
        if self._spent_s + self._limits.call_s > self._limits.cpu_s:
            self._stop()
        if self._process is None or not self._process.alive:
            self._start()
        self._calls += 1
        request = pack_arrays({"call": self._calls, "rows": steps}, arrays)
        expected = steps if self.form == "reward" else 1
        kind, data = self._ask(request, self._calls, numbers=expected, limit_s=self._limits.call_s)
        if kind != NUMBERS:
            raise self._told(data)
        return np.frombuffer(data, "<f8").astype(np.float64)

    def _start(self) -> None:
        self._stop()
        limits = {"memory_bytes": self._limits.memory_bytes, "cpu_s": self._limits.cpu_s}
        self._process = SandboxedProcess()
        self._calls, self._spent_s = 1, 0.0
        try:
            found = self._facts(pack({"limits": limits}), 0)["missing"]
            self.missing = {name: str(found[name]) for name in LAYERS if name in found}
            self._require_layers()
            facts = self._facts(pack({"name": self._name}, self._source), 1)
            # From here on it is the user's code that may have answered.
            line = facts.get("line")
            self.form = "rubric" if facts.get("form") == "rubric" else "reward"
            self._line = line if type(line) is int else 1
        except BaseException:
            self._stop()
            raise

    def _require_layers(self) -> None:
        refused = [name for name in self.missing if name not in self._without]
        if refused:
            told = "; ".join(f"{name}: {self.missing[name]}" for name in refused)
            raise UserRewardError(
                f"{self._name}: the sandbox lacks {' and '.join(refused)} here ({told}); run it where they are to be "
                f"had, or accept that with `reward_without` {','.join(refused)}, if you wrote the file or have read it"
            )

    def _stop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _facts(self, request: bytes, call: int) -> dict[str, Any]:
        kind, data = self._ask(request, call, numbers=0, limit_s=self._limits.start_s)
        if kind != FACTS:
            raise self._told(data)
        return self._read(data)

    def _ask(self, request: bytes, call: int, *, numbers: int, limit_s: float) -> tuple[int, bytes]:
        assert self._process is not None
        started = time.monotonic()
        try:
            return self._process.ask(request, call=call, numbers=numbers, limit_s=limit_s)
        except SandboxError as error:
            raise self._error(self._line, str(error)) from None
        finally:
            # The process has one thread, which uses no more processor time than passes.
            self._spent_s += time.monotonic() - started

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            found: Any = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._error(self._line, "its process sent a reply that is no JSON object")
        return cast("dict[str, Any]", found)

    def _told(self, data: bytes) -> UserRewardError:
        facts = self._read(data)
        line, message = facts.get("line"), facts.get("message")
        return self._error(line if type(line) is int else None, str(message)[:500])

    def _error(self, line: int | None, message: str) -> UserRewardError:
        where = self._name if line is None else f"{self._name}, line {line}"
        return UserRewardError(printable(f"{where}: {message}".replace("\n", " ")))
