"""Access tokens of a service, created, listed and revoked; a running service notices within seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.files import oserror_as
from physai.sdk.base.parameters.arguments import require_choice
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.service.auth.tokens import TokenStore

DataFolder = Annotated[Path | str, Option(metavar="DIR")]
DatabaseUrl = Annotated[str | None, Option(metavar="URL")]
DATA = Path("physai-service")


def create_token(
    name: str,
    *,
    scope: Literal["read", "run", "admin"] = "run",
    days: Annotated[float | None, Option(metavar="N")] = None,
    token_file: Path | str | None = None,
    data: DataFolder = DATA,
    db: DatabaseUrl = None,
) -> str:
    """Create an access token of a service; from now on the service answers no request without one.

    Args:
        name: name of the token, such as ci or alice.
        scope: read, run (sessions and jobs) or admin.
        days: days until the token expires. None for never.
        token_file: store the token in this file instead of a random one, in place of an older one of this name.
        data: data folder.
        db: database, as for `physai sim serve`.

    Returns:
        The token; it cannot be read again.

    Raises:
        ProblemError: there is a token of this name.
        PhysaiError: the file cannot be read, or `days` is out of range.
    """
    require_choice("scope", scope, ("read", "run", "admin"))
    if days is not None and not 0.0 < days <= 36500.0:
        raise PhysaiError(f"`days` must lie above 0 and at most at 36500, got {days:g}")
    store = _store(data, db)
    return store.create(name, scope, days=days, token=None if token_file is None else _read(Path(token_file)))


def list_tokens(*, data: DataFolder = DATA, db: DatabaseUrl = None) -> list[dict[str, Any]]:
    """List the access tokens of a service without their secrets, oldest first.

    Args:
        data: data folder.
        db: database, as for `physai sim serve`.

    Returns:
        Their `name`, `scope`, and time of creation and expiry [s since the epoch].

    Raises:
        PhysaiError: the database cannot be used.
    """
    return _store(data, db).all()


def revoke_token(name: str, *, data: DataFolder = DATA, db: DatabaseUrl = None) -> None:
    """Revoke an access token of a service.

    Args:
        name: name of the token.
        data: data folder.
        db: database, as for `physai sim serve`.

    Raises:
        ProblemError: there is none of this name.
    """
    _store(data, db).revoke(name)


def _store(data: Path | str, db: str | None) -> TokenStore:
    try:
        from physai.service.auth.tokens import TokenStore
        from physai.service.database.engine import open_database
        from physai.service.settings import default_database
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"physai sim tokens needs {error.name}; pip install 'physai-sdk[serve]'") from error
    folder = Path(data).absolute()
    if db is None:
        with oserror_as(PhysaiError, f"`data` {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
    return TokenStore(open_database(db or default_database(folder)))


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(1024)
    except OSError as error:
        raise PhysaiError(f"{file}: {error.strerror or error}") from error
    return content.decode("ascii", "replace").strip()
