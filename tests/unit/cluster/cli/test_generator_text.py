"""Text of `physai train` about generators."""

import pytest

from physai.cluster import Generators
from physai.train.settings.config import TrainConfig


@pytest.mark.parametrize(
    ("count", "staleness", "text"),
    [(1, 0, " on 1 generator"), (2, 0, " on 2 generators"), (1, 3, " on 1 generator, staleness 3")],
)
def test_one_generator_is_not_several(count: int, staleness: int, text: str) -> None:
    assert Generators(count).described(TrainConfig(staleness=staleness)) == text
