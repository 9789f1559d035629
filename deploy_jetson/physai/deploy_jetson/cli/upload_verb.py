"""`physai robot upload`: send the robot's recordings to a service or a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from physai.deploy_jetson.upload.recording_upload import RecordingUpload, upload_recordings
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.verb import AsJson, verb


@verb(upload_recordings, summary="send finished recordings to a service or a folder")
def upload_verb(call: Callable[..., RecordingUpload], *, as_json: AsJson = False) -> int:
    """Send recordings.

    exit code: 1 if a recording was not sent, or a document not filed
    """
    shown: dict[str, Any] = {"progress": _progress} if sys.stderr.isatty() and not as_json else {}
    result = call(**shown)
    for problem in result.problems:
        print(styled("physai: note:", "bold", sys.stderr), printable(problem), file=sys.stderr)
    if as_json:
        print(json.dumps(asdict(result), indent=2))
    else:
        print("\n".join(printable(f"sent {name}") for name in result.sent) or "nothing to send")
        young = f", {result.unfinished} not finished" if result.unfinished else ""
        filed = f"; {result.filed} documents filed" if result.filed else ""
        print(f"{result.bytes_sent} bytes sent, {result.there} recordings were there{young}{filed}")
    return 1 if result.problems else 0


def _progress(name: str, share: float) -> None:
    end = "\n" if share == 1.0 else ""
    print(f"\r\x1b[K{printable(name)} {share:4.0%}", end=end, file=sys.stderr, flush=True)
