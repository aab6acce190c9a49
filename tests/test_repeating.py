import threading

from dupq.errors import StorageError
from dupq.system import repeating


def test_a_storage_that_is_away_for_a_while_ends_nothing() -> None:
    calls, was_called_again = [], threading.Event()

    def work() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise StorageError("away")
        was_called_again.set()

    with repeating(work, 0.001):
        assert was_called_again.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(repeat)")]
