import type { JSX } from "preact";
import { gain } from "../lib/format";
import type { Analysis, Finding, Severity } from "../lib/schema";
import { findOperator, operatorPlace } from "../lib/words";
import { Code, Section } from "./bits";

const ORDER: Record<Severity, number> = { high: 0, medium: 1, low: 2 };
const WORDS: Record<Severity, string> = { high: "high", medium: "medium", low: "remark" };

/** A fix that is code gets a copy button; one that is a sentence does not. */
function looksLikeCode(fix: string): boolean {
  return /[.(=]\S*[)=\w]/.test(fix) && !/\.\s*$/.test(fix);
}

export function Findings({ analysis, onInspect }: { analysis: Analysis; onInspect: (id: string) => void }): JSX.Element {
  const rank = (finding: Finding) => (finding.severity === null ? 3 : ORDER[finding.severity]);
  const sorted = [...analysis.findings].sort((a, b) => rank(a) - rank(b) || (b.gain ?? 0) - (a.gain ?? 0));
  return (
    <Section id="findings" title="Findings">
      {sorted.length === 0 && <p class="nothing">Nothing to remark.</p>}
      <ul class="findings">
        {sorted.map((finding, index) => {
          const row = findOperator(analysis, finding.operator);
          const severity = finding.severity ?? "low";
          return (
            <li key={`${finding.code}${index}`} class={severity} data-code={finding.code}>
              <p class="finding-head">
                <span class="severity">{WORDS[severity]}</span>
                <code>{finding.code}</code>
                <span class="grow" />
                {finding.gain !== null && <b class="gain">{gain(finding.gain)}</b>}
              </p>
              <p>{finding.message}</p>
              {finding.fix !== "" && (looksLikeCode(finding.fix) ? <Code text={finding.fix} what={`the fix of ${finding.code}`} /> : <p class="fix">{finding.fix}</p>)}
              {row !== null && (
                <button type="button" class="link" onClick={() => onInspect(row.id)}>
                  {operatorPlace(row)}
                </button>
              )}
            </li>
          );
        })}
      </ul>
    </Section>
  );
}
