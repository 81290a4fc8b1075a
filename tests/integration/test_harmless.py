"""Principle one: whatever the user does, training goes on as it would without Plumber."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import boundary, guard, iterators, registry
from tensorboard_plugin_plumber.capture.session import CaptureSession
from tensorboard_plugin_plumber.events import reader
from tests.support.small import small_dataset, small_model


def test_a_callback_used_again_keeps_no_session(tmp_path: Path) -> None:
    callback, model = plumber.PlumberCallback(tmp_path), small_model()

    for _ in range(3):
        model.evaluate(small_dataset(), callbacks=[callback], verbose=0)

    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is CaptureSession]


def test_a_strategy_iterates_without_a_boundary_where_it_cannot_take_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        return object(), None

    monkeypatch.setattr(boundary, "show_pass", broken)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

    with plumber.trace(tmp_path):
        seen = [int(x) for x in strategy.experimental_distribute_dataset(tf.data.Dataset.range(4))]

    assert seen == [0, 1, 2, 3]


def test_a_subclass_keeps_its_other_bases_constructor() -> None:
    class Marked:
        marked = False

        def __new__(cls, *args: Any) -> Any:
            made = object.__new__(cls)
            made.marked = True
            return made

    class Own(tf.data.Dataset):
        def __init__(self, count: int) -> None:
            self._inside = tf.data.Dataset.range(count)
            super().__init__(self._inside._variant_tensor)

        def _inputs(self) -> list[Any]:
            return [self._inside]

        @property
        def element_spec(self) -> Any:
            return self._inside.element_spec

    class Both(Own, Marked):
        pass

    assert Both(3).marked
    assert list(Both(3).as_numpy_iterator()) == [0, 1, 2]


def test_a_logging_handler_that_raises_is_not_training_s(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no warnings wanted")

    logger = logging.getLogger("tensorboard_plugin_plumber")
    handler = Strict()
    logger.addHandler(handler)
    try:
        with guard.protect(f"survive a handler {time.time()}"):
            raise ValueError("mine")
    finally:
        logger.removeHandler(handler)


def test_datasets_die_with_their_last_reference(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        dataset = small_dataset()
        for _ in dataset:
            pass
        time.sleep(0.5)
        dead = weakref.ref(dataset)
        del dataset
        gc.collect()
        assert dead() is None


def test_a_loop_that_makes_new_datasets_costs_little_more_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN a budget for describing that one dataset uses up
    monkeypatch.setattr(registry, "_DESCRIBING_S", 1e-6)
    monkeypatch.setattr(guard, "_said", set())
    monkeypatch.setattr(registry, "_DESCRIBING_SHARE", 0.0)
    described: list[int] = []
    describe = registry.describe
    monkeypatch.setattr(
        registry, "describe", lambda *args, **named: described.append(1) or describe(*args, **named)
    )
    # WHEN a loop makes a new dataset for every step, each by lines of its own
    functions = [lambda x: x + 1, lambda x: x + 2, lambda x: x + 3, lambda x: x + 4, lambda x: x + 5]
    with plumber.trace(tmp_path):
        for function in functions:
            assert len(list(tf.data.Dataset.range(50).map(function))) == 50
            time.sleep(0.3)
    # THEN one is described, and the rest are left alone, which is said once
    assert len(described) == 1
    assert sum("follow every dataset" in record.message for record in caplog.records) == 1


def _increment(x: Any) -> Any:
    return x + 1


def test_a_dataset_that_the_same_lines_build_again_is_not_described_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[int] = []
    describe = registry.describe
    monkeypatch.setattr(
        registry, "describe", lambda *args, **named: described.append(1) or describe(*args, **named)
    )

    # WHEN a loop makes a new dataset for every step, and lets go of the one before
    steps = 0
    with plumber.trace(tmp_path):
        for step in range(30):
            for _ in tf.data.Dataset.range(40 + step).map(_increment).batch(10):
                steps += 1
            gc.collect()

    # THEN they are one pipeline, described once, and all of its steps are there
    (recording,) = reader.read(tmp_path)
    assert len(described) == 1
    assert [p.steps for p in recording.samples[-1].pipelines] == [steps]


def test_a_finalizer_that_warns_while_a_warning_is_said_hangs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dropped:
        def __del__(self) -> None:
            with guard.protect(f"read the last counters {time.time()}"):
                raise ValueError("in a finalizer")

    class Said(set[str]):
        """Drops something whenever it is asked, as the garbage collector may do in any line."""

        def __contains__(self, what: object) -> bool:
            if not super().__contains__("dropped"):
                super().add("dropped")
                Dropped()
            return super().__contains__(what)

    monkeypatch.setattr(guard, "_said", Said())
    warning = threading.Thread(target=guard.warn, args=("do it", ValueError("first")), daemon=True)
    warning.start()
    warning.join(20)

    assert not warning.is_alive()


def test_an_iterator_dropped_while_a_look_goes_on_holds_nobody_up(tmp_path: Path) -> None:
    with plumber.trace(tmp_path):
        iterator = iter(small_dataset(1000))
        next(iterator)
        time.sleep(0.3)
        (recording,) = iterators._observers
        assert isinstance(recording, CaptureSession)

        def drop() -> None:
            nonlocal iterator
            del iterator

        with recording._lock:  # as the poller holds it while it looks
            dropping = threading.Thread(target=drop, daemon=True)
            dropping.start()
            dropping.join(20)
            assert not dropping.is_alive()


def test_what_fails_when_an_iterator_ends_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> bytes:
        raise MemoryError("injected")

    monkeypatch.setattr(guard, "_said", set())
    seen = 0
    with plumber.trace(tmp_path):
        for _ in range(3):
            iterator = iter(small_dataset())
            seen += len(next(iterator))
            time.sleep(0.2)
            with monkeypatch.context() as patched:
                patched.setattr(iterators, "read_model", broken)
                del iterator
                gc.collect()

    assert seen == 3 * 2
    assert sum("injected" in record.getMessage() for record in caplog.records) == 1


def test_a_session_in_a_thread_of_its_own(tmp_path: Path) -> None:
    seen: list[int] = []

    def loop() -> None:
        with plumber.trace(tmp_path):
            seen.extend(int(x) for x in tf.data.Dataset.range(500).map(_increment))

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    thread.join(60)

    assert seen == list(range(1, 501))
    assert reader.read(tmp_path)[0].samples[-1].pipelines[0].steps == 500
