"""What is done once in a process."""

from __future__ import annotations

import threading
import time

import pytest

from tensorboard_plugin_plumber.capture.once import Once


def test_threads_that_come_meanwhile_wait_and_do_nothing() -> None:
    done: list[str] = []

    @Once
    def install() -> None:
        time.sleep(0.05)
        done.append("installed")

    seen: list[int] = []

    def use() -> None:
        install()
        seen.append(len(done))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert done == ["installed"]
    assert seen == [1] * 8
    assert install.begun


def test_what_failed_is_not_tried_again() -> None:
    calls: list[int] = []

    @Once
    def install() -> None:
        calls.append(1)
        raise RuntimeError("half of it is in place")

    assert not install.begun
    with pytest.raises(RuntimeError):
        install()
    install()
    assert calls == [1]
