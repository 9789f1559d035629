"""Decisions that an import made for its user, who can read them and decide otherwise."""

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One thing that the file did not say, or said in a way that cannot be simulated."""

    about: str
    """Link, joint or part of the model."""
    text: str
    """What was decided, and why."""
    override: str = ""
    """Option or change of the file that decides otherwise; empty if there is none."""

    def line(self) -> str:
        """For people."""
        return f"{self.about}: {self.text}" + (f" [{self.override}]" if self.override else "")


@dataclass
class Decisions:
    """The decisions of one import, in their order."""

    made: list[Decision] = field(default_factory=list[Decision])

    def add(self, about: str, text: str, override: str = "") -> None:
        """Notes a decision."""
        self.made.append(Decision(about=about, text=text, override=override))

    def records(self) -> list[dict[str, str]]:
        """For JSON."""
        return [asdict(decision) for decision in self.made]

    def lines(self) -> list[str]:
        """For people."""
        return [decision.line() for decision in self.made]
