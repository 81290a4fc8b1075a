"""The arguments of a call, with those of a plan in their place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tensorboard_plugin_plumber.capture import settings
from tensorboard_plugin_plumber.rewrite.call_sites.sites import NotHere, Site
from tensorboard_plugin_plumber.rewrite.saved_plan.values import Setting

_AUTOTUNE = "autotune"


def bound(
    site: Site, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """The arguments of a call as the plan wants them; what was in order stays in order.

    Raises:
      NotHere: the method has no such argument in this version of TensorFlow.
      TypeError: the call itself is wrong.
    """
    signature = inspect.signature(original)
    given = signature.bind(*args, **kwargs)
    before = given.arguments.get("num_parallel_calls")
    for name, change in site.arguments:
        if name not in signature.parameters:
            raise NotHere(f"{original.__name__} takes no {name} in this version of TensorFlow")
        given.arguments[name] = number(change.to) if name == "num_parallel_calls" else name != "deterministic"
    if given.arguments.get("num_parallel_calls") != before:
        _keep_in_order(given.arguments, before, signature)
    return given


def _keep_in_order(arguments: dict[str, Any], before: int | None, signature: inspect.Signature) -> None:
    """What would follow the number of calls stays as it is."""
    # The sequential form is in order by itself, whatever the options say of parallel operators.
    takes = "deterministic" in signature.parameters
    if takes and before is None and arguments.get("deterministic") is None:
        arguments["deterministic"] = True
    if "cycle_length" in signature.parameters:
        given = arguments.get("cycle_length")
        cycle = settings.resolved_cycle(int(tf.data.AUTOTUNE) if given is None else int(given), before)
        arguments["cycle_length"] = cycle
        # TensorFlow takes no more; AUTOTUNE is less than any.
        arguments["num_parallel_calls"] = min(arguments["num_parallel_calls"], cycle)


def number(setting: Setting) -> int:
    """A setting as the argument of a call."""
    return int(tf.data.AUTOTUNE) if setting == _AUTOTUNE else int(setting)


def with_pool(dataset: Any, size: int) -> Any:
    """The dataset with a thread pool of that size."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = size
    return dataset.with_options(options)
