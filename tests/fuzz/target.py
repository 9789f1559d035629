"""What is fuzzed, and what counts as a finding: an error that is none of ours, a second of work, or much memory."""

import resource
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from physai.sdk.base.errors import PhysaiError

MAX_S = 1.0
"""Most processor time for one input [s]; other processes on the machine do not count."""

MAX_GROWTH_KIB = 256 << 10
"""Most memory that one input may add to the process's peak [KiB]."""


@dataclass(frozen=True)
class Target:
    """One parser."""

    name: str
    parse: Callable[[bytes], object]
    make_originals: Callable[[], Sequence[bytes]]
    """Small sound documents, made through the functions that write them."""
    finish: Callable[[bytes], bytes] | None = None
    """Makes checksums right again, for what lies behind them; every second input has it."""
    max_s: float = MAX_S
    """Most processor time [s]; more for YAML, of which PyYAML reads some 100 kB a second."""
    weight: float = 1.0
    """Share of inputs, less for what is slow."""

    @cached_property
    def originals(self) -> Sequence[bytes]:
        return self.make_originals()


class _HangError(BaseException):
    """No Exception, so that no parser catches it."""


@contextmanager
def _limited(max_s: float) -> Generator[None]:
    def stop(*_: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, max_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def finding(target: Target, data: bytes) -> str:
    """What is wrong with how a parser took some bytes; empty if nothing is."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _limited(target.max_s):
            target.parse(data)
    except PhysaiError as error:
        try:
            str(error).encode("utf-8", "backslashreplace")
        except Exception as problem:
            return f"an error that cannot be shown: {problem!r}"
    except _HangError:
        return f"takes more than {target.max_s:g} s"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]} in {_place(error)}"
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    return "" if growth <= MAX_GROWTH_KIB else f"takes {growth} KiB"


def _place(error: BaseException) -> str:
    """The last of our own lines that the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/physai/" in frame.filename] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
