"""Settings on the command line."""

from physai.sdk.base.errors import PhysaiError


def option_pair(text: str) -> tuple[str, str]:
    """Name and value of a `--set KEY=VALUE`.

    Raises:
        PhysaiError: it has no `=`.
    """
    key, separator, value = text.partition("=")
    if not separator:
        raise PhysaiError(f"--set {text}: expected key=value")
    return key.strip().replace("-", "_"), value.strip()
