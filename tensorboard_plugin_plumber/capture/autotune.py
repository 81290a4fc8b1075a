"""What AUTOTUNE may use for an iterator, as its model says."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import model_pb2

from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def autotune_of(model: Any) -> m.Autotune | None:
    """Budgets and algorithm in force; None where TensorFlow has not set them (yet).

    The budget of memory is what is left of it: TensorFlow takes off what it has spent on larger
    buffers.

    Args:
      model: a `tensorflow.data.model.ModelProto`.
    """
    given = model.optimization_params
    if not given.cpu_budget and not given.ram_budget:
        return None
    known = given.algorithm in model_pb2.AutotuneAlgorithm.values()
    return m.Autotune(
        algorithm=model_pb2.AutotuneAlgorithm.Name(given.algorithm) if known else "",
        cpu_budget=given.cpu_budget,
        ram_budget_bytes=given.ram_budget,
        model_input_time_ns=given.model_input_time,
    )
