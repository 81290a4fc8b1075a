"""What a dataset's own constructor raises when it is made again is never the caller's end."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

import tensorboard_plugin_plumber as plumber
from tensorboard_plugin_plumber.capture import construction
from tensorboard_plugin_plumber.capture.remake import CannotRemake, arguments_of, remade
from tensorboard_plugin_plumber.rewrite.rebuild import Refused, copied
from tests.support.digests import elements

construction.install()
ERRORS = [
    tf.errors.InvalidArgumentError(None, None, "no such thing"),
    tf.errors.NotFoundError(None, None, "the file has gone"),
    RuntimeError("made once only"),
    NotImplementedError(),
    KeyError("x"),
    OSError("no space left"),
]


class MadeOnce(dataset_ops.UnaryUnchangedStructureDataset):
    """A third party's dataset; every instance but the first raises what it was given."""

    def __init__(self, input_dataset: Any, error: Exception) -> None:
        if getattr(error, "was_made", False):
            raise error
        error.was_made = True  # type: ignore[attr-defined]
        self._input_dataset = input_dataset
        self._error = error
        super().__init__(input_dataset, input_dataset._variant_tensor)


def made_once(error: Exception) -> Any:
    error.was_made = False  # type: ignore[attr-defined]
    return MadeOnce(tf.data.Dataset.range(50).map(lambda x: x + 1), error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)
def test_whatever_a_constructor_raises_is_told_as_one_reason(error: Exception) -> None:
    dataset = made_once(error)

    with pytest.raises(CannotRemake, match="MadeOnce cannot be made again") as caught:
        remade(dataset, arguments_of(dataset), [])
    assert str(error) in str(caught.value)
    with pytest.raises(Refused, match="MadeOnce"):
        copied(dataset.batch(5))


def test_a_dataset_that_cannot_be_copied_is_diagnosed_all_the_same() -> None:
    dataset = made_once(tf.errors.InternalError(None, None, "no second one")).batch(5)

    report = plumber.diagnose(dataset, seconds=0.6).to_dict()

    assert report["verdict"]["observed_rate"] > 0
    assert len(elements(dataset)) == 10


def test_an_interrupt_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tf.data.Dataset.range(3).map(lambda x: x)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(dataset), "__init__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        remade(dataset, {}, [])


def test_a_copy_draws_as_a_random_source_would_have_and_leaves_it_its_draws() -> None:
    def make() -> Any:
        return tf.data.Dataset.random(seed=5, rerandomize_each_iteration=True).take(6)

    untouched, dataset = make(), make()

    epochs = [elements(copied(dataset)) for _ in range(2)]
    wanted = [elements(untouched) for _ in range(2)]

    assert epochs == [wanted[0]] * 2
    assert [elements(dataset) for _ in range(2)] == wanted
    assert wanted[0] != wanted[1]
