"""The threads that perform attempts."""

import subprocess
import sys
import threading

import pytest

from hookmill.domain.ids import RunKey
from hookmill.runs.executor import Executor
from tests.support.waiting import LONG_SECONDS, until

RUN, OTHER = RunKey(b"one" * 4), RunKey(b"two" * 4)


def ignore(_where: str, _error: BaseException): ...


@pytest.mark.parametrize("error_type", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_exception_is_reported_and_its_thread_performs_more(error_type):
    failures: list[BaseException] = []
    threads: list[int] = []

    def perform(_run, attempt):
        threads.append(threading.get_ident())
        if attempt == 1:
            raise error_type

    def report(_where, error):
        failures.append(error)
        # The log may be on a full disk.
        raise OSError

    executor = Executor(perform, report_failure=report)
    for attempt in (1, 2):
        executor.start(RUN, attempt)
        assert executor.wait_until_empty(LONG_SECONDS)
    executor.close()

    assert [type(failure) for failure in failures] == [error_type]
    assert len(threads) == 2
    assert len(set(threads)) == 1


def test_run_started_twice_is_in_flight_until_both_attempts_end():
    gates = {attempt: threading.Event() for attempt in (1, 2)}
    executor = Executor(lambda _run, attempt: gates[attempt].wait(LONG_SECONDS), report_failure=ignore)
    for attempt in gates:
        executor.start(RUN, attempt)

    assert executor.count == 2
    gates[2].set()
    until(lambda: executor.count == 1)
    assert executor.runs == {RUN}
    assert not executor.wait_until_empty(0.01)
    gates[1].set()
    assert executor.wait_until_empty(LONG_SECONDS)
    assert executor.runs == set()
    executor.close()


def test_slot_is_free_when_its_end_is_announced():
    counts: list[int] = []
    executor = Executor(
        lambda _run, _attempt: None, report_failure=ignore, slot_freed=lambda: counts.append(executor.count)
    )
    executor.start(RUN, 1)
    until(lambda: counts)
    executor.close()

    assert counts == [0]


def test_attempt_whose_thread_cannot_start_is_not_in_flight(monkeypatch):
    performed: list[RunKey] = []
    executor = Executor(lambda run, _attempt: performed.append(run), report_failure=ignore)

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            executor.start(RUN, 1)

    assert executor.count == 0
    executor.start(OTHER, 1)
    assert executor.wait_until_empty(LONG_SECONDS)
    executor.close()
    assert performed == [OTHER]


def test_closed_executor_performs_what_it_has_and_starts_no_more():
    is_open = threading.Event()
    threads: dict[RunKey, threading.Thread] = {}

    def perform(run, _attempt):
        assert is_open.wait(LONG_SECONDS)
        threads[run] = threading.current_thread()

    executor = Executor(perform, report_failure=ignore)
    executor.start(RUN, 1)
    executor.close()
    executor.start(OTHER, 1)
    is_open.set()

    assert executor.wait_until_empty(LONG_SECONDS)
    assert set(threads) == {RUN}
    threads[RUN].join(LONG_SECONDS)
    assert not threads[RUN].is_alive()


def test_process_ends_although_a_thread_hangs():
    script = (
        "import time; from hookmill.runs.executor import Executor;"
        "Executor(lambda *_: time.sleep(600), report_failure=print).start(b'run', 1)"
    )
    process = subprocess.run([sys.executable, "-c", script], timeout=LONG_SECONDS, check=False)

    assert process.returncode == 0
