import type { JSX } from "preact";
import { bytes, bytesPerSecond, cores, count, duration, exact, NONE, percent, stepsPerSecond } from "../lib/format";
import type { Analysis, EdgeFact, OperatorRow } from "../lib/schema";
import { bindsMark, findOperator, operatorName } from "../lib/words";
import { Chip, Section, Value } from "./bits";

/** Everything that is known of one operator. */
export function Details({ analysis, row, onInspect }: { analysis: Analysis; row: OperatorRow; onInspect: (id: string | null) => void }): JSX.Element {
  const fused = findOperator(analysis, row.fused_with);
  const unmeasured = fused === null ? "Nothing was counted for it" : `Counted together with ${operatorName(fused)}`;
  const ofStep = row.visit_ratio === null || row.cpu_s === null ? null : row.visit_ratio * (row.cpu_s + (row.wait_s ?? 0));
  const fields: [string, string, string?][] = [
    ["Max rate", stepsPerSecond(row.max_rate), fused === null ? "No limit: it costs next to nothing" : unmeasured],
    ["Capacity used", percent(row.utilisation), unmeasured],
    ["Cores used", cores(row.cores_used), unmeasured],
    ["Parallel calls", row.parallelism === null ? NONE : `${exact(row.parallelism)}${row.autotuned ? " (AUTOTUNE)" : ""}`, "It makes one element at a time"],
    ["Elements/step", exact(row.visit_ratio), unmeasured],
    ["Time/element", plusMinus(row), unmeasured],
    ["Time/step", duration(ofStep), unmeasured],
    ["Element size", bytes(row.bytes_per_element), "Not known"],
    ["Leaves it", bytesPerSecond(row.bytes_per_s), "Not known"],
    ["Buffered", bytes(row.buffered_bytes), "It has no buffer"],
    ["Buffer filled", percent(row.buffer_fill), "It has no buffer"],
    ["Elements made", count(row.elements), unmeasured],
  ];
  return (
    <Section
      id="details"
      class="details"
      title={
        <>
          {operatorName(row)}
          {row.binds && <Chip tone="hot">{bindsMark(analysis.bottleneck?.constraint ?? null)}</Chip>}
          {row.injected && <Chip>added by TensorFlow</Chip>}
          {row.random && <Chip tone="violet">random</Chip>}
          {row.python && <Chip tone="warn">Python</Chip>}
          <button type="button" class="close" aria-label="Close details" onClick={() => onInspect(null)}>
            ×
          </button>
        </>
      }
    >
      <p class="places">
        {row.source_path !== null && (
          <code title={row.source_path}>
            {row.source_path}
            {row.source_line === null ? "" : `:${row.source_line}`}
          </code>
        )}
        {row.function !== null && (
          <span>
            calls <b>{row.function}</b>
            {row.function_source !== null && ` (${row.function_source})`}
          </span>
        )}
        {row.settings !== "" && <span>{row.settings}</span>}
      </p>
      <CpuAndWait row={row} />
      <dl class="fields">
        {fields.map(([name, text, why]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Value text={text} why={why ?? unmeasured} />
            </dd>
          </div>
        ))}
      </dl>
      {row.facts.length > 0 && (
        <ul class="truth" aria-label="What holds of its output">
          {row.facts.map((fact) => (
            <li key={`${fact.kind} ${fact.operator} ${fact.reason}`}>{factText(fact, row, analysis)}</li>
          ))}
        </ul>
      )}
      <p class="truth">
        {row.runs_as === null
          ? row.dropped
            ? "TensorFlow dropped it: it does not run."
            : "It runs where nothing can be counted."
          : fused !== null
            ? `Runs as part of ${row.runs_as}, together with ${operatorName(fused)}, on whose row their joint cost stands.`
            : `Runs as ${row.runs_as}.`}{" "}
        {row.cache_refused !== null ? `Its output cannot be cached: ${row.cache_refused}.` : row.injected ? "" : "Its output may be cached."}
      </p>
    </Section>
  );
}

/** "decode (train.py:57) draws random numbers (RandomUniform), at train.py:21; others in each epoch." */
function factText(fact: EdgeFact, row: OperatorRow, analysis: Analysis): string {
  const culprit = fact.operator === row.id ? null : findOperator(analysis, fact.operator);
  const who = culprit === null ? "It" : operatorName(culprit);
  const where = fact.source === null ? "" : `, at ${fact.source}`;
  const epochs = fact.kind !== "random" || fact.reason.includes("epoch") ? "" : fact.changes_each_epoch ? "; another outcome in each epoch" : "; the same in each epoch";
  return `${who} ${fact.reason}${where}${epochs}.`;
}

function plusMinus(row: OperatorRow): string {
  if (row.cpu_s === null && row.wait_s === null) return NONE;
  const time = duration((row.cpu_s ?? 0) + (row.wait_s ?? 0));
  return row.uncertainty === null ? time : `${time} ±${percent(row.uncertainty)}`;
}

/** An element's time, divided: core time and waiting for something else than a core. */
function CpuAndWait({ row }: { row: OperatorRow }): JSX.Element | null {
  const cpu = row.cpu_s ?? 0;
  const wait = row.wait_s ?? 0;
  if (cpu + wait <= 0) return null;
  const words = `${duration(cpu)} on a core + ${duration(wait)} waiting, per element`;
  return (
    <div class="meter small">
      <div class="meter-bar" role="img" aria-label={words}>
        <i class="compute" style={{ flexGrow: cpu / (cpu + wait) }} />
        <i class="outside" style={{ flexGrow: wait / (cpu + wait) }} />
      </div>
      <p>{words}</p>
    </div>
  );
}
