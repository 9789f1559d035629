"""Serve twins, sessions and jobs from a data folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import MissingExtraError, PhysaiError, unknown_name
from physai.sdk.base.parameters.arguments import require_range
from physai.sdk.base.parameters.option import Option
from physai.sdk.cli.shared.options import RayAddress

if TYPE_CHECKING:
    from physai.compute.sandbox.reward import UserReward
    from physai.service.settings import ServiceSettings

    RewardFile = str | Path


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8800,
    data: Annotated[Path | str, Option(metavar="DIR")] = Path("physai-service"),
    db: Annotated[str | None, Option(metavar="URL")] = None,
    workers: int = 1,
    ray: RayAddress = None,
    device: Annotated[str, Option(metavar="DEVICE")] = "cpu",
    trust: Annotated[Path | str | None, Option(metavar="FILE")] = None,
    preferences: Annotated[Path | str | None, Option(metavar="DB")] = None,
    preferences_model: Annotated[Path | str | None, Option(old=("--preferences-robot",))] = None,
    rewards: Mapping[str, RewardFile] | None = None,
    reward_without: Annotated[Sequence[str], Option(repeat=True, metavar="LAYER,…")] = (),
    log: Path | str | None = None,
    tls_cert: Annotated[Path | str | None, Option(metavar="PEM")] = None,
    tls_key: Annotated[Path | str | None, Option(metavar="PEM")] = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve twins, sessions and jobs over HTTP until Ctrl-C; in the main thread only.

    Args:
        host: address to listen on.
        port: port to listen on.
        data: data folder.
        db: database: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME. None for SQLite in the data folder.
        workers: jobs that run at once.
        ray: run the jobs on Ray: auto (the cluster of RAY_ADDRESS or of this computer, else one started here), local
            (one started here), or HOST:PORT of a cluster.
        device: what computes the policy: cpu, cuda[:N], or tensorrt[:N] for TensorRT on that GPU.
        trust: trust file of `physai keys trust`, by which documents about robots are verified. None refuses them.
        preferences: ask the pairs of this preference database on the page /prefer.
        preferences_model: robot to draw there, if the task is not built in.
        rewards: by task, a Python file whose reward(steps) or rubric(episode) replaces the task's reward for OpenEnv's
            clients; it runs in a sandbox.
        reward_without: run the files of rewards although the kernel or container lacks this layer of their sandbox:
            namespaces, landlock.
        log: JSON line per request; - is standard error (default: requests.log in the data folder, at most 50 MB).
        tls_cert: certificate; needed off loopback.
        tls_key: the certificate's private key.
        say: called with the addresses, and with each reward and the layers that hold it.

    Raises:
        MissingExtraError: the extra `serve` is not installed.
        DeviceError: this machine lacks the device.
        TrustError: the trust file cannot be read, or its owners have not signed it.
        PhysaiError: an argument is out of range, the folder is in use, or the address is taken or may not be served.
    """
    try:
        from physai.service.serving.server import prepare
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"physai sim serve needs {error.name}; pip install 'physai-sdk[serve]'") from error
    from physai.compute.ray.cluster import check_address
    from physai.service.registry.units.unit_documents import load_trust
    from physai.service.settings import ServiceSettings, default_database
    from physai.sim.policies.devices import choose_policy_device

    require_range("port", port, 1, 65535)
    require_range("workers", workers, 0, 256)
    if (tls_cert is None) != (tls_key is None):
        raise PhysaiError("`tls_cert` and `tls_key` belong together; give both or neither")
    place = choose_policy_device(device)
    if ray is not None:
        check_address(ray)
        if device != "cpu":
            raise PhysaiError(f"`ray` computes policies on the CPU, not on `device` {device}; leave one out")
    if trust is not None:
        load_trust(Path(trust))
    folder = Path(data).absolute()
    settings = ServiceSettings(
        data=folder,
        database=db or default_database(folder),
        host=host,
        port=port,
        workers=workers,
        device=str(place),
        ray=ray,
        log=_path(log),
        trust=None if trust is None else Path(trust).absolute(),
        preferences=_path(preferences),
        preferences_robot=_path(preferences_model),
        tls_cert=_path(tls_cert),
        tls_key=_path(tls_key),
    )
    with ExitStack() as stack:
        opened = _open_rewards(rewards or {}, reward_without, stack, say)
        server = stack.enter_context(prepare(settings, rewards=opened))
        _say_addresses(settings, say)
        server.run()


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)


def _say_addresses(settings: ServiceSettings, say: Callable[[str], None]) -> None:
    address = f"{'https' if settings.tls_cert else 'http'}://{settings.host}:{settings.port}"
    say(f"serving {settings.data} at {address} (Ctrl-C stops)")
    if settings.preferences is not None:
        say(f"asking at {address}/prefer")


def _open_rewards(
    files: Mapping[str, RewardFile], without: Sequence[str], stack: ExitStack, say: Callable[[str], None]
) -> dict[str, UserReward]:
    """Starts the rewards and says which layers hold them."""
    from physai.compute.sandbox.reward import UserReward, parse_layers
    from physai.sim.tasks.registry import task_names

    rewards: dict[str, UserReward] = {}
    for task, file in files.items():
        if task not in task_names():
            raise unknown_name("task", task, task_names())
        reward = stack.enter_context(UserReward(Path(file), without=parse_layers(without)))
        rewards[task] = reward
        say(f"{reward.form} of {task}: {file}, SHA-256 {reward.sha256}, {reward.confinement}")
    return rewards
