"""Rates that Plumber predicts for settings that never ran, against those that are then measured.

    make bench-predict                                  all pipelines: about 20 minutes on an idle machine
    make bench-predict ARGS=--smoke                     two of them, short: does it run, not what does it say
    make bench-predict ARGS="--only jpeg,zip --json numbers.json"

Each pipeline of `predict_pipelines.py` is traced as written, in a process of its own, and all of its settings are
predicted from that trace alone. The predictions of all pipelines are on the disk before any setting is measured. Then
each setting is built by hand and measured in several rounds, every round in another order; its rate is the median.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Machine, table, tell

#: The prediction is good within this factor.
GOOD = 1.25
TRACE_S = 4.0
ROUNDS = 3
WARM_UP_S = 0.3
#: Times as long a warm-up where AUTOTUNE may rule something.
AUTOTUNE_PATIENCE = 4.0
WINDOW_S = 0.4
#: A window lasts until it has seen so many elements, but no more than so many times as long.
ELEMENTS = 24
LONGEST = 4
#: A window in which other processes used more cores than this is measured again, up to so many times.
FOREIGN_CORES = 0.15
TRIES = 3
SMOKE = ("chain", "text")


@dataclass(frozen=True)
class Prediction:
    """Of one setting, steps/s."""

    setting: str
    rate: float
    #: What binds then.
    constraint: str


@dataclass(frozen=True)
class Outcome:
    """One setting of one pipeline, steps/s."""

    pipeline: str
    setting: str
    predicted: float
    constraint: str
    measured: float
    #: Of each round.
    rounds: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured

    @property
    def factor(self) -> float:
        """How far off, whichever way."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def spread(self) -> float:
        """Between the rounds, relative."""
        return (max(self.rounds) - min(self.rounds)) / self.measured


def predict(name: str, directory: Path, seconds: float) -> None:
    """Traces a pipeline as written, and saves what is predicted of its settings into `directory`."""
    from benchmarks.predict_pipelines import PIPELINES
    from tensorboard_plugin_plumber.capture.alone import run_alone
    from tensorboard_plugin_plumber.capture.files import open_writer

    pipeline = PIPELINES[name]
    run_alone(
        pipeline.make(_data(directory)), open_writer(directory / "trace"), kind="trace", seconds=seconds
    )
    predictions = predictions_of(name, directory)
    content = {
        "pipeline": name,
        "what": pipeline.what,
        "predicted_at": time.time(),
        "predictions": [asdict(one) for one in predictions],
    }
    with (directory / "predictions.json").open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def predictions_of(name: str, directory: Path) -> list[Prediction]:
    """What the trace in `directory` says of all settings."""
    from benchmarks.predict_pipelines import PIPELINES
    from benchmarks.predict_settings import settings_of
    from tensorboard_plugin_plumber.events.reader import read
    from tensorboard_plugin_plumber.model.bounds import bounds
    from tensorboard_plugin_plumber.model.plan import reached_rate, with_unfused_copies

    (recording,) = read(directory / "trace")
    now = _estimate(recording)
    found = []
    for edit in PIPELINES[name].edits:
        settings = settings_of(now, edit)
        binding = bounds(with_unfused_copies(now.network, settings), settings)[0]
        found.append(Prediction(str(edit), reached_rate(now.network, settings), binding.kind.value))
    return found


def _estimate(recording: Any) -> Any:
    """The model's estimate, the first fifth of the samples left out as `diagnose` does."""
    from tensorboard_plugin_plumber.model.estimate import estimate, limits_of, observed_bytes
    from tensorboard_plugin_plumber.model.windows import windows_of

    samples = recording.samples[len(recording.samples) // 5 :]
    index = recording.main_pipeline()
    pipeline = recording.graph.pipelines[index]
    windows = windows_of(pipeline, index, samples)
    if windows is None:
        raise RuntimeError("the trace holds no step")
    limits = limits_of(recording.graph.host, samples[-1].host, observed_bytes(windows), None, None)
    return estimate(pipeline, windows, limits)


def measure(name: str, directory: Path, rounds: int, warm_up_s: float, window_s: float) -> None:
    """Measures all settings of a pipeline, and saves their rates into `directory`."""
    from benchmarks.predict_pipelines import PIPELINES
    from benchmarks.predict_settings import build

    promised = fingerprint(directory / "predictions.json")
    began = time.time()
    edits = PIPELINES[name].edits
    window_s *= PIPELINES[name].patience
    datasets = [build(lambda: PIPELINES[name].make(_data(directory)), edit) for edit in edits]
    rates: list[list[float]] = [[] for _ in edits]
    disturbed = 0
    shuffled = np.random.default_rng(0)
    for _ in range(rounds):
        for i in shuffled.permutation(len(edits)):
            windows = []
            warm_up = warm_up_s * (AUTOTUNE_PATIENCE if edits[i].autotuned else 1.0)
            for _ in range(TRIES):
                windows.append(
                    window_of(datasets[i], warm_up, window_s, whole_pass=edits[i].cache is not None)
                )
                if windows[-1].foreign_cores <= FOREIGN_CORES:
                    break
            best = min(windows, key=lambda window: window.foreign_cores)
            disturbed += best.foreign_cores > FOREIGN_CORES
            rates[i].append(best.rate)
    content = {
        "predictions_sha256": promised,
        "measured_from": began,
        "disturbed": disturbed,
        "rates": {str(edit): rates[i] for i, edit in enumerate(edits)},
    }
    (directory / "measured.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Window:
    """What one iterator gave, elements/s, and the cores that other processes used meanwhile."""

    rate: float
    foreign_cores: float


def window_of(dataset: Any, warm_up_s: float, window_s: float, *, whole_pass: bool) -> Window:
    """What a fresh iterator gives after its warm-up.

    Args:
      dataset: endless.
      warm_up_s, window_s: how long, seconds.
      whole_pass: a cache is to be filled first: the warm-up goes on until the rate has stopped to grow.
    """
    elements = iter(dataset)
    _count(elements, warm_up_s, 1)
    if whole_pass:
        _until_steady(elements, window_s)
    others = others_s()
    count, seconds = _count(elements, window_s, ELEMENTS)
    return Window(count / seconds, (others_s() - others) / seconds)


def others_s() -> float:
    """Core time that everything but this process has used so far on this host, seconds; 0 where nobody knows."""
    try:
        ticks = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft, stolen = (float(tick) for tick in ticks[:8])
    busy = (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
    return busy - time.process_time()


def _count(elements: Iterator[Any], seconds: float, least: int) -> tuple[int, float]:
    """Elements taken, and the time from the element before the first of them to the last, seconds."""
    next(elements)
    begin = now = time.perf_counter()
    count = 0
    while now - begin < seconds or (count < least and now - begin < LONGEST * seconds):
        next(elements)
        count += 1
        now = time.perf_counter()
    return count, now - begin


def _until_steady(elements: Iterator[Any], seconds: float) -> None:
    """Takes elements until half a window is no faster than the one before it."""
    before = 0.0
    for _ in range(40):
        count, took = _count(elements, seconds / 2, 1)
        if count / took < 1.05 * before:
            return
        before = count / took


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outcomes_of(names: Sequence[str], directory: Path) -> list[Outcome]:
    """Joins what was predicted with what was measured.

    Raises:
      RuntimeError: predictions were not there before the measurement, or were changed since.
    """
    found = []
    for name in names:
        promised = directory / name / "predictions.json"
        measured = _measured(directory / name)
        content = json.loads(promised.read_text(encoding="utf-8"))
        same = fingerprint(promised) == measured["predictions_sha256"]
        if not same or content["predicted_at"] > measured["measured_from"]:
            raise RuntimeError(f"{name}: the predictions are not those from before the measurement")
        for one in content["predictions"]:
            rounds = tuple(measured["rates"][one["setting"]])
            median = statistics.median(rounds)
            found.append(Outcome(name, one["setting"], one["rate"], one["constraint"], median, rounds))
    return found


def _measured(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / "measured.json").read_text(encoding="utf-8")))


def describe(outcomes: Sequence[Outcome]) -> str:
    """The table, with the quantiles of max(ratio, 1/ratio)."""
    head = ["pipeline", "setting", "predicted", "measured", "ratio", "binds", "spread"]
    rows = [
        [
            one.pipeline,
            one.setting,
            f"{one.predicted:.4g}",
            f"{one.measured:.4g}",
            f"{one.ratio:.2f}" + (" *" if one.factor > GOOD else ""),
            one.constraint,
            f"{one.spread:.0%}",
        ]
        for one in outcomes
    ]
    return f"{table(head, rows)}\n\n{summary(outcomes)}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """p50 and p90, of all and of what is a prediction and no account of the present."""
    changed = [one for one in outcomes if one.setting != "as written"]
    noise = statistics.median(one.spread for one in outcomes)
    return "\n".join(
        [
            f"{_quantiles(outcomes)}: {len({one.pipeline for one in outcomes})} pipelines, {len(outcomes)} settings",
            f"{_quantiles(changed)}: without the settings as written",
            f"{sum(one.factor > GOOD for one in outcomes)} beyond {GOOD:g} (*)",
            f"rounds of one setting differ by {noise:.0%} (median), {max(o.spread for o in outcomes):.0%} at most",
        ]
    )


def _quantiles(outcomes: Sequence[Outcome]) -> str:
    p50, p90 = np.quantile([one.factor for one in outcomes], [0.5, 0.9])
    return f"max(ratio, 1/ratio): p50 {p50:.3f}, p90 {p90:.3f}"


def _data(directory: Path) -> Path:
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    return data


def _in_processes(stage: str, names: Sequence[str], directory: Path, smoke: bool) -> None:
    """Runs one stage of each pipeline in a process of its own: TensorFlow keeps threads and settings."""
    for name in names:
        tell(f"{stage}: {name}")
        command = [sys.executable, "-m", "benchmarks.predict", "--stage", stage, "--only", name]
        subprocess.run(
            [*command, "--directory", str(directory), *(["--smoke"] if smoke else [])],
            check=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )


def _run_stage(stage: str, names: Sequence[str], directory: Path, smoke: bool) -> None:
    for name in names:
        if stage == "predict":
            predict(name, directory / name, 2.0 if smoke else TRACE_S)
        elif smoke:
            measure(name, directory / name, 1, 0.1, 0.1)
        else:
            measure(name, directory / name, ROUNDS, WARM_UP_S, WINDOW_S)


def main() -> int:
    from benchmarks.predict_pipelines import PIPELINES

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="some of the pipelines, comma-separated")
    parser.add_argument("--smoke", action="store_true", help="two pipelines, each setting once and short")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument(
        "--directory", type=Path, help="for traces and predictions (default: a temporary one)"
    )
    parser.add_argument(
        "--stage", choices=("predict", "measure", "compare"), help="one part of it, in this process"
    )
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(SMOKE if options.smoke else PIPELINES)
    if unknown := set(names) - PIPELINES.keys():
        parser.error(f"no pipeline {', '.join(sorted(unknown))}: there are {', '.join(PIPELINES)}")
    directory = options.directory or Path(tempfile.mkdtemp(prefix="plumber-predict-"))
    if options.stage in ("predict", "measure"):
        _run_stage(options.stage, names, directory, options.smoke)
        sys.stdout.flush()
        os._exit(0)  # TensorFlow hangs at the interpreter's end over pipelines in Python
    if options.stage is None:
        _in_processes("predict", names, directory, options.smoke)
        _in_processes("measure", names, directory, options.smoke)
    outcomes = outcomes_of(names, directory)
    machine = Machine.here()
    disturbed = sum(_measured(directory / name)["disturbed"] for name in names)
    print(f"{machine}\n\n{describe(outcomes)}")
    print(
        f"{disturbed} windows in which other processes used more than {FOREIGN_CORES:g} cores to the last try"
    )
    print(f"\nTraces, predictions and rates: {directory}")
    if options.json:
        numbers = [{**asdict(one), "ratio": one.ratio, "spread": one.spread} for one in outcomes]
        content = {"machine": asdict(machine), "disturbed": disturbed, "outcomes": numbers}
        options.json.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
