"""Windows grow with what a client takes, and shrink with the number of answers that hold memory."""

from contextlib import ExitStack

from protoslice.concurrency.windows import LARGEST, LEAST, Window, Windows

LONG = 1 << 30


def sizes(window: Window, count: int, *, near: bool) -> list[int]:
    """The sizes of so many reads, the bytes of each taken before the next one."""
    found = []
    for _ in range(count):
        with window.hold(near=near) as size:
            found.append(size)
    return found


def test_the_window_of_a_long_answer_grows_with_what_was_taken() -> None:
    found = sizes(Windows().open(LONG, ""), 20, near=True)
    assert found[:3] == [LEAST] * 3
    assert found == sorted(found)
    assert all(size <= max(LEAST, sum(found[:n]) // 2) for n, size in enumerate(found))
    assert found[-1] == LARGEST


def test_a_short_answer_is_read_at_once() -> None:
    assert sizes(Windows().open(LARGEST, ""), 1, near=True) == [LARGEST]


def test_a_distant_source_is_not_asked_for_little() -> None:
    assert sizes(Windows().open(LONG, ""), 2, near=False) == [LARGEST] * 2


def test_windows_of_answers_that_nobody_takes_share_the_memory() -> None:
    windows = Windows(room=8 << 20)
    with ExitStack() as stalled:
        held = [stalled.enter_context(windows.open(LONG, "").hold(near=False)) for _ in range(400)]
        assert held == sorted(held, reverse=True)
        assert sum(held) <= (8 << 20) + 400 * LEAST
        assert sizes(windows.open(LONG, ""), 1, near=False) == [LEAST]
    assert sizes(windows.open(LONG, ""), 1, near=False) == [LARGEST]
    assert windows.free == 8 << 20


def test_a_client_holds_at_most_as_much_as_is_left_for_others() -> None:
    """Further reads of the client get the least of all, and those of another client stay large."""
    windows = Windows()
    room = windows.free
    with ExitStack() as stalled:
        held = [stalled.enter_context(windows.open(LONG, "greedy").hold(near=False)) for _ in range(300)]
        assert held[-100:] == [LEAST] * 100
        assert sum(size for size in held if size > LEAST) <= room // 2
        assert sizes(windows.open(LONG, "honest"), 1, near=False)[0] >= 5 * LEAST
    assert sizes(windows.open(LONG, "greedy"), 1, near=False) == [LARGEST], "the client has given all of it back"
