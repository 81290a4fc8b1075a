"""The optimum as a mixed-integer linear program (docs/model.md, "Optimum").

`decisions` has the columns of what is decided and what it costs, `scenario` the rows that keep one rate possible
(while caches fill, or once they serve), `epochs` the time of both together, `problem` puts them into one program.
"""

from tensorboard_plugin_plumber.model.program.problem import Problem

__all__ = ["Problem"]
