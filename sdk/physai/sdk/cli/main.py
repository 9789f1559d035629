"""The `physai` command: runs one of the verbs in the entry-point group `physai.commands`.

Exit codes: the verb's own; 2 for bad input or a failed write, with one line on stderr; 130 on SIGINT; 141 when the
reader of a pipe closed it. A traceback is a bug.
"""

import os
import reprlib
import signal
import sys
from importlib.metadata import EntryPoint, version

from physai.sdk.base.errors import MissingExtraError, PhysaiError, unknown_name
from physai.sdk.base.extras import DISTRIBUTION, missing_extra
from physai.sdk.base.plugins import contributions
from physai.sdk.base.process.ending import ends_abruptly, leave
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parser import Parser

_EXTRAS = {"physai.train": "train", "physai.sim": "sim", "physai.deploy_jetson": "robot", "physai.ros": "ros"}
"""The extra that installs each package's dependencies."""

_ABOUT = "Carries a robot policy from training, through a digital twin, onto the robot."


def main(argv: list[str] | None = None) -> int:
    """Runs `physai` with the arguments and returns its exit code; None: `sys.argv`, as this process's command."""
    code = _outcome(argv)
    if argv is None:
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
    try:
        code = _dispatch(_without_ros(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except PhysaiError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The interpreter flushes stdout again at exit and would report the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # A full disk or a lost mount can fail any write; files that are written atomically stay intact.
        return _refuse(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except MemoryError as error:
        return _refuse(f"not enough memory{f': {error}' if str(error) else ''}; ask for less at once")
    except RuntimeError as error:
        # MuJoCo refuses an unknown back end when it is imported.
        if "MUJOCO_GL" not in str(error):
            raise
        return _refuse(f"{error}; use egl, osmesa or glfw, or unset it")
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
    return _run(arguments[0], arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    verbs = contributions("physai.commands")
    if name not in verbs:
        raise unknown_name("verb", name, verbs)
    entry = verbs[name]
    command = _load(entry)
    parser = Parser(prog=f"physai {name}", description=command.summary)
    try:
        command.add_arguments(parser)
        return command.run(parser.parse(arguments))
    except ModuleNotFoundError as error:
        missing = _missing_extra(entry, error)
        if missing is None:
            raise
        raise missing from error


def _load(entry: EntryPoint) -> CliCommand:
    """Loads a verb.

    Raises:
        PhysaiError: its module cannot be imported or contains no command.
    """
    try:
        command = entry.load()
    # Importing a third party's plugin can raise anything; it must not break the other verbs.
    except Exception as error:
        missing = _missing_extra(entry, error)
        raise missing or PhysaiError(f"{entry.name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(command, CliCommand):
        raise PhysaiError(f"{entry.name} cannot be loaded: {entry.value} is {type(command).__name__}, not Command")
    return command


def _missing_extra(entry: EntryPoint, error: Exception) -> MissingExtraError | None:
    """An error that names the extra to install; None if the cause is not a missing dependency."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.split(".")[0] == "physai":
        return None
    extra = next((e for package, e in _EXTRAS.items() if entry.module.startswith(f"{package}.")), None)
    return missing_extra(entry.name, error, preferred=extra)


def _help() -> str:
    rows: list[tuple[str, str]] = []
    for name, entry in contributions("physai.commands").items():
        try:
            rows.append((name, _load(entry).summary))
        except PhysaiError as error:
            rows.append((name, f"unavailable: {error}".splitlines()[0]))
    verbs = table(("verb", "what it does"), rows)
    return (
        f"usage: physai VERB [OPTIONS]\n\n{_ABOUT}\n\n{printable(verbs)}\n\n"
        "  -h, --help  show this; `physai VERB --help` explains a verb\n"
        "  --version   show the version"
    )
