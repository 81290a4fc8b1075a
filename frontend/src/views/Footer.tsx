import type { JSX } from "preact";
import { scaleBounds } from "../lib/bounds";
import { bytes, bytesPerSecond, cores, duration, percent, rate, stepsPerSecond } from "../lib/format";
import type { Analysis, HistoryPoint } from "../lib/schema";
import { median, type Sample } from "../lib/series";
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
          <caption>{hostCaption(analysis)}</caption>
          <tbody>
            <HostRow
              name="CPU"
              tone="good"
              samples={samples((point) => point.process_cores)}
              format={cores}
              text={`${cores(hostValue(analysis, (point) => point.process_cores))}${analysis.limits ? ` of ${Math.round(analysis.limits.cores * 10) / 10}` : ""}`}
            />
            <HostRow name="Memory" tone="violet" samples={samples((point) => point.rss_bytes)} format={bytes} text={bytes(hostValue(analysis, (point) => point.rss_bytes))} />
            <HostRow
              name="Read"
              tone="compute"
              samples={samples((point) => point.read_bytes_per_s)}
              format={bytesPerSecond}
              text={bytesPerSecond(hostValue(analysis, (point) => point.read_bytes_per_s))}
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

/** The points of an ended recording in which the pipeline ran; its last ones only show how it stopped. */
function whileRunning({ live, history }: Analysis): readonly HistoryPoint[] {
  return live ? [] : history.filter((point) => point.rate !== null);
}

/** A number of the host: the newest while live, afterwards the median while the pipeline ran. */
function hostValue(analysis: Analysis, pick: (point: HistoryPoint) => number | null): number | null {
  const known = (points: readonly HistoryPoint[]) => points.map(pick).filter((value) => value !== null);
  const running = whileRunning(analysis);
  return running.length > 0 ? median(known(running)) : (known(analysis.history).at(-1) ?? null);
}

function hostCaption(analysis: Analysis): string {
  if (whileRunning(analysis).length > 0) return "medians while the pipeline ran";
  return analysis.live ? "now" : "last sample";
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
