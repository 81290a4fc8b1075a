"""The command line: thin, it joins the parts. Imports nothing heavy before a command needs it."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from tensorboard_plugin_plumber._version import __version__
from tensorboard_plugin_plumber.commands.optimize import optimize
from tensorboard_plugin_plumber.commands.parts import (
    EPOCHS,
    MEMORY,
    NUMBER,
    SPEED,
    InputError,
    parse_target,
    print_report,
    take_over_answer,
    terminal,
    with_pipeline,
)
from tensorboard_plugin_plumber.progress import progress
from tensorboard_plugin_plumber.quiet import quiet_tensorflow

if TYPE_CHECKING:
    import tensorflow as tf

    from tensorboard_plugin_plumber.model.questions import WhatIf
    from tensorboard_plugin_plumber.report import FleetEntry, Report
    from tensorboard_plugin_plumber.schema import measurement_pb2 as m
    from tensorboard_plugin_plumber.schema.recording import Recording

DONE, CHECK_FAILED, BAD_INPUT, INTERNAL_ERROR = 0, 1, 2, 3
_INTERRUPTED = 130
_OUTPUT_CLOSED = 141

_EPILOG = """\
TARGET is file.py:function or module:function, a function of no arguments that returns a
tf.data.Dataset.

Exit codes: 0 done; 1 a check failed; 2 bad usage or input, or a question that the log cannot answer; 3 an
internal error. Please report internal errors in the issue tracker of
tensorboard-plugin-plumber, with what was printed.
"""


_PERCENT = click.FloatRange(0, 100)


class _Commands(click.Group):
    """Shows every command with all of its options: there are few."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            for name in self.list_commands(ctx):
                command = self.commands[name]
                with click.Context(command, info_name=name, parent=ctx) as command_context:
                    usage = " ".join(_pieces(command, command_context))
                formatter.write_usage(f"plumber {name}", usage, prefix="  ")
                with formatter.indentation():
                    formatter.write_text(command.get_short_help_str(limit=200))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        for paragraph in _EPILOG.split("\n\n"):
            formatter.write_text(paragraph)
            formatter.write_paragraph()


def _pieces(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Argument):
            yield str(parameter.metavar)
        elif isinstance(parameter, click.Option) and "--help" not in parameter.opts:
            yield (
                f"[{parameter.opts[0]}]"
                if parameter.is_flag
                else f"[{parameter.opts[0]} {parameter.metavar}]"
            )


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=_Commands, context_settings=_CONTEXT, invoke_without_command=True)
@click.version_option(__version__, prog_name="plumber", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Plumber says why training waits for its tf.data pipeline, and what to change."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@commands.command()
@click.option(
    "--logdir",
    metavar="D",
    type=click.Path(file_okay=False),
    help="Where to record; a new directory by default.",
)
@click.option("--no-serve", is_flag=True, help="End after the report.")
def demo(logdir: str | None, no_serve: bool) -> int:
    """Train a small model on a badly configured pipeline, print its report, and serve TensorBoard."""
    from tensorboard_plugin_plumber.demo.command import run_demo

    try:
        return run_demo(logdir, not no_serve)
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        raise InputError(
            f"The demo cannot write{where} ({error.strerror}): give a directory with --logdir."
        ) from error


@commands.command()
@click.argument("target", metavar="TARGET")
@click.option("--logdir", metavar="D", help="Where to record.  [default: logs/FUNCTION-TIME]")
@click.option(
    "--seconds", metavar="S", type=NUMBER, default=5.0, show_default=True, help="How long to run it."
)
def trace(target: str, logdir: str | None, seconds: float) -> int:
    """Run a dataset on its own and record it."""
    answer = take_over_answer()
    parsed = parse_target(target)
    if logdir is None:
        logdir = os.path.join("logs", f"{parsed.function}-{time.strftime('%Y%m%d-%H%M%S')}")
    _check_writable(logdir)
    with progress(f"Running {parsed} for {seconds:g} s"):
        steps = with_pipeline(parsed, lambda dataset: _run_and_record(dataset, logdir, seconds))
    print(f"Recorded {steps:,} elements of {parsed} in {logdir}.", file=answer)
    print(f"plumber report {logdir}\ntensorboard --logdir {logdir}", file=answer, flush=True)
    return DONE


@commands.command()
@click.argument("target", metavar="TARGET")
@click.option(
    "--seconds", metavar="S", type=NUMBER, default=5.0, show_default=True, help="How long to run it."
)
@click.option(
    "--consumer-rate",
    metavar="R",
    type=NUMBER,
    help="Steps per second that training could take, if you know it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the analysis as one JSON object.")
def diagnose(target: str, seconds: float, consumer_rate: float | None, as_json: bool) -> int:
    """Run a dataset on its own and say what binds it; nothing is kept."""
    answer = take_over_answer()
    parsed = parse_target(target)
    with progress(f"Running {parsed} for {seconds:g} s"):
        report = with_pipeline(parsed, lambda dataset: _diagnose(dataset, seconds, consumer_rate))
    print_report(report, as_json, answer)
    return DONE


@commands.command()
@click.argument("logdir", metavar="LOGDIR")
@click.option("--run", metavar="R", help="Which run; the newest by default.")
@click.option("--host", metavar="H", help="Which host; the run's slowest by default.")
@click.option(
    "--pipeline",
    metavar="P",
    help="Which pipeline, by id or label; the training one with most steps by default.",
)
@click.option("--all", "every_run", is_flag=True, help="A line per run, and totals.")
@click.option("--cores", metavar="N", type=NUMBER, help="What if it had so many cores?")
@click.option(
    "--memory",
    metavar="BYTES",
    type=MEMORY,
    help="What if its memory limit were this? Suffixes as in 8GiB work.",
)
@click.option(
    "--storage",
    metavar="BYTES_PER_S",
    type=SPEED,
    help="What if storage delivered this? Suffixes as in 200MB/s work.",
)
@click.option(
    "--rate", metavar="R", type=NUMBER, help="What would so many steps per second take: cores, memory?"
)
@click.option(
    "--epochs", metavar="E", type=EPOCHS, help="What if training passed so many times over its data?"
)
@click.option(
    "--consumer-rate", metavar="R", type=NUMBER, help="What if training could take so many steps per second?"
)
@click.option("--html", "html_path", metavar="F", help="Write it as one self-contained page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report(
    logdir: str,
    run: str | None,
    host: str | None,
    pipeline: str | None,
    every_run: bool,
    cores: float | None,
    memory: float | None,
    storage: float | None,
    rate: float | None,
    epochs: float | None,
    consumer_rate: float | None,
    html_path: str | None,
    as_json: bool,
) -> int:
    """Analyse what was recorded in a log directory."""
    from tensorboard_plugin_plumber.events import catalog, reader
    from tensorboard_plugin_plumber.model.questions import WhatIf

    what_if = WhatIf(
        cores=cores,
        memory_bytes=memory,
        storage_bytes_per_s=storage,
        wanted_rate=rate,
        epochs=epochs,
        consumer_rate=consumer_rate,
    )
    if every_run and (run or host or pipeline):
        raise InputError("--all takes every run: leave out --run, --host and --pipeline, or --all.")
    if every_run and html_path:
        raise InputError("A page is of one run: leave out --all, or --html.")
    answer = take_over_answer()  # solvers print too
    with progress(f"Reading {logdir}"):
        recordings = reader.read(logdir)
    if every_run:
        with progress(f"Analysing {len(recordings)} recordings"):
            entries = [_fleet_entry(of_run, what_if) for of_run in _by_run(recordings)]
        _print_fleet(entries, as_json, answer)
        return DONE
    recording = catalog.choose(recordings, run=run, host=host)
    chosen = catalog.choose_pipeline(recording, pipeline)
    if recording.notes:
        click.echo(f"plumber: {' '.join(recording.notes)}", err=True)
    if not as_json and (others := _others(recordings, recording, chosen, run, pipeline)):
        click.echo(f"plumber: {others}", err=True)
    with progress("Analysing"):
        found = _analyse(recording, chosen.id, what_if)
    if html_path is not None:
        _write_page(found, html_path)
        if not as_json:
            click.echo(f"Wrote {html_path}: open it in a browser.", file=answer)
            return DONE
    print_report(found, as_json, answer)
    return DONE


commands.add_command(optimize)


@commands.command()
@click.argument("logdir", metavar="LOGDIR")
@click.option("--run", metavar="R", help="Which run; the newest by default.")
@click.option("--host", metavar="H", help="Which host; the run's slowest by default.")
@click.option("--pipeline", metavar="P", help="Which pipeline, by id or label.")
@click.option(
    "--max-wait", metavar="PERCENT", type=_PERCENT, help="Fail where training waits more of the step."
)
@click.option("--min-rate", metavar="R", type=NUMBER, help="Fail where training makes fewer steps/s.")
def check(
    logdir: str,
    run: str | None,
    host: str | None,
    pipeline: str | None,
    max_wait: float | None,
    min_rate: float | None,
) -> int:
    """Fail, with exit code 1, when training waits more or runs slower than it may: for CI."""
    from tensorboard_plugin_plumber.checking import Limits, broken, kept
    from tensorboard_plugin_plumber.events import catalog, reader
    from tensorboard_plugin_plumber.model.questions import AS_MEASURED

    if max_wait is None and min_rate is None:
        raise InputError("Say what to check: --max-wait PERCENT, --min-rate STEPS_PER_S, or both.")
    limits = Limits(None if max_wait is None else max_wait / 100, min_rate)
    answer = take_over_answer()
    with progress(f"Reading {logdir}"):
        recordings = reader.read(logdir)
    recording = catalog.choose(recordings, run=run, host=host)
    chosen = catalog.choose_pipeline(recording, pipeline)
    if recording.notes:
        click.echo(f"plumber: {' '.join(recording.notes)}", err=True)
    analysis = _analyse(recording, chosen.id, AS_MEASURED).analysis
    failures = broken(analysis, limits)
    of = f"{analysis.run}, {analysis.host}, {analysis.pipeline_label or analysis.pipeline}"
    if failures:
        click.echo(f"failed ({of}): {'; '.join(failures)}.", file=answer)
        if analysis.bottleneck.sentence:
            click.echo(analysis.bottleneck.sentence, file=answer)
        return CHECK_FAILED
    click.echo(f"passed ({of}): {kept(analysis, limits)}.", file=answer)
    return DONE


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process with its exit code."""
    quiet_tensorflow()
    try:
        code = run_command(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as exit_:  # a signal handler's
        code = exit_.code if isinstance(exit_.code, int) else INTERNAL_ERROR
    _end_process(code)


def run_command(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; every failure has been told on stderr by then."""
    try:
        code = commands.main(list(arguments), prog_name="plumber", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "plumber"
        return _complain(f"{error.format_message().rstrip('.?')}; see '{command} --help'.")
    except click.ClickException as error:
        return _complain(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _OUTPUT_CLOSED
    except Exception as error:
        if _is_for_the_user(error):
            return _complain(str(error))
        traceback.print_exc()
        click.echo(
            f"plumber: internal error ({type(error).__name__}). Please report it in the issue tracker of "
            "tensorboard-plugin-plumber with the lines above.",
            err=True,
        )
        return INTERNAL_ERROR


def _is_for_the_user(error: Exception) -> bool:
    """Whether the message is the whole story: what was wrong with the input, and how to mend it."""
    if isinstance(error, InputError):
        return True
    # Only what is imported can have been raised; importing more here would slow every error down.
    kinds = (
        ("tensorboard_plugin_plumber.target", "TargetError"),
        ("tensorboard_plugin_plumber.events.reader", "NothingRecorded"),
        ("tensorboard_plugin_plumber.events.catalog", "NotFound"),
        ("tensorboard_plugin_plumber.model.analyse", "NotAnswerable"),
        ("tensorboard_plugin_plumber.checking", "Unknown"),
    )
    return any(
        name in sys.modules and isinstance(error, getattr(sys.modules[name], kind)) for name, kind in kinds
    )


def _complain(sentence: str) -> int:
    click.echo(f"plumber: {' '.join(sentence.split())}", err=True)
    return BAD_INPUT


def _end_process(code: int) -> NoReturn:
    """Ends the process, past what TensorFlow's threads may still hold up.

    A Python pipeline whose iterator is alive somewhere keeps the interpreter from ending for good: so
    what the user's code has registered to run at exit runs, and then the process goes at once.
    """
    if "tensorflow" not in sys.modules:
        sys.exit(code)
    try:
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _diagnose(dataset: tf.data.Dataset, seconds: float, consumer_rate: float | None) -> Report:
    from tensorboard_plugin_plumber.diagnosis import diagnose as run_diagnosis

    return run_diagnosis(dataset, seconds=seconds, consumer_rate=consumer_rate)


def _run_and_record(dataset: tf.data.Dataset, logdir: str, seconds: float) -> int:
    from tensorboard_plugin_plumber.diagnosis import record

    return record(dataset, logdir, seconds=seconds)


def _check_writable(logdir: str) -> None:
    if "://" in logdir:
        return
    try:
        os.makedirs(logdir, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Cannot record in '{logdir}' ({error.strerror}): give a directory with --logdir."
        ) from error
    if not os.access(logdir, os.W_OK | os.X_OK):
        raise InputError(f"Cannot record in '{logdir}' (no permission to write): give another with --logdir.")


def _analyse(recording: Recording, pipeline: str, what_if: WhatIf) -> Report:
    from tensorboard_plugin_plumber.answers import Answers
    from tensorboard_plugin_plumber.events import catalog
    from tensorboard_plugin_plumber.report import Report

    answers = Answers(recording, pipeline)
    analysis = answers.to(what_if)
    analysis.live = catalog.is_live(recording, now_s=time.time())
    return Report(analysis, answers.to)


def _others(
    recordings: Sequence[Recording],
    recording: Recording,
    chosen: m.Pipeline,
    run: str | None,
    pipeline: str | None,
) -> str:
    """What was recorded beside the one shown, where nobody said which to show; "" if nothing was."""
    runs = len({other.run for other in recordings})
    pipelines = [other.label for other in recording.graph.pipelines if other.id != chosen.id]
    sentences = []
    if run is None and runs > 1:
        sentences.append(f"This is the newest of {runs} runs; --all lists them, --run shows one.")
    if pipeline is None and pipelines:
        known = ", ".join(f"'{label}'" for label in dict.fromkeys(pipelines))
        sentences.append(f"--pipeline shows another one of this run: {known}.")
    return " ".join(sentences)


def _by_run(recordings: Sequence[Recording]) -> list[list[Recording]]:
    runs: dict[str, list[Recording]] = {}
    for recording in recordings:
        runs.setdefault(recording.run, []).append(recording)
    return list(runs.values())


def _fleet_entry(of_run: Sequence[Recording], what_if: WhatIf) -> FleetEntry:
    from tensorboard_plugin_plumber.events import catalog
    from tensorboard_plugin_plumber.model.analyse import NotAnswerable
    from tensorboard_plugin_plumber.report import FleetEntry

    recording = catalog.choose(of_run)
    try:
        analysis = _analyse(recording, catalog.main_pipeline(recording).id, what_if).analysis
    except NotAnswerable as error:
        return FleetEntry(recording.run, recording.host, None, str(error))
    return FleetEntry(recording.run, recording.host, analysis)


def _write_page(report: Report, path: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(report.html())
    except OSError as error:
        raise InputError(
            f"Cannot write '{path}' ({error.strerror}): give another file with --html."
        ) from error


def _print_fleet(entries: Sequence[FleetEntry], as_json: bool, answer: TextIO) -> None:
    from tensorboard_plugin_plumber.report import fleet_text, fleet_to_dict

    if as_json:
        text = json.dumps(fleet_to_dict(entries), allow_nan=False, ensure_ascii=False, indent=1) + "\n"
    else:
        width, color = terminal(answer)
        text = fleet_text(entries, width=width, color=color)
    answer.write(text)
    answer.flush()


if __name__ == "__main__":
    main()
