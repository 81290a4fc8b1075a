"""A plan taken further than its prediction: what waits may bear more calls than the model dares to ask for.

The core time of a call that waits is measured where few calls are made, each into cold caches and with threads that
must be woken; it is up to twice what a call costs among many. Where that bounds a plan, measuring is what tells.
"""

from __future__ import annotations

from tensorboard_plugin_plumber.patch.diff import fill_patch
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: How many times as many calls and threads, and no more than so many.
_TIMES = 3
_MOST = 128
_POOLS = (a.CHANGE_KIND_THREADPOOL, a.CHANGE_KIND_UNBOUNDED)


def further(analysis: a.Analysis) -> a.Analysis | None:
    """The same plan with more calls and threads; None where it gives no function more threads, or enough.

    Its prediction stays: it is what the model dares to say.
    """
    changes = analysis.plan.changes
    if not any(change.kind in _POOLS for change in changes):
        return None
    if _TIMES * analysis.plan.memory_bytes > analysis.limits.memory_free_bytes:
        return None
    found = a.Analysis()
    found.CopyFrom(analysis)
    for change in found.plan.changes:
        if change.kind in (a.CHANGE_KIND_PARALLELISM, a.CHANGE_KIND_THREADPOOL) and change.to.number:
            _raise(change)
    if [one.to.number for one in found.plan.changes] == [one.to.number for one in changes]:
        return None
    found.plan.memory_bytes *= _TIMES
    fill_patch(found)
    return found


def _raise(change: a.Change) -> None:
    old = change.to.number
    new = max(old, min(_TIMES * old, _MOST))
    if new > old:
        change.to.number = new
        change.code = change.code.replace(f"={old}", f"={new}").replace(f"= {old}", f"= {new}")
        change.why += f"; more than the model asks for ({old}) measured faster"
