"""A gate of one's own: episodes must not end early."""

from physai.gates import Cause, Context, Gate, GateFinding, Measurement, Play, VerdictOutcome

EPISODES = 32
LEAST = 0.99


class DurationGate(Gate):
    """Plays episodes in the calibrated twin and measures how much of their time the policy lasts."""

    name = "duration"
    question = "Does it last to the end of its episodes?"

    def method(self, context: Context) -> str:
        """Text of the report."""
        return f"{EPISODES} episodes of `calibrated`: mean length over the task's episode length."

    def threshold(self, context: Context) -> str:
        """Text of the report."""
        return f"at least {LEAST:.0%} of the time"

    def most_episodes(self, context: Context) -> int:
        """Number of episodes, for the progress."""
        return EPISODES

    def play(self, context: Context) -> Play:
        """Ask for episodes, and judge their results."""
        batch = context.batch(0, context.conditions["calibrated"], count=EPISODES)
        (played,) = yield [batch]
        share = float(played.length_s.mean()) / context.subject.task.episode_length_s
        finding = GateFinding(
            outcome=VerdictOutcome.PASS,
            measured=[Measurement(name="share_of_time", value=share, threshold=LEAST)],
            episodes=EPISODES,
            seeds=context.seed_range(EPISODES),
        )
        # Written so that NaN fails.
        if not share >= LEAST:
            finding.outcome, finding.cause = VerdictOutcome.FAIL, Cause.POLICY
            finding.message = f"Episodes last {share:.1%} of their time, at least {LEAST:.0%} are required."
            finding.next_step = "train longer, or find out what ends the episodes: physai play"
        return finding
