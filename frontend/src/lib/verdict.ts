/** What the verdict's colours and meter show. */
import type { Analysis, Verdict } from "./schema";

export type Tone = "bad" | "good" | "neutral";

export function tone(verdict: Verdict): Tone {
  if (verdict.input_bound === null) return "neutral";
  return verdict.input_bound ? "bad" : "good";
}

/** The verdict's own words: its sentence may repeat the bottleneck's, which the tab shows on a line of its own. */
export function headline({ verdict, bottleneck }: Analysis): string {
  const sentence = verdict?.sentence ?? "";
  const repeated = bottleneck?.sentence ?? "";
  // Inside the verdict the repeated sentence may begin in lower case.
  const start = repeated.length > 1 ? sentence.indexOf(repeated.slice(1)) - 1 : -1;
  if (start < 1) return sentence;
  return `${sentence.slice(0, start).replace(/(, because|[:;.])?\s*$/, "")}.`;
}

/** One step, seconds: its whole length, what the consumer computes, and what it waits; null if unknown. */
export interface StepParts {
  readonly total: number;
  readonly compute: number;
  readonly waiting: number;
}

export function stepParts(verdict: Verdict): StepParts | null {
  const { step_s: total, wait_s: waiting } = verdict;
  if (total === null || waiting === null || total <= 0) return null;
  return { total, waiting, compute: Math.max(0, total - waiting) };
}

/** The range in which the model counts as reproducing the present. */
const GOOD_SELF_CHECK = { low: 0.8, high: 1.25 } as const;

export interface SelfCheck {
  readonly tone: "good" | "warn" | "neutral";
  readonly text: string;
  readonly detail: string;
}

/** The chip that says how far the model can be trusted here. */
export function selfCheck(verdict: Verdict, format: (value: number) => string): SelfCheck {
  const { self_check: ratio, tentative, caveat } = verdict;
  const detail =
    "Smallest bound of the pipeline over the observed rate, on measurements that fitted nothing. Good is 0.80× to 1.25×.";
  if (tentative) {
    return { tone: "warn", text: ratio === null ? "tentative" : `tentative: model at ${format(ratio)}`, detail: caveat || detail };
  }
  if (ratio === null) {
    return {
      tone: "neutral",
      text: "model not checked",
      detail: "The consumer binds, so no bound of the pipeline can be compared with the observed rate.",
    };
  }
  const good = ratio >= GOOD_SELF_CHECK.low && ratio <= GOOD_SELF_CHECK.high;
  return { tone: good ? "good" : "warn", text: `model reproduces the observed rate: ${format(ratio)}`, detail };
}

/** Predicted over observed rate; null if either is unknown. */
export function speedup(analysis: Analysis): number | null {
  const predicted = analysis.plan?.predicted_rate ?? null;
  const observed = analysis.verdict?.observed_rate ?? null;
  return predicted === null || observed === null || observed <= 0 ? null : predicted / observed;
}
