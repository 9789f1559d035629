"""`physai doctor`: checks this machine for what physai needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from physai.sdk.base.process.machine import MachineReport, inspect_machine
from physai.sdk.base.terminal import table
from physai.sdk.cli.verb import AsJson, verb


@verb(inspect_machine, summary="check this machine for what physai needs (Python, GPU, rendering, extras)")
def command(call: Callable[[], MachineReport], *, as_json: AsJson = False) -> int:
    """Check this machine.

    exit code: 1 there are problems, else 0
    """
    report = call()
    print(json.dumps(asdict(report), indent=2) if as_json else _text(report))
    return 1 if report.problems else 0


def _text(report: MachineReport) -> str:
    rows = [
        ("physai-sdk", report.physai),
        ("python", f"{report.python} ({report.executable})"),
        ("platform", report.platform),
        ("processors", str(report.cpus)),
        ("memory", f"{report.memory_bytes / 2**30:.1f} GiB"),
        ("free disk", f"{report.disk_free_bytes / 2**30:.1f} GiB"),
        *((("GPU", gpu) for gpu in report.gpus) if report.gpus else [("GPU", "none found")]),
        *((f"rendering {name}", state) for name, state in report.renderers.items()),
    ]
    needed_by: dict[str, list[str]] = {}
    installed: dict[str, str] = {}
    for extra, versions in report.extras.items():
        for name, version in versions.items():
            needed_by.setdefault(name, []).append(extra or "always")
            installed[name] = version or "missing"
    packages = [(name, installed[name], ", ".join(extras)) for name, extras in needed_by.items()]
    lines = [table(("what", "found"), rows, indent=""), ""]
    lines.append(table(("package", "version", "needed by the extras"), packages, indent=""))
    lines += ["", *(report.problems or ["no problems found"])]
    return "\n".join(lines)
