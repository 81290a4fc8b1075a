"""Pipelines built after the package was imported are recorded, whichever import comes first."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

# Each program runs in a fresh interpreter: an import order cannot be had twice in one.
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
BUILD = """
def double(x):
    return 2 * x

def make():
    return tf.data.Dataset.range(4).map(double)
"""
RECORDED = """
from tensorboard_plugin_plumber.capture.construction import construction_of
made = construction_of(make())
assert made is not None and made.method == "map", made
assert made.call.line == make.__code__.co_firstlineno + 1, made
assert [int(x) for x in make()] == [0, 2, 4, 6]
"""


def run(directory: Path, *parts: str) -> str:
    """Runs a program made of parts from a file of its own, and returns its standard error."""
    program = directory / "program.py"
    program.write_text("\n".join(textwrap.dedent(part) for part in parts), encoding="utf-8")
    completed = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning:__main__", str(program)],
        capture_output=True,
        text=True,
        timeout=180,
        env=ENVIRONMENT,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stderr


def test_plumber_first(tmp_path: Path) -> None:
    """GIVEN plumber imported first WHEN TensorFlow follows THEN nothing of the hook is left behind."""
    run(
        tmp_path,
        """
        import sys
        import tensorboard_plugin_plumber as plumber
        assert "tensorflow" not in sys.modules
        finders = list(sys.meta_path)
        import tensorflow as tf
        from tensorboard_plugin_plumber import _import_hook
        assert type(finders[0]).__module__ == _import_hook.__name__
        assert finders[0] not in sys.meta_path
        """,
        BUILD,
        RECORDED,
        """
        import copy, importlib, inspect, pickle
        module = sys.modules[_import_hook.TARGET]
        assert type(module.__loader__).__name__ == "SourceFileLoader"
        assert module.__spec__.loader is module.__loader__
        assert "class DatasetV2" in inspect.getsource(module)
        assert pickle.loads(pickle.dumps(tf.data.Dataset)) is tf.data.Dataset
        spec = make().element_spec
        assert pickle.loads(pickle.dumps(spec)) == spec
        importlib.reload(plumber)
        assert tf.keras.layers.Dense is not None  # TensorFlow loads Keras lazily
        """,
    )


def test_tensorflow_first(tmp_path: Path) -> None:
    run(tmp_path, "import tensorflow as tf", BUILD, "import tensorboard_plugin_plumber", RECORDED)


def test_dataset_built_first(tmp_path: Path) -> None:
    """GIVEN a dataset older than the package THEN it still works, and is known from its own attributes."""
    run(
        tmp_path,
        "import tensorflow as tf",
        BUILD,
        "old = make()",
        "import tensorboard_plugin_plumber as plumber",
        RECORDED,
        """
        from tensorboard_plugin_plumber.capture.describe import describe
        assert construction_of(old) is None
        assert [int(x) for x in old] == [0, 2, 4, 6]
        pipeline = describe(old, role="train").pipeline
        assert [operator.type for operator in pipeline.operators if not operator.injected] == ["Map", "Range"]
        assert pipeline.operators[0].function.name == "double"
        assert pipeline.operators[0].function.source.line == double.__code__.co_firstlineno
        """,
    )


def test_a_thread_imports_tensorflow_meanwhile(tmp_path: Path) -> None:
    """GIVEN TensorFlow half imported by another thread WHEN plumber is imported THEN all is recorded."""
    run(
        tmp_path,
        """
        import sys, threading, time
        thread = threading.Thread(target=__import__, args=("tensorflow",))
        thread.start()
        while "tensorflow.python.data.ops.dataset_ops" not in sys.modules:
            time.sleep(0.0001)
        import tensorboard_plugin_plumber as plumber
        thread.join()
        import tensorflow as tf
        """,
        BUILD,
        RECORDED,
    )


def test_other_import_hooks_of_the_same_kind(tmp_path: Path) -> None:
    """GIVEN a hook of another package that asks all finders in its turn THEN neither chases the other."""
    run(
        tmp_path,
        """
        import importlib.util, sys
        import tensorboard_plugin_plumber as plumber

        class Other:
            asked = 0
            def find_spec(self, name, path=None, target=None):
                if not name.startswith("tensorflow.python.data"):
                    return None
                Other.asked += 1
                for finder in sys.meta_path:
                    if finder is not self and hasattr(finder, "find_spec"):
                        spec = finder.find_spec(name, path, target)
                        if spec is not None:
                            return spec

        sys.meta_path.insert(0, Other())
        import tensorflow as tf
        assert Other.asked
        """,
        BUILD,
        RECORDED,
    )


def test_a_failure_inside_is_one_warning(tmp_path: Path) -> None:
    """GIVEN a recording that cannot be installed THEN TensorFlow works, and one line says so."""
    errors = run(
        tmp_path,
        """
        import warnings
        warnings.simplefilter("error", UserWarning)
        import tensorboard_plugin_plumber as plumber
        from tensorboard_plugin_plumber import _import_hook
        _import_hook._INSTALLER = "tensorboard_plugin_plumber.capture.absent"
        import tensorflow as tf
        _import_hook.arm()
        """,
        BUILD,
        "assert [int(x) for x in make()] == [0, 2, 4, 6]",
    )
    assert errors.count("Plumber cannot record") == 1
    assert "training is not affected" in errors
