"""Counted notices of what a transport rejected; each is reported once."""

MAX_NOTICES = 32
"""Maximum number of different notices; bounded so that malformed input cannot fill the memory."""


class Notices:
    """Sentences and how often each was true."""

    def __init__(self) -> None:
        """None yet."""
        self._counts: dict[str, int] = {}

    def add(self, text: str) -> None:
        """Counts a notice; new ones beyond the greatest number are counted together."""
        if text not in self._counts and len(self._counts) >= MAX_NOTICES:
            text = "more was refused, for further reasons"
        self._counts[text] = self._counts.get(text, 0) + 1

    def told(self) -> tuple[str, ...]:
        """The notices, each with its count where that is more than one."""
        # A copy: the thread that counts may add one meanwhile.
        counts = self._counts.copy()
        return tuple(text if count == 1 else f"{text} ({count} times)" for text, count in counts.items())

    def forget(self) -> None:
        """Starts again with none."""
        self._counts = {}
