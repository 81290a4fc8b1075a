import type { JSX } from "preact";
import { duration, factor, stepsPerSecond } from "../lib/format";
import type { Analysis } from "../lib/schema";
import { headline, speedup, stepParts, tone } from "../lib/verdict";

const MARKS = { bad: "▲", good: "✓", neutral: "?" } as const;

export function VerdictView({ analysis, onInspect }: { analysis: Analysis; onInspect: (id: string) => void }): JSX.Element | null {
  const { verdict, bottleneck, plan } = analysis;
  if (verdict === null) return null;
  const binding = bottleneck?.operator ?? null;
  const faster = speedup(analysis);
  return (
    <section class={`verdict ${tone(verdict)}`} aria-label="Verdict" data-input-bound={String(verdict.input_bound)}>
      <Meter analysis={analysis} />
      <div class="verdict-words">
        <h1>
          <span class="mark" aria-hidden="true">
            {MARKS[tone(verdict)]}
          </span>
          {headline(analysis)}
        </h1>
        {bottleneck !== null && bottleneck.sentence !== "" && bottleneck.sentence !== headline(analysis) && (
          <p class="bottleneck">
            {bottleneck.sentence}{" "}
            {binding !== null && (
              <button type="button" class="link" onClick={() => onInspect(binding)}>
                Show it
              </button>
            )}
          </p>
        )}
        {plan !== null && plan.sentence !== "" && <p class={`plan-line ${plan.changes.length > 0 ? "changes" : ""}`}>{plan.sentence}</p>}
        {verdict.caveat !== "" && <p class="caveat">{verdict.caveat}</p>}
      </div>
      <dl class="headline">
        {verdict.observed_rate !== null && (
          <div>
            <dt>now</dt>
            <dd>{stepsPerSecond(verdict.observed_rate)}</dd>
          </div>
        )}
        {plan !== null && plan.changes.length > 0 && plan.predicted_rate !== null && (
          <div class="predicted">
            <dt>predicted</dt>
            <dd>
              {stepsPerSecond(plan.predicted_rate)}
              {faster !== null && <small> {factor(faster)}</small>}
            </dd>
          </div>
        )}
      </dl>
    </section>
  );
}

/** One step as a bar: what the consumer computes, and what it waits. */
function Meter({ analysis }: { analysis: Analysis }): JSX.Element {
  const parts = analysis.verdict === null ? null : stepParts(analysis.verdict);
  if (parts === null) {
    return (
      <div class="meter">
        <div class="meter-bar unknown" role="img" aria-label="How a step's time divides is unknown" />
        <p>The consumer's own time is unknown.</p>
      </div>
    );
  }
  const words = `step ${duration(parts.total)} = ${duration(parts.compute)} compute + ${duration(parts.waiting)} waiting`;
  return (
    <div class="meter">
      <div class="meter-bar" role="img" aria-label={words}>
        <i class="compute" style={{ flexGrow: parts.compute / parts.total }} />
        <i class="waiting" style={{ flexGrow: parts.waiting / parts.total }} />
      </div>
      <p>
        step <b>{duration(parts.total)}</b> = <b class="compute">{duration(parts.compute)}</b> compute + <b class="waiting">{duration(parts.waiting)}</b> waiting
      </p>
    </div>
  );
}
