"""A saved plan, applied where the user's code calls: while it is in force, the calls of a dataset's methods at the
lines of the plan get the plan's arguments, and its caches and prefetches follow on their results.

Operators that functions build for each element are reached too, for these are called while the function is traced.
What the plan does not know is never touched.

==============  =====================================================
`application`   a plan in force: what becomes of each call
`sites`         which operator of the plan a call makes
`checks`        whether it is what the plan was made for
`arguments`     of a call, with the plan's in their place
`methods`       the methods of TensorFlow's class, and how they are watched
==============  =====================================================
"""

from tensorboard_plugin_plumber.rewrite.call_sites.application import Application, Applied, applying

__all__ = ["Application", "Applied", "applying"]
