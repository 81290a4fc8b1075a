"""Message classes of proto/measurement.proto; measurement_pb2.pyi, made by the build, says what is in it."""

from tensorboard_plugin_plumber.schema import _messages

_messages.define("measurement.proto", globals())
