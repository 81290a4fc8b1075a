"""Random tf.data pipelines over the operators that tf.data offers: small, finite, printable as the code they are.

`generated(seed, files)` writes a program; `Pipeline.build()` runs it. The same seed gives the same program everywhere.
"""

from tests.support.random_pipelines.functions import Files
from tests.support.random_pipelines.generate import Pipeline, generated

__all__ = ["Files", "Pipeline", "generated"]
