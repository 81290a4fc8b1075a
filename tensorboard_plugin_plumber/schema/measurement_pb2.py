"""Message classes of proto/measurement.proto; see measurement_pb2.pyi, made by the build, for what is in it."""

from tensorboard_plugin_plumber.schema import _messages

_messages.define("measurement.proto", globals())
