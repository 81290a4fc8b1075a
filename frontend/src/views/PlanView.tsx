import type { JSX } from "preact";
import { bytes, factor, rate, stepsPerSecond } from "../lib/format";
import type { Analysis, Change } from "../lib/schema";
import { speedup } from "../lib/verdict";
import { constraintName, findOperator, operatorName, setting, settingName } from "../lib/words";
import { Code, CopyButton, Section } from "./bits";

export function PlanView({ analysis, onInspect }: { analysis: Analysis; onInspect: (id: string) => void }): JSX.Element | null {
  const { plan } = analysis;
  if (plan === null) return null;
  return (
    <Section id="plan" title="Plan">
      {plan.changes.length === 0 ? (
        <p class="nothing">{plan.sentence || "No change helps."}</p>
      ) : (
        <>
          <Prediction analysis={analysis} />
          <table class="plan">
            <thead>
              <tr>
                <th scope="col">Setting</th>
                <th scope="col">Now</th>
                <th scope="col">Suggested</th>
              </tr>
            </thead>
            {plan.changes.map((change, index) => (
              <ChangeRows key={index} change={change} analysis={analysis} onInspect={onInspect} />
            ))}
          </table>
        </>
      )}
      {plan.assumptions.length > 0 && (
        <ul class="assumptions" aria-label="Assumptions">
          {plan.assumptions.map((assumption) => (
            <li key={assumption}>{assumption}</li>
          ))}
        </ul>
      )}
      {plan.patch !== null && (
        <div class="patch">
          <pre>
            {plan.patch.split("\n").map((line, index) => (
              <span key={index} class={line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : ""}>
                {line}
                {"\n"}
              </span>
            ))}
          </pre>
          <CopyButton text={plan.patch} what="the patch" />
        </div>
      )}
      <Lines name="By hand" lines={plan.instructions} />
      <Lines name="What more would bring" lines={[...analysis.prices.map((price) => price.sentence), analysis.sizing?.sentence ?? ""]} />
    </Section>
  );
}

/** A titled list of sentences; nothing where there are none. */
function Lines({ name, lines }: { name: string; lines: readonly string[] }): JSX.Element | null {
  const said = lines.filter((line) => line !== "");
  if (said.length === 0) return null;
  return (
    <div class="lines">
      <h3>{name}</h3>
      <ul aria-label={name}>
        {said.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </div>
  );
}

function ChangeRows({ change, analysis, onInspect }: { change: Change; analysis: Analysis; onInspect: (id: string) => void }): JSX.Element {
  const row = findOperator(analysis, change.operator);
  const what = settingName(change);
  return (
    <tbody>
      <tr>
        <th scope="row">
          {row === null ? (
            <b>{what}</b>
          ) : (
            <>
              <button type="button" class="link" onClick={() => onInspect(row.id)}>
                {change.kind === "cache" || change.kind === "prefetch" ? `after ${operatorName(row)}` : operatorName(row)}
              </button>
              <small>
                {what}
                {row.source !== null && ` · ${row.source}`}
              </small>
            </>
          )}
        </th>
        <td>{setting(change.from)}</td>
        <td class="to">{setting(change.to)}</td>
      </tr>
      <tr class="why">
        <td colSpan={3}>
          {change.why !== "" && <p>{change.why}</p>}
          {change.code !== "" && <Code text={change.code} what={`the change of ${what}`} />}
        </td>
      </tr>
    </tbody>
  );
}

/** Observed and predicted rate on one scale, with the prediction's interval. */
function Prediction({ analysis }: { analysis: Analysis }): JSX.Element | null {
  const { plan, verdict } = analysis;
  if (plan === null || plan.predicted_rate === null) return null;
  const observed = verdict?.observed_rate ?? null;
  const low = plan.low ?? plan.predicted_rate;
  const high = plan.high ?? plan.predicted_rate;
  const end = 1.06 * Math.max(high, plan.predicted_rate, observed ?? 0);
  const at = (value: number) => `${(100 * value) / end}%`;
  const faster = speedup(analysis);
  return (
    <div class="prediction">
      <p>
        <b>{stepsPerSecond(plan.predicted_rate)}</b>
        {faster !== null && <strong class="faster">{factor(faster)}</strong>}
        {plan.low !== null && plan.high !== null && (
          <span>
            90% interval {rate(plan.low)} – {rate(plan.high)}
          </span>
        )}
      </p>
      <div class="scale" aria-hidden="true">
        {observed !== null && <i class="observed" style={{ width: at(observed) }} />}
        <i class="interval" style={{ left: at(low), width: at(high - low) }} />
        <i class="point" style={{ left: at(plan.predicted_rate) }} />
      </div>
      <p class="then">
        {plan.then_constraint !== null && <>Then the limit is: {constraintName(plan.then_constraint)}. </>}
        {plan.data_rate !== null && <>The data side alone: {stepsPerSecond(plan.data_rate)}. </>}
        {plan.first_epoch_rate !== null && <>First epoch: {stepsPerSecond(plan.first_epoch_rate)}. </>}
        {plan.memory_bytes > 0 && <>Adds {bytes(plan.memory_bytes)} of memory.</>}
      </p>
    </div>
  );
}
