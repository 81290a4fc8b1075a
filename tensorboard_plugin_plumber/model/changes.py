"""The changes of a plan, as the user would write them, each with its reason."""

from __future__ import annotations

from typing import Any

from tensorboard_plugin_plumber.model import words
from tensorboard_plugin_plumber.model.decisions import parallelism_changes, unchanged
from tensorboard_plugin_plumber.model.estimate import Estimate
from tensorboard_plugin_plumber.model.network import Choice, Settings
from tensorboard_plugin_plumber.schema import analysis_pb2 as a
from tensorboard_plugin_plumber.schema import measurement_pb2 as m


def changes_of(now: Estimate, settings: Settings) -> list[a.Change]:
    """The changes to the user's code that turn the settings in force into `settings`."""
    found: list[a.Change] = []
    before = now.network.current
    for i, (old, new) in enumerate(zip(before.choices, settings.choices, strict=True)):
        written = now.written[i]
        if parallelism_changes(old, new):
            found.append(_parallelism(now, i, old, new, written))
        if new.serves and not old.serves:
            found.append(_cache(now, i, new, written))
        if new.unbounded:
            found.append(_unbounded(now, i, new, written))
        if new.prefetch and not old.prefetch:
            found.append(
                _change(
                    operator=written.id,
                    kind=a.CHANGE_KIND_PREFETCH,
                    to=a.Setting(number=new.prefetch_size or 2),
                    why="lets the next element be made while the consumer works",
                    code=f".prefetch({new.prefetch_size or 2})",
                    before=a.Setting(word="none"),
                )
            )
    if settings.threadpool_size != before.threadpool_size:
        found.append(_threadpool(now, settings))
    return found


def _change(*, before: a.Setting, **fields: Any) -> a.Change:
    """A change; its field "from" is a word of Python's and cannot be named in a call."""
    change = a.Change(**fields)
    getattr(change, "from").CopyFrom(before)
    return change


def _parallelism(now: Estimate, i: int, old: Choice, new: Choice, written: m.Operator) -> a.Change:
    network = now.network
    operator = network.operators[i]
    calls = (network.observed_rate or 0.0) * operator.visits * operator.service_s
    if old.autotuned:
        most = unchanged(network).choices[i].parallelism
        running, before = f"AUTOTUNE runs at most {most}", a.Setting(word="autotune")
    elif old.parallel:
        running = "one runs" if old.parallelism == 1 else f"{old.parallelism} run"
        before = a.Setting(number=old.parallelism)
    else:
        # One parallel call is more than none: it runs beside the consumer's thread.
        running = "one runs"
        before = a.Setting(number=1) if new.parallelism > 1 else a.Setting(word="none")
    why = f"one call takes {words.duration(operator.service_s)} and {running} at a time"
    if calls:
        why += f"; {words.digits(calls)} are busy at today's rate"
    if written.parallel.reason:
        why += f". {written.parallel.reason[:1].upper()}{written.parallel.reason[1:].rstrip('.')}"
    return _change(
        operator=written.id,
        kind=a.CHANGE_KIND_PARALLELISM,
        to=a.Setting(number=new.parallelism),
        why=why,
        code=f"{_call(written)}num_parallel_calls={new.parallelism})",
        before=before,
    )


def _cache(now: Estimate, i: int, new: Choice, written: m.Operator) -> a.Change:
    network = now.network
    below = network.core_s((i, *network.below(i)))
    operator = network.operators[i]
    size, free = operator.cache_bytes or 0.0, network.limits.memory_free_bytes
    if new.file_cache:
        beside = f"; memory has no room for it, or serves no better, and {words.size(network.limits.disk_free_bytes)}"
        beside += f" of disk are free for its {words.size(operator.file_cache_bytes or 0.0)}"
    else:
        beside = (
            f"; it takes {_cache_size(now, operator.id, size)} of the {words.size(free)} that a plan may use"
        )
    path = cache_path(written)
    return _change(
        operator=written.id,
        kind=a.CHANGE_KIND_CACHE,
        to=a.Setting(word=path if new.file_cache else "memory"),
        why=(
            f"what lies below costs {words.duration(below)} of core time per step "
            f"and is the same in each epoch{beside}"
        ),
        code=f'.cache("{path}")' if new.file_cache else ".cache()",
        before=a.Setting(word="none"),
    )


def _cache_size(now: Estimate, operator: str, most: float) -> str:
    """ "1.2 GB, at most 1.6 GB,": what is likely and what it is judged by, where these differ."""
    size = now.sizes.get(operator)
    likely = size.materialised_bytes.value if size is not None and size.materialised_bytes else most
    said = words.size(most)
    return said if words.size(likely) == said else f"{words.size(likely)}, at most {said},"


def cache_path(written: m.Operator) -> str:
    """Where a file cache of this operator goes, below the working directory."""
    name = "".join(c if c.isalnum() else "-" for c in (written.label or written.type).lower()).strip("-")
    return f"plumber-cache/{name or 'elements'}"


def _unbounded(now: Estimate, i: int, new: Choice, written: m.Operator) -> a.Change:
    calls = "tf.data.AUTOTUNE" if new.autotuned else new.parallelism
    return _change(
        operator=written.id,
        kind=a.CHANGE_KIND_UNBOUNDED,
        to=a.Setting(word="unbounded"),
        why=(
            f"the iterator's pool runs {now.network.current.threadpool_size} functions at a time; "
            f"calls that wait {words.duration(now.network.operators[i].wait_s)} hold its slots "
            "and need no core meanwhile"
        ),
        code=f"{_call(written)}num_parallel_calls={calls}, use_unbounded_threadpool=True)",
        before=a.Setting(word="pool"),
    )


def _threadpool(now: Estimate, settings: Settings) -> a.Change:
    before = now.network.current.threadpool_size
    choices = zip(now.network.operators, settings.choices, strict=True)
    led = any(op.pooled and choice.autotuned and choice.parallelism > before for op, choice in choices)
    further = "; AUTOTUNE goes no further either" if led else ""
    return _change(
        kind=a.CHANGE_KIND_THREADPOOL,
        to=a.Setting(number=settings.threadpool_size),
        why=(
            f"the iterator's pool runs {before} functions at a time, and functions that wait hold their slots{further}"
        ),
        code=f"options.threading.private_threadpool_size = {settings.threadpool_size}",
        before=a.Setting(number=before),
    )


def _call(written: m.Operator) -> str:
    """ ".map(decode, " as the user would write it."""
    method = {
        "ParallelMap": "map",
        "ParallelInterleave": "interleave",
        "ParallelBatch": "batch",
        "ParallelFilter": "filter",
        "PaddedBatch": "padded_batch",
    }.get(written.type, written.type.lower())
    if written.HasField("function") and written.function.name.isidentifier():
        return f".{method}({written.function.name}, "
    return f".{method}(…, "
