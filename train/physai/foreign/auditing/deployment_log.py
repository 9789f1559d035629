"""A deployment's own log: arrays by name, from an NPZ or CSV file."""

import io
import re
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.errors import unknown_name
from physai.sdk.base.files import read_bounded
from physai.sdk.contract.policy_contract import PolicyContract
from physai.twin.logs.readers.csv_file import read_csv

Floats = NDArray[np.float64]

MAX_BYTES = 256 << 20
MIN_ROWS = 20
QUATERNION_SHARE = 0.05
"""Greatest difference of a quaternion's length from 1."""
MAX_ROWS = 100_000
_NUMBERED = re.compile(r"^(.+?)[_.\[](\d{1,5})\]?$")


@dataclass(frozen=True)
class DeploymentLog:
    """Observations, actions and measurements of a robot's program, a row for each control period."""

    arrays: Mapping[str, Floats]
    """By name, shape (rows, width)."""
    unread: str = ""
    """Arrays that may be the observation and are not read, in words; empty without any."""

    @property
    def rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    def get(self, name: str) -> Floats | None:
        """An array; None if the log has none of that name."""
        return self.arrays.get(name)


def read_deployment_log(
    path: Path, contract: PolicyContract, names: Mapping[str, str], *, observation: int
) -> DeploymentLog:
    """Read a log.

    Args:
        path: NPZ with arrays of shape (rows, width), or CSV whose columns are `NAME_0`, `NAME_1` … or, for joints,
            `JOINT_pos`, `JOINT_vel` and `JOINT_effort`.
        contract: names what is looked for, and the order of the joints.
        names: names in the log by the names here, where they differ.
        observation: number of elements of the network's observation.

    Raises:
        ForeignPolicyError: the file cannot be read, an array has another width than the contract says, or what is
            needed is missing.
    """
    found = _npz(path) if path.suffix.lower() == ".npz" else _csv(path, contract)
    widths = _widths(contract, observation)
    for name, own in names.items():
        if name not in widths:
            raise unknown_name("part of a log", name, widths)
        if own not in found:
            raise ForeignPolicyError(
                f"{path}: has no {own!r} for {name}; it has {', '.join(sorted(found)) or 'nothing'}"
            )
        found[name] = found[own]
    arrays: dict[str, Floats] = {}
    for name, width in widths.items():
        if name not in found:
            continue
        value = found[name]
        value = value[:, None] if value.ndim == 1 else value
        if value.ndim != 2 or value.shape[1] != width:
            raise ForeignPolicyError(f"{path}: {name} has the shape {value.shape}, expected (rows, {width})")
        arrays[name] = value
    unread = "" if "observation" in arrays else _unread(found, {*widths, *names.values()}, observation)
    _require(path, arrays, unread)
    return DeploymentLog(arrays, unread)


def _widths(contract: PolicyContract, observation: int) -> dict[str, int]:
    joints, action = len(contract.robot.joints), contract.action.size
    own = {"time": 1, "index": 1, "observation": observation, "action": action, "target": action}
    own |= {"joint_pos": joints, "joint_vel": joints, "joint_effort": joints}
    fields = {field.name: field.size for field in (*contract.robot.sensors, *contract.command.fields)}
    return {**fields, **own}


def _unread(found: Mapping[str, Floats], read: Collection[str], width: int) -> str:
    # Arrays of one column are no observation, such as the columns of a CSV.
    others = [name for name, value in found.items() if name not in read and value.ndim == 2 and value.shape[1] > 1]
    others.sort(key=lambda name: (found[name].shape[1] != width, name))
    listed = ", ".join(others[:4]) + (" …" if len(others) > 4 else "")
    return f"; not read: {listed}; if one of them is it: --names observation={others[0]}" if others else ""


def _require(path: Path, arrays: Mapping[str, Floats], unread: str) -> None:
    if "observation" not in arrays and "target" not in arrays:
        raise ForeignPolicyError(f"{path}: has neither observation nor target, one of which is compared{unread}")
    lengths = {name: len(value) for name, value in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ForeignPolicyError(f"{path}: arrays of different lengths: {lengths}")
    if next(iter(lengths.values())) < MIN_ROWS:
        raise ForeignPolicyError(f"{path}: {next(iter(lengths.values()))} rows, at least {MIN_ROWS} are needed")
    if next(iter(lengths.values())) > MAX_ROWS:
        raise ForeignPolicyError(
            f"{path}: {next(iter(lengths.values()))} rows, at most {MAX_ROWS} are read; cut the log"
        )
    bad = [name for name, value in arrays.items() if not np.isfinite(value).all()]
    if bad:
        raise ForeignPolicyError(f"{path}: {bad[0]} holds numbers that are not finite")
    quat = arrays.get("imu_quat")
    if quat is not None and not (np.abs(np.linalg.norm(quat, axis=1) - 1.0) < QUATERNION_SHARE).all():
        raise ForeignPolicyError(f"{path}: imu_quat holds a quaternion whose length is not 1")
    time = arrays.get("time")
    if time is not None and not (np.diff(time[:, 0]) > 0.0).all():
        raise ForeignPolicyError(f"{path}: time does not ascend")


def _npz(path: Path) -> dict[str, Floats]:
    data = read_bounded(path, limit=MAX_BYTES, error=ForeignPolicyError)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > MAX_BYTES:
            raise ForeignPolicyError(f"{path}: {size} bytes when unpacked, at most {MAX_BYTES} are read")
        file: Any = np.load(io.BytesIO(data), allow_pickle=False)
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
        wrong = [name for name, value in arrays.items() if value.dtype.kind not in "fiub"]
        if wrong:
            raise ForeignPolicyError(f"{path}: {wrong[0]} is of type {arrays[wrong[0]].dtype}, expected real numbers")
        return {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    except ForeignPolicyError:
        raise
    except Exception as error:  # zipfile and numpy raise many types of exceptions for damaged files
        raise ForeignPolicyError(f"{path}: not an NPZ file of numbers: {error}") from None


def _csv(path: Path, contract: PolicyContract) -> dict[str, Floats]:
    columns = {name: value for stream in read_csv(path).streams for name, value in stream.columns.items()}
    found: dict[str, Floats] = {name: np.asarray(value, np.float64)[:, None] for name, value in columns.items()}
    numbered: dict[str, list[tuple[int, str]]] = {}
    for name in columns:
        if match := _NUMBERED.match(name):
            numbered.setdefault(match[1], []).append((int(match[2]), name))
    for name, parts in numbered.items():
        # A gap would move all later columns by one; such a name is then not of the log.
        if sorted(number for number, _ in parts) == list(range(len(parts))):
            found[name] = np.stack([columns[column] for _, column in sorted(parts)], axis=1)
    for name, suffix in (("joint_pos", "pos"), ("joint_vel", "vel"), ("joint_effort", "effort")):
        names = [f"{joint}_{suffix}" for joint in contract.robot.joint_names]
        if all(column in columns for column in names):
            found[name] = np.stack([columns[column] for column in names], axis=1)
    return found
