"""The accelerators: which there are, whether a step is done when Keras asks for more, how to wait until it is."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

Synchronise: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Accelerator:
    """A device that TensorFlow sees.

    Attributes:
      name: "GPU:0".
      model: "NVIDIA H200"; empty if unknown.
    """

    name: str
    model: str = ""


def accelerators() -> list[Accelerator]:
    """TensorFlow's devices without the CPUs. Physical ones: listing logical ones would initialise them."""
    devices = [device for device in tf.config.list_physical_devices() if device.device_type != "CPU"]
    return [Accelerator(device.name.removeprefix("/physical_device:"), _model(device)) for device in devices]


def _model(device: Any) -> str:
    try:
        return str(tf.config.experimental.get_device_details(device).get("device_name", ""))
    except Exception:  # plug-in devices may know nothing of themselves, each in its own way
        return ""


def is_asynchronous(model: Any) -> bool:
    """Whether the model's steps run on a device that goes on working while Keras asks for more data."""
    if _backend() != "tensorflow" and not type(model).__module__.startswith("tf_keras"):
        return True
    if all(device.device_type == "CPU" for device in tf.config.list_logical_devices()):
        return False
    weights = getattr(model, "weights", None) or []
    devices = {str(getattr(getattr(weight, "value", weight), "device", "")) for weight in weights[:1]}
    return not any("CPU" in device.upper() for device in devices if device)


def synchronise() -> Synchronise:
    """A function that waits until all devices have done what they were given."""
    backend = _backend()
    if backend == "jax":
        return _wait_for_jax
    if backend == "torch":
        return _wait_for_torch
    wait: Synchronise = tf.test.experimental.sync_devices
    return wait


def _backend() -> str:
    keras = sys.modules.get("keras")
    return str(keras.backend.backend()) if keras is not None and hasattr(keras, "backend") else "tensorflow"


def _wait_for_jax() -> None:
    jax: Any = importlib.import_module("jax")
    for device in jax.local_devices():
        # A device does its work in order: when this is done, so is all before it.
        (jax.device_put(0.0, device) + 0.0).block_until_ready()


def _wait_for_torch() -> None:
    torch: Any = importlib.import_module("torch")
    if torch.cuda.is_available():
        torch.cuda.synchronize()
