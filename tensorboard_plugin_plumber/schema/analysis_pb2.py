"""Message classes of proto/analysis.proto; see analysis_pb2.pyi, made by the build, for what is in it."""

from tensorboard_plugin_plumber.schema import _messages

_messages.define("analysis.proto", globals())
