"""The process in which a user's reward runs: `python -I -m physai.compute.sandbox.child REQUESTS REPLIES`.

It locks itself down before it is given any of the user's code. A reader of its replies must believe none of them: the
user's code can write to the same pipe.
"""

import importlib
import json
import os
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, cast

from physai.compute.sandbox.frames import ERROR, FACTS, NUMBERS, REPLY, REQUEST, unpack_arrays
from physai.compute.sandbox.lockdown import LockdownError, lock_down

FORMS = ("reward", "rubric")
"""Names of the function that a file defines: a number per step, or one per episode."""
MAX_MESSAGE = 500
"""Characters of a message about the user's code."""


class RewardFileError(Exception):
    """The user's file, or what its function returned, is not as it must be."""


def main(requests: int, replies: int) -> None:
    """Answers requests until there are no more."""
    with open(requests, "rb") as stream:
        facts, _ = _read(stream)
        try:
            missing = lock_down(facts["limits"])
        except LockdownError as error:
            _reply(replies, 0, ERROR, json.dumps({"line": None, "message": str(error)}).encode())
            return
        _reply(replies, 0, FACTS, json.dumps({"missing": missing}).encode())
        _answer(stream, replies)


def _answer(stream: BinaryIO, replies: int) -> None:
    facts, data = _read(stream)
    name = str(facts["name"])
    try:
        form, function = _load(bytes(data), name)
        line = function.__code__.co_firstlineno
    except BaseException as error:
        _reply(replies, 1, ERROR, _describe(error, name))
        return
    _reply(replies, 1, FACTS, json.dumps({"form": form, "line": line}).encode())
    while True:
        facts, data = _read(stream)
        try:
            numbers = _score(form, function, facts, data)
        except BaseException as error:
            _reply(replies, facts["call"], ERROR, _describe(error, name))
        else:
            _reply(replies, facts["call"], NUMBERS, numbers)


def _read(stream: BinaryIO) -> tuple[dict[str, Any], bytearray]:
    head = stream.read(REQUEST.size)
    if len(head) < REQUEST.size:
        sys.exit(0)
    length, size = REQUEST.unpack(head)
    text = stream.read(length)
    # Not bytes, so that arrays of it may be written to.
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = cast("Any", stream).readinto(view)
        if not count:
            sys.exit(0)
        view = view[count:]
    return json.loads(text), data


def _reply(replies: int, call: int, kind: int, data: bytes) -> None:
    view = memoryview(REPLY.pack(call, kind, len(data)) + data)
    while view:
        view = view[os.write(replies, view) :]


def _load(source: bytes, name: str) -> tuple[str, types.FunctionType]:
    # Behind the lock, as all libraries; here, so that what it needs of time and memory is not the first call's.
    importlib.import_module("numpy")
    module = types.ModuleType("user_reward")
    module.__file__ = name
    # Dataclasses look their module up.
    sys.modules[module.__name__] = module
    exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)
    found = [form for form in FORMS if isinstance(getattr(module, form, None), types.FunctionType)]
    if len(found) != 1:
        raise RewardFileError(
            f"defines {' and '.join(found) or 'neither function'}; define reward(steps), which returns a number per "
            "step, or rubric(episode), which returns one number, and not both"
        )
    return found[0], getattr(module, found[0])


def _score(form: str, function: Callable[[Any], Any], facts: Mapping[str, Any], data: bytearray) -> bytes:
    import numpy as np

    rows: int = facts["rows"]
    returned = function(unpack_arrays(facts, data))
    numbers = np.asarray(returned, np.float64)
    expected = (rows,) if form == "reward" else ()
    if numbers.shape != expected:
        what = f"a number for each of {rows} steps" if form == "reward" else "one number"
        raise RewardFileError(f"{form}() returned an array of shape {numbers.shape}, expected {expected}: {what}")
    return numbers.tobytes()


def _describe(error: BaseException, name: str) -> bytes:
    """The raised error, and the last line of the user's file that had a part in it."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == name else None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == name:
            line = number
    try:
        text = str(error)
    except BaseException:
        text = "(its text cannot be read)"
    message = text if isinstance(error, RewardFileError) else f"{type(error).__name__}: {text}"
    return json.dumps({"line": line, "message": message[:MAX_MESSAGE]}).encode()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
