"""What a client is told to do about a problem."""

import pytest

from physai.service.problems import ProblemError, answer


@pytest.mark.parametrize(("status", "again"), [(503, "2"), (429, "2"), (404, None), (500, None)])
def test_what_passes_says_when_to_try_again(status: int, again: str | None) -> None:
    assert answer(ProblemError(status, "kind", "detail")).headers.get("retry-after") == again
