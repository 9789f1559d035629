"""Whatever a call did, the next one is as the first."""

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from physai.compute.sandbox.reward import UserReward, UserRewardError

SOURCE = """
import os, sys
import numpy as np

def reward(steps):
    how = steps["how"][0]
    if how == 1: raise ValueError("refused")
    if how == 2: os._exit(1)
    if how == 3: return steps["x"] * np.nan
    if how == 4: return steps["x"][:-1]
    if how == 5: print("x" * 100_000)
    if how == 6: sys.setrecursionlimit(10); np.seterr(all="raise")
    if how == 7: os.write(int(sys.argv[2]), b"forged" * 10)
    if how == 8: os.close(0); os.close(1); sys.exit()
    if how == 9: np.asarray = None
    steps["x"] *= 3.0
    return steps["x"]
"""


class Orders(RuleBasedStateMachine):
    """Good and bad calls of one reward in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name) / "mine.py"
        path.write_text(SOURCE)
        self._reward = UserReward(path)

    def teardown(self) -> None:
        self._reward.close()
        self._folder.cleanup()

    @rule(values=st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=50))
    def good(self, values: list[float]) -> None:
        x = np.array(values)
        assert np.array_equal(self._reward.score({"x": x, "how": np.zeros(len(x))}), 3.0 * x)
        # It was given a copy.
        assert x.tolist() == values

    @rule(how=st.sampled_from([1, 2, 3, 4, 5, 7, 8]))
    def bad(self, how: int) -> None:
        with pytest.raises(UserRewardError):
            self._reward.score({"x": np.ones(3), "how": np.full(3, how)})

    @rule()
    def ends(self) -> None:
        self._reward.close()


Orders.TestCase.settings = settings(max_examples=5, stateful_step_count=12, deadline=None)
TestOrders = Orders.TestCase


def test_what_it_does_to_itself_lasts_until_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    with UserReward(path) as reward:
        for spoilt in (6, 9):
            with contextlib.suppress(UserRewardError):
                reward.score({"x": np.ones(3), "how": np.full(3, spoilt)})
            with pytest.raises(UserRewardError):
                reward.score({"x": np.full(3, 1e308), "how": np.zeros(3)})
            reward.close()
            assert reward.score({"x": np.ones(3), "how": np.zeros(3)}).tolist() == [3.0, 3.0, 3.0]
