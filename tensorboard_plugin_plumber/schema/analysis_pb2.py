"""Message classes of proto/analysis.proto; analysis_pb2.pyi, made by the build, says what is in it."""

from tensorboard_plugin_plumber.schema import _messages

_messages.define("analysis.proto", globals())
