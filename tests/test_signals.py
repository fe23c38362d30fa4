"""Ctrl-C and SIGTERM while something must be saved first: in processes of their own, as a signal reaches them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from factorjepa import cli
from factorjepa.signals import stopping

_RUN = """
import signal, sys, time
from factorjepa.signals import {how}
{before}
with {call} as heard:
    print("ready", flush=True)
    {inside}
print("ended", heard)
"""


def process(call: str, inside: str, before: str = "") -> subprocess.Popen[str]:
    program = _RUN.format(how=call.partition("(")[0], call=call, inside=inside, before=before)
    started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def test_the_first_signal_stops_and_what_follows_at_once_is_the_same() -> None:
    run = process("stopping(lambda: None, quiet=True)", "while not heard: time.sleep(0.02)\n    time.sleep(0.5)")
    for _ in range(2):
        run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=60)
    assert said == f"ended [{signal.SIGTERM.value}]\n"
    assert run.returncode == 0


def test_a_second_signal_quits() -> None:
    run = process("stopping(lambda: print('heard', flush=True), quiet=True)", "time.sleep(60)\n    time.sleep(60)")
    run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    assert run.stdout.readline() == "heard\n"
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(1.2)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 128 + signal.SIGINT


def test_what_is_ignored_stays_ignored_and_before_a_run_a_signal_quits_at_once() -> None:
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    run = process("quitting()", "time.sleep(60)", ignoring)
    run.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(0.5)
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 128 + signal.SIGTERM


def test_another_thread_changes_nothing_and_afterwards_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found: list[object] = []

    def elsewhere() -> None:
        with stopping(lambda: None):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]
    with stopping(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_leaves_signals_as_it_found_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls it from Python, and forks later, would have children that SIGTERM does not always end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("sys.argv", ["factorjepa", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert {number: signal.getsignal(number) for number in before} == before
