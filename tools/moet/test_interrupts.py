import signal
import sys
import threading
import time
import weakref

import pytest

from tools.moet.interrupts import TerminatedError, unwound


class Pooled:
    """As requests' sessions are: something is done when it is given back."""


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminatedError)], ids=["int", "term"]
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_signal_in_a_finalizer_is_not_lost(
    number: signal.Signals, error: type[BaseException], times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    came = []

    def finalizer() -> None:
        came.append(number)
        if len(came) == 1:
            signal.raise_signal(number)
        time.sleep(60)

    def work() -> None:
        for _ in range(times):
            weakref.finalize(Pooled(), finalizer)
        time.sleep(60)

    with pytest.raises(error), unwound():
        work()
    assert len(came) == times
    assert capsys.readouterr().err == ""


def test_other_errors_of_finalizers_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[sys.UnraisableHookArgs] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with unwound():
        weakref.finalize(Pooled(), lambda: 1 / 0)
    assert [one.exc_type for one in said] == [ZeroDivisionError]


def test_what_was_there_is_back() -> None:
    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with unwound():
        assert sys.unraisablehook is not before[1]
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before
    assert threading.current_thread() is threading.main_thread()
