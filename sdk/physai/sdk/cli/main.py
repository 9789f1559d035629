"""The `physai` command: runs a command of the entry-point group `physai.commands`.

Exit codes: the verb's own; 2 for bad input or a failed write, with one line on stderr; 130 on SIGINT; 141 when the
reader of a pipe closed it. A traceback is a bug.
"""

import os
import reprlib
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.extras import DISTRIBUTION
from physai.sdk.base.process.ending import ends_abruptly, leave
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.grammar import SHORT_CUTS, choose, extra_for, names, summary_of
from physai.sdk.cli.parsing.parser import Parser

_ABOUT = "Carries a robot policy from training, through a digital twin, onto the robot."


def main(argv: list[str] | None = None) -> int:
    """Runs `physai` with the arguments and returns its exit code; None: `sys.argv`, as this process's command."""
    code = _outcome(argv)
    return ended(code) if argv is None else code


def ended(code: int) -> int:
    """Prepare the end of this process, and return the exit code."""
    # The interpreter's tear-down ends what libraries started; another Ctrl-C would cut it short with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if ends_abruptly():
        leave(code)
    return code


def _outcome(argv: list[str] | None) -> int:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        # A unit like N·m must not end a run on a terminal that cannot encode it.
        reconfigure(errors="backslashreplace")
    # Processes started with -m, -c or by multiprocessing import from the working folder first, which may be a run, a
    # robot or a download of somebody else's: `numpy.py` in it would be run.
    os.environ["PYTHONSAFEPATH"] = "1"
    return exit_code(lambda: _dispatch(_without_ros(sys.argv[1:] if argv is None else argv)))


def exit_code(run: Callable[[], int], *, refuse: Callable[[str], int] | None = None) -> int:
    """Run a command and return its exit code, or the one that stands for its error.

    Args:
        run: the command.
        refuse: takes the text of an error that the user can mend, and returns the exit code. None to print the text on
            stderr and return 2.
    """
    refuse = refuse or _refuse
    try:
        code = run()
        sys.stdout.flush()
    except PhysaiError as error:
        return refuse(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The interpreter flushes stdout again at exit and would report the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # A full disk or a lost mount can fail any write; files that are written atomically stay intact.
        return refuse(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except MemoryError as error:
        return refuse(f"not enough memory{f': {error}' if str(error) else ''}; ask for less at once")
    except RuntimeError as error:
        # MuJoCo refuses an unknown back end when it is imported.
        if "MUJOCO_GL" not in str(error):
            raise
        return refuse(f"{error}; use egl, osmesa or glfw, or unset it")
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else 0
    return code


def _without_ros(arguments: list[str]) -> list[str]:
    """Drops the arguments from `--ros-args` up to `--` or the end."""
    # rclpy reads them from sys.argv itself.
    if "--ros-args" not in arguments:
        return arguments
    start = arguments.index("--ros-args")
    end = arguments.index("--", start) if "--" in arguments[start:] else len(arguments)
    return arguments[:start] + arguments[end + 1 :]


def _refuse(message: str) -> int:
    print(styled("physai: error:", "red", sys.stderr), printable(message), file=sys.stderr)
    return 2


def _dispatch(arguments: list[str]) -> int:
    for word in arguments:
        if "\0" in word:
            raise PhysaiError(f"an argument contains a NUL byte: {reprlib.repr(word)}")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0].startswith("-"):
        parser = Parser(prog="physai", add_help=False)
        parser.add_argument("-h", "--help", action="store_true")
        parser.add_argument("--version", action="version", version=f"physai {version(DISTRIBUTION)}")
        parser.parse(arguments[:1])
    return _run(arguments)


def _run(words: list[str]) -> int:
    chosen = choose(words)
    options = chosen.parse()
    try:
        return chosen.command.run(options)
    except SystemExit as request:
        # It would end physai without a word.
        source = chosen.name if chosen.entry is None else f"{chosen.name} ({chosen.entry.value})"
        raise PhysaiError(f"{source} ended the process: {request!r}; a verb returns its exit code") from request
    except ModuleNotFoundError as error:
        missing = None if chosen.entry is None else extra_for(chosen.entry, error)
        if missing is None:
            raise
        raise missing from error


def _help() -> str:
    short = [name for name in names() if name in SHORT_CUTS]
    rest = [name for name in names() if name not in SHORT_CUTS]
    daily = table(
        ("verb", "what it does", "in full"), [(n, summary_of(n), SHORT_CUTS[n].replace(".", " ")) for n in short]
    )
    others = table(("noun", "its verbs"), [(name, summary_of(name)) for name in rest])
    return (
        f"usage: physai NOUN VERB [OPTIONS], or physai VERB [OPTIONS]\n\n{_ABOUT}\n\n{printable(daily)}\n\n"
        f"{printable(others)}\n\n"
        "  -h, --help  show this; `physai NOUN --help` lists its verbs, `physai NOUN VERB --help` explains one\n"
        "  --version   show the version"
    )
