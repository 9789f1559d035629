"""Counted notices of what a transport rejected; each is reported once."""

# Bound of different notices, so that malformed input cannot exhaust the memory.
MAX_NOTICES = 32


class Notices:
    """Messages with their counts; one thread adds, any thread may read."""

    def __init__(self) -> None:
        """Initialize without notices."""
        self._counts: dict[str, int] = {}

    def add(self, text: str) -> None:
        """Count a notice; new ones beyond `MAX_NOTICES` are counted together."""
        if text not in self._counts and len(self._counts) >= MAX_NOTICES:
            # A flood of different messages must neither fill the memory nor hide the first ones.
            text = "more was refused, for further reasons"
        # One assignment, so that a reader in another thread sees the count before or after it.
        self._counts[text] = self._counts.get(text, 0) + 1

    def told(self) -> tuple[str, ...]:
        """Return the notices, with counts above one."""
        # A copy, because the other thread may add a notice during the iteration.
        counts = self._counts.copy()
        return tuple(text if count == 1 else f"{text} ({count} times)" for text, count in counts.items())

    def forget(self) -> None:
        """Discard all notices."""
        self._counts = {}
