"""The accelerators that TensorFlow sees, without waking them; whether a step is done when Keras asks for more."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tensorboard_plugin_plumber.capture import device
from tensorboard_plugin_plumber.capture.device import Accelerator

CPU = SimpleNamespace(name="/physical_device:CPU:0", device_type="CPU")
GPU = SimpleNamespace(name="/physical_device:GPU:0", device_type="GPU")
OTHER = SimpleNamespace(name="/physical_device:XPU:0", device_type="XPU")


def test_accelerators_are_named_with_their_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def details(one: Any) -> dict[str, Any]:
        if one is OTHER:
            raise ValueError("details are known of GPUs only")
        return {"device_name": "NVIDIA H200", "compute_capability": (9, 0)}

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda: [CPU, GPU, OTHER])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details)

    assert device.accelerators() == [Accelerator("GPU:0", "NVIDIA H200"), Accelerator("XPU:0", "")]


def test_asking_initialises_no_device() -> None:
    # What comes after it would fail if it had: logical devices are made before the first use.
    program = """
import tensorflow as tf
from tensorboard_plugin_plumber.capture import device
device.accelerators()
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
assert len(tf.config.list_logical_devices("CPU")) == 2
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr


def model_on(place: str) -> Any:
    return SimpleNamespace(weights=[SimpleNamespace(value=SimpleNamespace(device=place))])


@pytest.mark.parametrize(
    ("devices", "place", "asynchronous"),
    [
        ([CPU], "/job:localhost/device:CPU:0", False),
        ([CPU, GPU], "/job:localhost/device:GPU:0", True),
        ([CPU, GPU], "/job:localhost/device:CPU:0", False),
        ([CPU, GPU], "", True),
    ],
)
def test_a_step_is_asynchronous_where_its_weights_are_on_a_device(
    monkeypatch: pytest.MonkeyPatch, devices: list[Any], place: str, asynchronous: bool
) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)

    assert device.is_asynchronous(model_on(place)) is asynchronous


def test_keras_2_is_tensorflows_whatever_the_backend_of_keras_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_backend", lambda: "jax")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: [CPU])

    class Sequential:
        weights = ()

    assert device.is_asynchronous(Sequential())
    Sequential.__module__ = "tf_keras.src.engine.sequential"
    assert not device.is_asynchronous(Sequential())
