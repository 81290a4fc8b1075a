import type { JSX } from "preact";
import { cores, duration, exact, NONE, percent, rate } from "../lib/format";
import type { ConsumerNode, GraphNode, InsertionNode, OperatorNode } from "../lib/graph";
import type { Analysis, OperatorRow } from "../lib/schema";
import { stepParts } from "../lib/verdict";
import { bindsMark, changeMark, constraintName, findOperator, operatorName, operatorPlace, setting, settingName } from "../lib/words";
import { Value } from "./bits";
import { Icon, iconOf } from "./icons";

interface Props {
  readonly analysis: Analysis;
  readonly selected: string | null;
  readonly onInspect: (id: string | null) => void;
}

export function Card({ node, ...props }: Props & { node: GraphNode }): JSX.Element {
  switch (node.kind) {
    case "operator":
      return <OperatorCard node={node} {...props} />;
    case "insertion":
      return <InsertionCard node={node} {...props} />;
    case "consumer":
      return <ConsumerCard node={node} {...props} />;
  }
}

function CapacityBar({ share, why }: { share: number | null; why: string }): JSX.Element {
  return (
    <span class="capacity">
      <span class="track">
        <i style={{ width: `${100 * Math.min(1, share ?? 0)}%` }} />
      </span>
      <span class="share">
        <Value text={percent(share)} why={why} />
      </span>
    </span>
  );
}

function OperatorCard({ node, analysis, selected, onInspect }: Props & { node: OperatorNode }): JSX.Element {
  const { row, rows } = node;
  const binds = rows.some((member) => member.binds);
  const isSelected = rows.some((member) => member.id === selected);
  const constraint = analysis.bottleneck?.constraint ?? null;
  const carrier = row.fused_with === null ? null : findOperator(analysis, row.fused_with);
  const { dropped } = row;
  const name = rows.length > 1 ? rows.map(operatorName).reverse().join(" + ") : row.label !== row.type ? row.label : row.settings;
  const type = rows.length > 1 ? (row.runs_as ?? row.type) : row.type;
  return (
    <button
      type="button"
      class={["card", binds && "binds", row.injected && "injected", dropped && "dropped", isSelected && "selected"].filter(Boolean).join(" ")}
      data-operator={row.id}
      data-binds={binds}
      aria-pressed={isSelected}
      aria-label={spoken(row, binds, bindsMark(constraint))}
      onClick={() => onInspect(isSelected ? null : row.id)}
    >
      <span class="card-head">
        <Icon name={iconOf(type)} />
        <b>{type}</b>
        {binds && <span class="tag hot">{bindsMark(constraint)}</span>}
        {row.injected && <span class="tag">by TensorFlow</span>}
        {dropped && <span class="tag">not run</span>}
      </span>
      <span class="label" title={name}>
        {name}
      </span>
      <span class="place">
        <span>{row.source ?? (row.injected ? "" : "line unknown")}</span>
        {row.parallelism !== null && (
          <span title={row.autotuned ? "Parallel calls, chosen by AUTOTUNE" : "Parallel calls"}>
            ×{exact(row.parallelism)}
            {row.autotuned && " auto"}
          </span>
        )}
      </span>
      {carrier !== null ? (
        <span class="joint">cost counted in {operatorName(carrier)}</span>
      ) : (
        <>
          <CapacityBar share={row.utilisation} why="Nothing was counted for it" />
          <Figures row={row} />
        </>
      )}
      <Suggestions node={node} />
    </button>
  );
}

function Figures({ row }: { row: OperatorRow }): JSX.Element {
  return (
    <span class="figures">
      <span title="The rate of the whole pipeline, if only this operator limited it">
        max {row.max_rate === null ? <Value text={NONE} why="No limit of its own is known" /> : `${rate(row.max_rate)}/s`}
      </span>
      {row.cores_used !== null && row.cores_used >= 0.005 && <span title="Cores in use at the observed rate">{cores(row.cores_used)}</span>}
    </span>
  );
}

/** What the plan sets anew here, on the card's lower edge. */
function Suggestions({ node }: { node: OperatorNode }): JSX.Element | null {
  if (node.changes.length === 0) return null;
  return (
    <span class="suggestions">
      {node.changes.map((change) => (
        <span key={change.kind} class="tag good" title={`Suggested: ${settingName(change)} ${changeMark(change)}. ${change.why}`}>
          {settingName(change)} {changeMark(change)}
        </span>
      ))}
    </span>
  );
}

function spoken(row: OperatorRow, binds: boolean, mark: string): string {
  return [
    operatorPlace(row),
    row.utilisation !== null && `${percent(row.utilisation)} of its capacity in use`,
    row.max_rate !== null && `at most ${rate(row.max_rate)} steps per second`,
    row.injected && "added by TensorFlow",
    binds && mark,
  ]
    .filter(Boolean)
    .join(", ");
}

function InsertionCard({ node, analysis, selected, onInspect }: Props & { node: InsertionNode }): JSX.Element {
  const { change } = node;
  const behind = findOperator(analysis, change.operator);
  const name = change.kind === "cache" ? "Cache" : "Prefetch";
  const detail = change.kind === "cache" && change.to === "memory" ? "in memory" : setting(change.to);
  return (
    <button
      type="button"
      class="card insertion"
      data-suggestion={change.kind}
      aria-label={`Suggested: ${name} ${detail}${behind ? ` after ${operatorPlace(behind)}` : ""}. ${change.why}`}
      title={change.why}
      onClick={() => onInspect(behind === null || behind.id === selected ? null : behind.id)}
    >
      <span class="card-head">
        <Icon name="plus" />
        <b>{name}</b>
        <span class="tag good">suggested</span>
      </span>
      <span class="label">{detail}</span>
      <span class="joint clamp">{change.why}</span>
    </button>
  );
}

function ConsumerCard({ analysis }: Props & { node: ConsumerNode }): JSX.Element {
  const { verdict, bottleneck, pipeline_label: label } = analysis;
  const binds = bottleneck?.constraint === "consumer";
  const parts = verdict === null ? null : stepParts(verdict);
  const busy = verdict?.wait_fraction === null || verdict === null ? null : 1 - verdict.wait_fraction;
  return (
    <div class={`card consumer ${binds ? "binds" : ""}`} data-consumer data-binds={binds}>
      <span class="card-head">
        <Icon name="step" />
        <b>{label === "train" ? "Training step" : "Consumer"}</b>
        {binds && <span class="tag">{bindsMark("consumer")}</span>}
      </span>
      <span class="label">{label}</span>
      <span class="place">{parts === null ? "its own time is unknown" : `${duration(parts.compute)} of its own per step`}</span>
      <CapacityBar share={busy} why={`The ${constraintName("consumer")}'s own time cannot be seen`} />
      <span class="figures">
        <span>
          now <Value text={verdict?.observed_rate == null ? NONE : `${rate(verdict.observed_rate)}/s`} why="No steps were measured" />
        </span>
        <span>
          max <Value text={verdict?.consumer_rate == null ? NONE : `${rate(verdict.consumer_rate)}/s`} why="The consumer's own time cannot be seen" />
        </span>
      </span>
    </div>
  );
}
