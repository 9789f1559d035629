"""The identity of a run: its facts, its key and what differed between its sessions. Needs no torch."""

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from physai.sdk.base.errors import CheckpointError
from physai.sdk.base.files import create_durable, open_plain, oserror_as, read_plain
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.process.software import Software, running_software
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.preferences import PREFIX, RUN_FILE, entries_sha256
from physai.sdk.policy.header import PolicyError
from physai.sdk.policy.run_identity import Run, RunFacts
from physai.sim.policies.resolve import find_policy
from physai.sim.policies.saved_task import kept_task
from physai.train.settings.config import TrainConfig
from physai.twin.model.twin import load_twin

KEY_FILE = "run.key"
"""Private key of the run: 32 bytes of Ed25519, for the owner of the folder only."""

SESSION_KEYS = ("git_commit", "image", "generators", "ray", "version.ray", "version.physai-sdk", "version.torch")
"""Entries of the provenance that may differ when a run is resumed."""

MAX_SESSIONS = 64
"""Maximum number of different circumstances that a run records."""

_CHECKPOINT = "checkpoint.pt"
_KEY_BYTES = 32


def provenance(config: TrainConfig) -> dict[str, str]:
    """Seed, commit, versions and command line of a run."""
    software = running_software()
    return {
        "seed": str(config.seed),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": " ".join(["physai", *sys.argv[1:]])[:4096],
        **_versions("physai-sdk", "torch", "mujoco", "numpy"),
        **_entries(software),
    }


def session_facts(origin: Mapping[str, str]) -> dict[str, str]:
    """The entries of `SESSION_KEYS` for a session of this process."""
    facts = {**_versions("physai-sdk", "torch"), **_entries(running_software()), **origin}
    return {name: value for name, value in facts.items() if name in SESSION_KEYS}


def combined(sessions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The provenance of a run: that of its first session, with all values that later ones had."""
    entries = dict(sessions[0])
    for name in SESSION_KEYS:
        values = list(dict.fromkeys(session.get(name, "none") for session in sessions))
        if values != ["none"]:
            entries[name] = ", ".join(values)[:4096]
    return entries


def _versions(*names: str) -> dict[str, str]:
    return {f"version.{name}": metadata.version(name) for name in names}


def _entries(software: Software) -> dict[str, str]:
    commit = "" if software.commit is None else software.commit + ("+changes" if software.dirty else "")
    return {"git_commit": commit, **({} if software.image is None else {"image": software.image})}


def new_run(
    folder: Path, config: TrainConfig, contract: PolicyContract, *, twin: str | None, origin: Mapping[str, str]
) -> Run:
    """A new run with a new key, which is written into its folder.

    Args:
        folder: run folder, with the copies of task, robot and twin.
        config: settings.
        contract: of the task.
        twin: file of the twin that it is trained in.
        origin: `init_from`, `teacher` and what it learns from preferences, if there are any.

    Raises:
        CheckpointError: the key cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    facts = RunFacts(
        public_key=_public(key),
        software=running_software(),
        seed=str(config.seed),
        contract=contract.fingerprint,
        settings=settings_sha256(dataclasses.asdict(config)),
        files=_files(folder, twin, origin),
    )
    path = folder / KEY_FILE
    with oserror_as(CheckpointError, f"cannot write {path}"):
        # Of a run that ended before its first checkpoint.
        path.unlink(missing_ok=True)
        create_durable(path, key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()), mode=0o600)
    return Run.of(facts)


def run_key(folder: Path, run: Run) -> Ed25519PrivateKey | None:
    """The private key of a run; None if its folder was copied without it.

    Raises:
        CheckpointError: the key cannot be read, or is that of another run.
    """
    path = folder / KEY_FILE
    if not os.path.lexists(path):
        return None
    with oserror_as(CheckpointError, f"{path}: cannot be read"):
        data = read_plain(path, limit=_KEY_BYTES)
    if len(data) != _KEY_BYTES:
        raise CheckpointError(f"{path}: {len(data)} bytes, a key has {_KEY_BYTES}; restore it from a copy")
    key = Ed25519PrivateKey.from_private_bytes(data)
    if (found := _public(key)) != run.facts.public_key:
        raise CheckpointError(
            f"{path} is the key {found[:12]}…, but the run {run.id[:12]}… has {run.facts.public_key[:12]}…: key or "
            "config.json are of another run; restore them from a copy"
        )
    return key


def recorded_run(text: str, settings: Mapping[str, object], path: Path) -> Run:
    """The run that a configuration belongs to.

    Args:
        text: facts of the run.
        settings: the settings as they are written in the file.
        path: file of both, for messages.

    Raises:
        CheckpointError: the facts are malformed, or those of other settings.
    """
    try:
        run = Run.parse(text, source=str(path))
    except PolicyError as error:
        raise CheckpointError(str(error)) from None
    if (found := settings_sha256(settings)) != run.facts.settings:
        raise CheckpointError(
            f"{path}: the settings have SHA-256 {found[:12]}…, those of its run {run.facts.settings[:12]}…: one of the "
            "two was changed; restore it from a copy, or start a new run"
        )
    return run


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def settings_sha256(settings: Mapping[str, object]) -> str:
    """SHA-256 of settings as they are written: a later version may add some, or change a default."""
    return sha256_hex(json.dumps(settings, sort_keys=True).encode())


def _files(folder: Path, twin: str | None, origin: Mapping[str, str]) -> dict[str, str]:
    kept = kept_task(folder)
    files = {} if kept is None else {name.removesuffix("_sha256"): value for name, value in kept.hashes.items()}
    if twin is not None:
        loaded = load_twin(twin)
        logs = sorted(log.sha256 for log in (*loaded.logs.train, *loaded.logs.held_out))
        files["twin"] = loaded.hash
        files |= {"recordings": sha256_hex("\n".join(logs).encode())} if logs else {}
    if "init_from" in origin:
        files["init_from"] = _file_sha256(Path(origin["init_from"]) / _CHECKPOINT)
    if "demonstrations" in origin:
        files["demonstrations"] = origin["demonstrations"]
    if f"{PREFIX}reference" in origin:
        # Training by preferences alone knows its data only at the end.
        files[RUN_FILE] = entries_sha256(origin)
    if "teacher" in origin:
        files["teacher"] = _file_sha256(find_policy(Path(origin["teacher"])))
    return files


def _file_sha256(path: Path) -> str:
    import hashlib

    with oserror_as(CheckpointError, f"{path}: cannot be read"), open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
