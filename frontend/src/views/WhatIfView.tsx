import type { JSX } from "preact";
import { useId, useState } from "preact/hooks";
import { AS_MEASURED, type WhatIf } from "../lib/api";
import { exact } from "../lib/format";
import type { Analysis } from "../lib/schema";
import { Chip, Section } from "./bits";

const GIB = 2 ** 30;

interface Props {
  readonly analysis: Analysis;
  readonly whatIf: WhatIf;
  readonly error: string | null;
  readonly onAsk: (whatIf: WhatIf) => void;
}

/** Other limits than those measured: the whole page then answers for them. */
export function WhatIfView({ analysis, whatIf, error, onAsk }: Props): JSX.Element {
  const asked = Object.values(whatIf).some((value) => value !== null);
  const { limits, verdict } = analysis;
  /** Counts returns to what was measured: fields made anew forget what they refused. */
  const [returns, setReturns] = useState(0);
  return (
    <Section
      id="what-if"
      title={
        <>
          What if
          {asked && error === null && <Chip tone="violet">shown for these limits</Chip>}
          <span class="grow" />
          {asked && (
            <button
              type="button"
              class="link"
              onClick={() => {
                setReturns(returns + 1);
                onAsk(AS_MEASURED);
              }}
            >
              As measured
            </button>
          )}
        </>
      }
    >
      <div class="what-if" key={returns}>
        <Limit label="Cores" unit="" value={whatIf.cores} measured={limits?.cores ?? null} onChange={(cores) => onAsk({ ...whatIf, cores })} />
        <Limit
          label="Memory limit"
          unit="GiB"
          value={whatIf.memoryBytes === null ? null : whatIf.memoryBytes / GIB}
          measured={limits === null ? null : limits.memory_bytes / GIB}
          onChange={(gib) => onAsk({ ...whatIf, memoryBytes: gib === null ? null : Math.round(gib * GIB) })}
        />
        <Limit
          label="Consumer takes"
          unit="steps/s"
          value={whatIf.consumerRate}
          measured={verdict?.consumer_rate ?? null}
          onChange={(consumerRate) => onAsk({ ...whatIf, consumerRate })}
        />
      </div>
      {error !== null && (
        <p class="field-error" role="alert">
          {error}
        </p>
      )}
    </Section>
  );
}

function Limit(props: { label: string; unit: string; value: number | null; measured: number | null; onChange: (value: number | null) => void }): JSX.Element {
  /** What was typed and is no limit; it stays in the field, and is not asked about. */
  const [refused, setRefused] = useState<string | null>(null);
  const messageId = useId();
  return (
    <>
      <label>
        <span>{props.label}</span>
        <input
          type="number"
          min="0"
          step="any"
          inputMode="decimal"
          value={refused ?? (props.value === null ? "" : String(props.value))}
          placeholder={props.measured === null ? "unknown" : exact(props.measured)}
          aria-invalid={refused !== null}
          aria-describedby={refused === null ? undefined : messageId}
          onChange={(event) => {
            const { value: text, validity } = event.currentTarget;
            // What is no number at all reads as an empty text.
            if (validity.badInput || (text !== "" && !(Number(text) > 0))) {
              setRefused(text);
              return;
            }
            setRefused(null);
            props.onChange(text === "" ? null : Number(text));
          }}
        />
        <span class="unit">{props.unit}</span>
      </label>
      {refused !== null && (
        <p class="field-error" id={messageId} role="alert">
          Give a number above 0; the page has not changed.
        </p>
      )}
    </>
  );
}
