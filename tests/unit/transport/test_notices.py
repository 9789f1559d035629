"""What a transport refused: counted, bounded, and forgotten when that is asked for."""

from physai.transport.notices import MAX_NOTICES, Notices


def test_said_once_with_its_count() -> None:
    notices = Notices()
    for text in ("a", "b", "a"):
        notices.add(text)
    assert notices.told() == ("a (2 times)", "b")


def test_garbage_does_not_fill_the_memory() -> None:
    notices = Notices()
    for number in range(3 * MAX_NOTICES):
        notices.add(str(number))
    assert len(notices.told()) == MAX_NOTICES + 1


def test_forgotten_and_told_again() -> None:
    notices = Notices()
    notices.add("a")
    notices.forget()
    assert notices.told() == ()
    notices.add("b")
    assert notices.told() == ("b",)
