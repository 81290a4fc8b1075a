"""Names and numbers as reports write them: every text and every page says them alike."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from tensorboard_plugin_plumber.model.words import digits, factor
from tensorboard_plugin_plumber.schema import analysis_pb2 as a

#: What stands for a number that is not there.
NONE = "–"
# A first element that comes sooner delays nothing that a person would notice.
_WORTH_SAYING_S = 0.1

_SETTINGS = {
    a.CHANGE_KIND_PARALLELISM: "parallel calls of {}",
    a.CHANGE_KIND_PREFETCH: "prefetch after {}",
    a.CHANGE_KIND_CACHE: "cache after {}",
    a.CHANGE_KIND_THREADPOOL: "threads of the pool",
    a.CHANGE_KIND_ORDER: "order of {}",
    a.CHANGE_KIND_SERVICE: "tf.data service after {}",
    a.CHANGE_KIND_REWRITE: "place of {}",
    a.CHANGE_KIND_UNBOUNDED: "thread pool of {}",
}
_SHORT_SETTINGS = {
    a.CHANGE_KIND_PARALLELISM: "calls",
    a.CHANGE_KIND_THREADPOOL: "pool",
    a.CHANGE_KIND_UNBOUNDED: "pool",
}


def operator_name(row: a.OperatorRow) -> str:
    """How an operator is named in every text: "Map decode_and_augment (train.py:57)"."""
    if row.injected:
        return f"{short_name(row)} (added by TensorFlow)"
    return f"{short_name(row)} ({clean(row.source)})" if row.source else short_name(row)


def short_name(row: a.OperatorRow) -> str:
    """ "Map decode", or only "Batch" where the label says nothing more."""
    return clean(row.type if row.label in ("", row.type) else f"{row.type} {row.label}")


def place(row: a.OperatorRow) -> str:
    """ "train.py:57", or what is to be said in its place."""
    return "by TensorFlow" if row.injected else clean(row.source) if row.source else "line unknown"


def mark(row: a.OperatorRow) -> str:
    """What is to be known of an operator at once; "" for most."""
    if row.binds:
        return "binds"
    if row.dropped:
        return "not run"
    return "fused" if row.fused_with else ""


def calls(row: a.OperatorRow) -> str:
    """Its parallelism in force: "8", "4 auto"."""
    if not row.HasField("parallelism"):
        return ""
    return f"{number(row.parallelism)}{' auto' if row.autotuned else ''}"


def step_s(row: a.OperatorRow) -> float | None:
    """Its own time per step, seconds: V (c + w); None if unknown."""
    if not row.HasField("visit_ratio") or not row.HasField("cpu_s"):
        return None
    return row.visit_ratio * (row.cpu_s + row.wait_s)


def setting_name(change: a.Change, name: str) -> str:
    """ "parallel calls of Map decode (train.py:57)"."""
    return _SETTINGS.get(change.kind, "{}").format(name or "the pipeline")


def change_mark(change: a.Change) -> str:
    """In a few letters, for the operator's own place: "calls 1 → 8"."""
    kind = a.ChangeKind.Name(change.kind).removeprefix("CHANGE_KIND_").lower()
    what = _SHORT_SETTINGS.get(change.kind, kind)
    return f"{what} {setting(setting_from(change))} → {setting(change.to)}"


def setting_from(change: a.Change) -> a.Setting:
    """What is in force; the field's name is a keyword of Python's."""
    found: a.Setting = getattr(change, "from")
    return found


def setting(value: a.Setting) -> str:
    """ "8", "autotune", a path."""
    if value.WhichOneof("value") is None:
        return NONE
    return f"{value.number:,}" if value.WhichOneof("value") == "number" else clean(value.word)


def gain(finding: a.Finding) -> str:
    """ "+88 %"; "" where it is not known."""
    known = finding.HasField("gain") and math.isfinite(finding.gain)
    return f"{100 * finding.gain:+.0f} %" if known else ""


def is_code(text: str) -> bool:
    """Whether it is code that can be copied, rather than a sentence: ".map(decode, num_parallel_calls=8)"."""
    code = text.strip().replace("…", "...")
    if not any(sign in code for sign in "(="):
        return False
    try:
        ast.parse(f"x{code}" if code.startswith(".") else code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def enum_word(name: str) -> str:
    """ "CONSTRAINT_THREADPOOL" -> "threadpool"."""
    return name.partition("_")[2].lower().replace("_", " ")


def optional(message: Message, field: str, form: Callable[[float], str]) -> str:
    """An optional number in the form asked for, or a dash."""
    return form(getattr(message, field)) if message.HasField(field) else NONE


def number(value: float) -> str:
    """Three significant digits, thousands set apart; whole small numbers as they are."""
    if not math.isfinite(value):
        return NONE
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return digits(value)


def rate(value: float) -> str:
    """ "24.3 steps/s"."""
    return f"{measured(value)} steps/s"


def measured(value: float) -> str:
    """Three significant digits, zeros included: what was measured is no whole number."""
    return digits(value) if math.isfinite(value) else NONE


def percent(share: float) -> str:
    """ "64 %"."""
    if not math.isfinite(share):
        return NONE
    return f"{100 * share:.0f} %" if share >= 0.005 or share == 0 else "<1 %"


def size(count: float) -> str:
    """ "3.1 GB"; powers of 1000."""
    if not math.isfinite(count):
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def cores(count: float) -> str:
    """ "0.98", "<0.01", "12"."""
    if not math.isfinite(count):
        return NONE
    return "<0.01" if 0 < count < 0.005 else f"{count:.2f}" if count < 10 else f"{count:.0f}"


def size_rate(count: float) -> str:
    """ "31 MB/s"."""
    return f"{size(count)}/s"


def duration(seconds: float) -> str:
    """ "85 ns", "26.3 ms", "45 s", "12 min"."""
    if not math.isfinite(seconds):
        return NONE
    if seconds == 0:
        return "0 s"
    if seconds < 120:
        for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
            if seconds >= 0.9995 * scale:
                return f"{seconds / scale:.3g} {unit}"
        return f"{seconds / 1e-9:.3g} ns"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def headline(analysis: a.Analysis) -> str:
    """Which run, host and pipeline it is of."""
    run = f"run {analysis.run}, " if analysis.run not in ("", ".") else ""
    return clean(f"{run}host {analysis.host}, pipeline {analysis.pipeline_label or analysis.pipeline}")


def facts(analysis: a.Analysis) -> list[str]:
    """What was measured of the whole, a few words each."""
    verdict = analysis.verdict
    found = []
    if analysis.steps:
        found.append(f"{number(round(analysis.steps))} steps in {duration(analysis.seconds)}")
    if verdict.HasField("observed_rate"):
        found.append(f"observed {rate(verdict.observed_rate)}")
    if verdict.HasField("wait_fraction"):
        found.append(f"waits {percent(verdict.wait_fraction)} of the time")
    if verdict.HasField("consumer_rate") and math.isfinite(verdict.consumer_rate):
        found.append(f"consumer could take {rate(verdict.consumer_rate)}")
    if verdict.HasField("waits_over_1ms"):
        found.append(f"{percent(verdict.waits_over_1ms)} of steps wait over 1 ms")
    if verdict.HasField("first_step_delay_s") and verdict.first_step_delay_s >= _WORTH_SAYING_S:
        each = "" if verdict.epochs == 1 else f", on average of {verdict.epochs} epochs"
        found.append(f"first element after {duration(verdict.first_step_delay_s)}{each}")
    if verdict.HasField("self_check"):
        found.append(f"self-check {verdict.self_check:.2f}")
    return found


def step_parts(verdict: a.Verdict) -> tuple[float, float] | None:
    """Seconds of a step that the consumer works, and that it waits; None if unknown."""
    if not verdict.HasField("step_s") or not verdict.HasField("wait_s") or verdict.step_s <= 0:
        return None
    waits = min(max(verdict.wait_s, 0.0), verdict.step_s)
    return verdict.step_s - waits, waits


def plan_sentence(analysis: a.Analysis) -> str:
    """What the plan promises."""
    plan = analysis.plan
    if plan.sentence:
        return plan.sentence
    if not plan.changes:
        return "No changes: nothing that Plumber can set would make it faster."
    if not plan.HasField("predicted_rate"):
        return ""
    predicted = f"Predicted: {rate(plan.predicted_rate)}"
    if plan.HasField("low") and plan.HasField("high"):
        predicted += f" ({measured(plan.low)} to {measured(plan.high)})"
    if analysis.verdict.HasField("observed_rate"):
        predicted += f", now {measured(analysis.verdict.observed_rate)}"
    return f"{predicted}."


def measured_sentence(analysis: a.Analysis) -> str:
    """What the rewritten dataset was measured to give; "" if there was none."""
    if not analysis.HasField("measured"):
        return ""
    found, plan = analysis.measured, analysis.plan
    if not plan.changes:
        return f"Nothing was faster: the dataset stays as it is, at {rate(found.before)}."
    same = "could not be compared"
    if found.HasField("same_elements"):
        same = "are the same" if found.same_elements else "are others"
    predicted = f", predicted were {measured(plan.predicted_rate)}" if plan.HasField("predicted_rate") else ""
    if (interval := plan_interval(plan)) is not None:
        predicted += f" ({measured(interval[0])} to {measured(interval[1])})"
    return (
        f"Measured by turns: {measured(found.before)} steps/s before, {measured(found.after)} after, "
        f"{factor(found.after / found.before)} as fast{predicted}. Its elements {same}."
    )


def plan_interval(plan: a.Plan) -> tuple[float, float] | None:
    """The 90 % interval of its rate, steps/s; None if it has none."""
    known = plan.HasField("low") and plan.HasField("high") and math.isfinite(plan.low + plan.high)
    return (plan.low, plan.high) if known else None


def limits_sentence(limits: a.Limits) -> str:
    """The limits that the analysis used; "" if it had none."""
    if limits.cores <= 0:
        return ""
    return (
        f"Limits: {number(limits.cores)} cores, {size(limits.memory_bytes)} memory of which a plan may add "
        f"{size(limits.memory_free_bytes)}, {limits.threadpool_size} threads for user functions."
    )


def buffers_sentence(analysis: a.Analysis) -> str:
    """How full the buffers are; "" where there are none."""
    held = [row for row in analysis.operators if row.HasField("buffer_fill") and row.buffered_bytes > 0]
    if not held:
        return ""
    each = ", ".join(f"{operator_name(row)} {percent(row.buffer_fill)} full" for row in held)
    return f"Buffers hold {size(analysis.autotune.buffered_bytes)}: {each}."


def clean(content: Any) -> str:
    """Without what could steer a terminal, or turn what follows it around (bidirectional controls).

    Names and paths come from whoever wrote the events.
    """
    return "".join(
        character if character.isprintable() or character == "\n" else "�" for character in str(content)
    )
