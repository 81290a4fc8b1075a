import type { JSX } from "preact";
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
  return (
    <Section
      id="what-if"
      title={
        <>
          What if
          {asked && error === null && <Chip tone="violet">shown for these limits</Chip>}
          <span class="grow" />
          {asked && (
            <button type="button" class="link" onClick={() => onAsk(AS_MEASURED)}>
              As measured
            </button>
          )}
        </>
      }
    >
      <div class="what-if">
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
  return (
    <label>
      <span>{props.label}</span>
      <input
        type="number"
        min="0"
        step="any"
        inputMode="decimal"
        value={props.value === null ? "" : String(props.value)}
        placeholder={props.measured === null ? "unknown" : exact(props.measured)}
        onChange={(event) => {
          const text = event.currentTarget.value;
          props.onChange(text !== "" && Number(text) > 0 ? Number(text) : null);
        }}
      />
      <span class="unit">{props.unit}</span>
    </label>
  );
}
