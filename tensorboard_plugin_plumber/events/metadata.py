"""Names that the writer and the readers share, and the metadata that marks our summaries.

TensorBoard keeps only the first metadata of a tag, so what it holds never changes: the version
of the format, which each record repeats.
"""

from __future__ import annotations

from tensorboard.compat.proto import summary_pb2

PLUGIN_NAME = "plumber"
# Content: a serialized GraphRecord, written when something in it changes.
GRAPH_TAG = "graph"
# Content: a serialized SampleRecord, one per interval.
SAMPLE_TAG = "sample"
# Raised only by a change that an older reader would misunderstand.
FORMAT_VERSION = 1


def create_summary_metadata(*, description: str) -> summary_pb2.SummaryMetadata:
    """Metadata of one of our tags: a scalar string tensor that holds one serialized message.

    Args:
      description: shown by TensorBoard where it shows descriptions.
    """
    return summary_pb2.SummaryMetadata(
        summary_description=description,
        plugin_data=summary_pb2.SummaryMetadata.PluginData(
            plugin_name=PLUGIN_NAME, content=str(FORMAT_VERSION).encode("ascii")
        ),
        data_class=summary_pb2.DATA_CLASS_TENSOR,
    )


def parse_plugin_metadata(content: bytes) -> int:
    """Format version from the content of our plugin data.

    Raises:
      ValueError: the content is not one that `create_summary_metadata` makes.
    """
    try:
        return int(content.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        raise ValueError(f"{content!r} is no metadata of the plugin '{PLUGIN_NAME}'") from None
