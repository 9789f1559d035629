"""The process that speaks for one that Ray ended: only for a `Head` that was made and not closed."""

import subprocess
import sys

import pytest

# The last words end this process as Ray does, without closing.
PROGRAM = """
import os, sys, threading
import ray
from physai.compute.ray.head import Head

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
if sys.argv[1] == "interrupted":
    begin = threading.Thread.start
    def interrupted(thread):
        if thread.name == "raylet":
            raise KeyboardInterrupt
        begin(thread)
    threading.Thread.start = interrupted
try:
    head = Head(ray, way_out="try again")
    if sys.argv[1] == "closed":
        head.close()
except KeyboardInterrupt:
    print("interrupted")
ray.shutdown()
os._exit(1)
"""


@pytest.mark.parametrize(("how", "speaks"), [("open", True), ("closed", False), ("interrupted", False)])
def test_it_speaks_only_for_a_head_that_was_open(how: str, speaks: bool) -> None:
    pytest.importorskip("ray")
    # Returns when the witness, too, has closed its standard error.
    ended = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False)
    assert ("Ray's process on this computer ended" in ended.stderr) == speaks
    assert (ended.stdout == "interrupted\n") == (how == "interrupted")
