"""Plumber for TensorBoard: says why training waits for its tf.data pipeline, and what to change.

    import tensorboard_plugin_plumber as plumber

    model.fit(dataset, callbacks=[plumber.PlumberCallback("logs/run1")])

    with plumber.trace("logs/run1"):
        for batch in dataset:
            ...

    report = plumber.diagnose(dataset, seconds=5)

    dataset = plumber.optimize(dataset)

Importing this package costs milliseconds and loads neither TensorFlow nor TensorBoard nor a
solver. What it does at once is to see to it that the pipelines built from now on are known by
the lines that built them, whether TensorFlow is loaded already or comes later.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tensorboard_plugin_plumber import _import_hook
from tensorboard_plugin_plumber._version import __version__

if TYPE_CHECKING:
    from tensorboard_plugin_plumber.callback import PlumberCallback
    from tensorboard_plugin_plumber.diagnosis import diagnose
    from tensorboard_plugin_plumber.optimizing import optimize
    from tensorboard_plugin_plumber.report import Report
    from tensorboard_plugin_plumber.tracing import trace

__all__ = ["PlumberCallback", "Report", "__version__", "diagnose", "optimize", "trace"]

# No module is named like a public name: importing `package.trace` would put the module where
# the function belongs.
_MODULES = {
    "PlumberCallback": "callback",
    "Report": "report",
    "diagnose": "diagnosis",
    "optimize": "optimizing",
    "trace": "tracing",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _import_hook.arm()
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


_import_hook.arm()
