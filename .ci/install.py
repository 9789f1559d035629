"""Makes a virtual environment and installs physai into it, with uv: the packages are pip's, in a tenth of the time.

    python3 .ci/install.py .venv '.[train]'           # an editable install; versions from constraints.txt
    python3 .ci/install.py .venv dist/physai.whl --installer pip

uv reads its own settings only, so it is told what pip's settings say: indexes, folders of wheels, certificates and
further constraints. Settings of uv's own (UV_…) come first. Where uv cannot be installed, pip installs.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"

SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "constraint": "UV_CONSTRAINT",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""Settings of pip and the variable by which uv is told; uv is told no others."""

SHOWN_LINES = 6
"""Last lines of an installer's messages that are printed after a failure."""

UNREACHABLE = re.compile(
    r"ConnectionError|NameResolutionError|TimeoutError|ProxyError|dns error|error sending request|failed to lookup "
    r"address|tcp connect|timed out|network was disabled",
    re.IGNORECASE,
)
"""How pip and uv say that an index cannot be reached."""

COMMAS = ("UV_FIND_LINKS",)
"""Variables whose items uv separates by commas; those of the others it separates by spaces."""


def main() -> int:
    """Makes the environment; returns the exit code of the installer that failed, or 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("venv", type=Path, help="folder of the environment; made unless it exists")
    parser.add_argument("what", nargs="+", help="wheels, packages, or the project, editable, with extras: '.[train]'")
    parser.add_argument("-r", dest="lists", action="append", default=[], metavar="FILE", help="file with packages")
    parser.add_argument("--installer", choices=("uv", "pip"), default="uv", help="default: uv, or pip where none is")
    given = parser.parse_args()
    python = given.venv / "bin" / "python"
    # Into an existing environment this installs what is missing, and keeps what is there.
    if not has_pip(python) and subprocess.run([sys.executable, "-m", "venv", given.venv], check=False).returncode:
        print(f"no virtual environment could be made in {given.venv}: is python3-venv installed?", file=sys.stderr)
        return 1
    wanted = ["--quiet", "-c", str(CONSTRAINTS)]
    for name in given.what:
        wanted += ["-e", name] if name.split("[")[0] == "." else [name]
    wanted += [word for file in given.lists for word in ("-r", file)]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    if given.installer == "uv" and has_uv(python, pip):
        command = [str(given.venv / "bin" / "uv"), "pip", "install", "--python", str(python), *wanted]
        environment = {**settings_for_uv(pip), **os.environ}
        return installed(command, environment, "pip may tell more, or do better: make INSTALLER=pip …")
    return installed([*pip, "install", *wanted], dict(os.environ), "the lines above say why")


def installed(command: list[str], environment: dict[str, str], hint: str) -> int:
    """Runs an installer; after a failure prints its last lines, then what to do. Returns its exit code."""
    ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = ended.stderr.strip().splitlines()
    if not ended.returncode:
        print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr)
        return 0
    print(*lines[-SHOWN_LINES:], sep="\n", file=sys.stderr)
    if UNREACHABLE.search(ended.stderr):
        hint = (
            "the package index cannot be reached: check the network, or give pip a proxy or an index that it can reach "
            "(`pip config set global.proxy URL`, `global.index-url URL`); then run make again"
        )
    print(f"\nThe packages could not be installed: {hint}", file=sys.stderr)
    return ended.returncode


def has_pip(python: Path) -> bool:
    """Whether an environment has Python and pip; uv makes some without pip, and so does a kill."""
    asked = [python, "-m", "pip", "--version"]
    return python.exists() and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def has_uv(python: Path, pip: list[str]) -> bool:
    """Whether the environment has uv, if need be after installing it."""
    if (python.parent / "uv").exists():
        return True
    asked = [*pip, "install", "--quiet", "--only-binary", "uv", "-c", str(CONSTRAINTS), "uv"]
    ended = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode == 0:
        return True
    why = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    print(f"uv could not be installed ({why}), so pip installs, which takes minutes", file=sys.stderr)
    return False


def settings_for_uv(pip: list[str]) -> dict[str, str]:
    """The variables that tell uv what pip's files and variables say."""
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    variables: dict[str, str] = {}
    for name, value in parse_settings(listed).items():
        variable = SETTINGS.get(name)
        if variable:
            variables[variable] = ("," if variable in COMMAS else " ").join(value.split())
    if "UV_INDEX" in variables:
        # As pip does: of all indexes, the newest version that is allowed.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def parse_settings(listed: str) -> dict[str, str]:
    """Settings by name from the lines of `pip config list`; of several sources the strongest, as pip has it."""
    strength = {"global": 0, "install": 1, ":env:": 2}
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in strength and strength[section] >= found.get(name, (-1, ""))[0]:
            found[name] = strength[section], str(ast.literal_eval(value))
    return {name: value for name, (_, value) in found.items()}


if __name__ == "__main__":
    sys.exit(main())
