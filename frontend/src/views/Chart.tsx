import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { ago, clock } from "../lib/format";
import { line, type Sample } from "../lib/series";
import { useSize } from "./hooks";

interface Props {
  /** What a screen reader is told. */
  readonly label: string;
  readonly samples: readonly Sample[];
  readonly format: (value: number | null) => string;
  readonly tone: "compute" | "waiting" | "good" | "violet";
  readonly height: number;
  /** A level to compare with. */
  readonly reference?: { readonly value: number; readonly label: string } | undefined;
  /** Without axes, the highest value its scale: one line of a table that gives the number. */
  readonly spark?: boolean;
}

/** A small line chart over time, from zero. Point at it to read values; outliers are cut at the top and marked. */
export function Chart({ label, samples, format, tone, height, reference, spark = false }: Props): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const width = useSize(box)?.width ?? 300;
  const [pointed, setPointed] = useState<number | null>(null);
  const drawn = line(samples, width, height, reference?.value ?? 0, !spark);
  const clipped = drawn.dots.filter((dot) => dot.clipped);
  const newest = format(drawn.dots.at(-1)?.sample.value ?? null);
  const highest = clipped.length === 0 ? "" : `highest ${format(drawn.highest)}`;
  const near =
    pointed === null || drawn.dots.length === 0
      ? null
      : drawn.dots.reduce((a, b) => (Math.abs(b.x - pointed) < Math.abs(a.x - pointed) ? b : a));
  const first = samples[0];
  const last = samples.at(-1);
  const referenceY = reference === undefined ? null : height * (1 - reference.value / drawn.top);
  return (
    <div class={`chart ${tone} ${spark ? "spark" : ""}`} ref={box}>
      <svg
        width={width}
        height={height}
        role="img"
        aria-label={spark ? `${label} over time` : [`${label}: ${newest}`, highest].filter(Boolean).join(", ")}
        onPointerMove={(event) => setPointed(event.offsetX)}
        onPointerLeave={() => setPointed(null)}
      >
        <rect width={width} height={height} class="back" />
        {!spark && <path class="grid" d={`M0,.5H${width}M0,${height / 2}H${width}M0,${height - 0.5}H${width}`} />}
        <path class="area" d={drawn.area} />
        <path class="line" d={drawn.path} />
        {reference !== undefined && referenceY !== null && (
          <g class="reference">
            <path d={`M0,${referenceY}H${width}`} />
            <text x={width - 3} y={referenceY < 14 ? referenceY + 12 : referenceY - 4} text-anchor="end">
              {reference.label}
            </text>
          </g>
        )}
        {!spark && (
          <text class="tick" x={clipped.length === 0 ? 3 : 14} y="12">
            {[format(drawn.top), highest].filter(Boolean).join(" · ")}
          </text>
        )}
        {clipped.map(({ x, sample }) => {
          const inside = Math.min(width - 5, Math.max(5, x));
          return (
            <path key={sample.time} class="clipped" d={`M${inside},0l5,7h-10Z`}>
              <title>{`${format(sample.value)} at ${clock(sample.time)}, above the scale`}</title>
            </path>
          );
        })}
        {near !== null && (
          <g class="pointer">
            <path d={`M${near.x},0V${height}`} />
            <circle cx={near.x} cy={near.y} r="3" />
          </g>
        )}
      </svg>
      {!spark && first !== undefined && last !== undefined && (
        <p class="times">
          {near !== null ? (
            <>
              <b>{format(near.sample.value)}</b> at {clock(near.sample.time)}
            </>
          ) : (
            <>
              <span>{clock(first.time)}</span>
              <span title={ago(Math.max(0, Date.now() / 1000 - last.time))}>{clock(last.time)}</span>
            </>
          )}
        </p>
      )}
    </div>
  );
}
