import type { JSX } from "preact";
import { scaleBounds } from "../lib/bounds";
import { bytes, bytesPerSecond, cores, duration, percent, rate, stepsPerSecond } from "../lib/format";
import type { Analysis, HistoryPoint } from "../lib/schema";
import type { Sample } from "../lib/series";
import { Section } from "./bits";
import { Chart } from "./Chart";

export function Footer({ analysis, onInspect }: { analysis: Analysis; onInspect: (id: string) => void }): JSX.Element {
  const { verdict, history } = analysis;
  const samples = (pick: (point: HistoryPoint) => number | null): Sample[] => history.map((point) => ({ time: point.time_s, value: pick(point) }));
  const rates = samples((point) => point.rate);
  const waits = samples((point) => point.wait_s);
  const predicted = analysis.plan?.changes.length ? analysis.plan.predicted_rate : null;
  return (
    <div class="footer">
      <Bounds analysis={analysis} onInspect={onInspect} />
      <Section id="throughput" title={<Title name="Throughput" value={stepsPerSecond(verdict?.observed_rate)} />}>
        {rates.some(({ value }) => value !== null) ? (
          <Chart
            label="Throughput"
            samples={rates}
            format={stepsPerSecond}
            tone="compute"
            height={92}
            reference={predicted == null ? undefined : { value: predicted, label: `plan: ${rate(predicted)}` }}
          />
        ) : (
          <p class="nothing">No steps were counted yet.</p>
        )}
      </Section>
      <Section id="waiting" title={<Title name="Waiting per step" value={waitingNow(analysis)} />}>
        {waits.some(({ value }) => value !== null) ? (
          <Chart label="Waiting per step" samples={waits} format={duration} tone="waiting" height={92} />
        ) : (
          <p class="nothing">Whether the consumer waits cannot be seen here{verdict?.caveat ? "; the verdict says why." : "."}</p>
        )}
      </Section>
      <Section id="host" title={<Title name="Host" value={analysis.host} />}>
        <table class="host">
          <tbody>
            <HostRow
              name="CPU"
              tone="good"
              samples={samples((point) => point.process_cores)}
              format={cores}
              text={`${lastOf(history, (point) => point.process_cores, cores)}${analysis.limits ? ` of ${Math.round(analysis.limits.cores * 10) / 10}` : ""}`}
            />
            <HostRow name="Memory" tone="violet" samples={samples((point) => point.rss_bytes)} format={bytes} text={lastOf(history, (point) => point.rss_bytes, bytes)} />
            <HostRow
              name="Read"
              tone="compute"
              samples={samples((point) => point.read_bytes_per_s)}
              format={bytesPerSecond}
              text={lastOf(history, (point) => point.read_bytes_per_s, bytesPerSecond)}
            />
          </tbody>
        </table>
      </Section>
    </div>
  );
}

function Title({ name, value }: { name: string; value: string }): JSX.Element {
  return (
    <>
      {name}
      <span class="title-value">{value}</span>
    </>
  );
}

function waitingNow({ verdict }: Analysis): string {
  if (verdict === null) return "";
  const often = verdict.waits_over_1ms === null ? "" : ` · ${percent(verdict.waits_over_1ms)} wait > 1 ms`;
  return `${duration(verdict.wait_s)}${often}`;
}

function lastOf(history: readonly HistoryPoint[], pick: (point: HistoryPoint) => number | null, format: (value: number | null) => string): string {
  const known = history.map(pick).filter((value) => value !== null);
  return format(known.at(-1) ?? null);
}

function HostRow(props: {
  name: string;
  tone: "good" | "violet" | "compute";
  samples: readonly Sample[];
  format: (value: number | null) => string;
  text: string;
}): JSX.Element {
  return (
    <tr>
      <th scope="row">{props.name}</th>
      <td class="wide">
        <Chart label={props.name} samples={props.samples} format={props.format} tone={props.tone} height={26} spark />
      </td>
      <td>{props.text}</td>
    </tr>
  );
}

/** Each bound as a bar on the observed rate's scale; those far away are cut short, with their number. */
function Bounds({ analysis, onInspect }: { analysis: Analysis; onInspect: (id: string) => void }): JSX.Element {
  const { bars, observed } = scaleBounds(analysis.bounds, analysis.verdict?.observed_rate ?? null);
  return (
    <Section id="bounds" title={<Title name="Bounds" value={`observed ${stepsPerSecond(analysis.verdict?.observed_rate)}`} />}>
      {bars.length === 0 ? (
        <p class="nothing">No bound is known yet.</p>
      ) : (
        <ol class="bounds">
          {bars.map(({ bound, share, clipped }) => {
            const first = bound.operators[0];
            return (
              <li key={bound.label} class={[bound.binds && "binds", bound.constraint === "consumer" && "consumer"].filter(Boolean).join(" ")}>
                {first === undefined ? (
                  <span class="name" title={bound.label}>
                    {bound.label}
                  </span>
                ) : (
                  <button type="button" class="name link" title={bound.label} onClick={() => onInspect(first)}>
                    {bound.label}
                  </button>
                )}
                <span class="track">
                  <i class={clipped ? "clipped" : ""} style={{ width: `${100 * share}%` }} />
                  {observed !== null && <b class="observed" style={{ left: `${100 * observed}%` }} title="observed rate" />}
                </span>
                <span class="rate">
                  {rate(bound.rate)}
                  {bound.binds && <em> binds</em>}
                </span>
              </li>
            );
          })}
        </ol>
      )}
    </Section>
  );
}
