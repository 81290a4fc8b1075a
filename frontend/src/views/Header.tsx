import type { JSX } from "preact";
import { ago, clock, count, duration, quotient } from "../lib/format";
import type { Analysis, RunList } from "../lib/schema";
import type { State, Store } from "../lib/store";
import { selfCheck } from "../lib/verdict";
import { Chip } from "./bits";
import { useNow } from "./hooks";

interface Choice {
  readonly value: string;
  readonly text: string;
}

function Picker(props: { label: string; value: string | null; choices: readonly Choice[]; onPick: (value: string) => void }): JSX.Element {
  return (
    <label class="picker">
      <span>{props.label}</span>
      <select
        name={props.label.toLowerCase()}
        value={props.value ?? ""}
        disabled={props.choices.length === 0}
        onChange={(event) => props.onPick(event.currentTarget.value)}
      >
        {props.choices.map(({ value, text }) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Header({ state, runs, store }: { state: State; runs: RunList; store: Store }): JSX.Element {
  const { selection, analysis, error } = state;
  const run = runs.runs.find((entry) => entry.run === selection.run);
  const hosts = run?.hosts ?? [];
  const pipelines = hosts.find((entry) => entry.host === selection.host)?.pipelines ?? [];
  const rates = hosts.flatMap(({ rate }) => (rate === null ? [] : [rate]));
  const lowest = hosts.length > 1 && rates.length > 1 ? Math.min(...rates) : null;
  return (
    <header class="bar-top">
      <strong class="brand">Plumber</strong>
      <Picker
        label="Run"
        value={selection.run}
        choices={runs.runs.map((entry) => ({ value: entry.run, text: entry.run === "." ? ". (log directory)" : entry.run }))}
        onPick={(value) => void store.select({ run: value })}
      />
      <Picker
        label="Host"
        value={selection.host}
        choices={hosts.map((entry) => ({ value: entry.host, text: entry.host + (lowest !== null && entry.rate === lowest ? ` (slowest of ${hosts.length})` : "") }))}
        onPick={(value) => void store.select({ host: value })}
      />
      <Picker
        label="Pipeline"
        value={selection.pipeline}
        choices={pipelines.map((entry) => ({ value: entry.id, text: `${entry.label} (${count(entry.steps)} steps)` }))}
        onPick={(value) => void store.select({ pipeline: value })}
      />
      <span class="grow" />
      {error?.kind === "offline" && (
        <Chip tone="warn" title={error.error}>
          not connected
        </Chip>
      )}
      {analysis !== null && <Chips analysis={analysis} />}
    </header>
  );
}

function Chips({ analysis }: { analysis: Analysis }): JSX.Element {
  const now = useNow(1, analysis.live);
  const check = analysis.verdict === null ? null : selfCheck(analysis.verdict, quotient);
  // Clocks of two machines may differ: nothing is from the future.
  const since = ago(Math.max(0, now - analysis.updated_s));
  return (
    <>
      <Chip
        tone={analysis.live ? "good live" : ""}
        title={`Newest sample at ${clock(analysis.updated_s)} · ${count(analysis.steps)} steps in ${duration(analysis.seconds)} · ${count(analysis.windows)} windows`}
      >
        {analysis.live ? `live · ${since}` : `ended ${since}`}
      </Chip>
      {check !== null && (
        <Chip tone={check.tone} title={check.detail}>
          {check.text}
        </Chip>
      )}
    </>
  );
}
