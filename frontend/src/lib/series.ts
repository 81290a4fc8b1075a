/** A history as a line: scales, ticks and the path, apart from any drawing. */

export interface Sample {
  /** Unix time, seconds. */
  readonly time: number;
  readonly value: number | null;
}

export interface Line {
  /** SVG path of the line, broken where a value is missing. */
  readonly path: string;
  /** The same closed down to the base. */
  readonly area: string;
  /** Position of each sample that has a value. */
  readonly dots: readonly { readonly x: number; readonly y: number; readonly sample: Sample }[];
  /** Value at the upper edge; the lower edge is 0. */
  readonly top: number;
}

/** A round number at or a little above `value`: 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten. */
export function niceCeiling(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
  return power * (steps.find((step) => step * power >= value * 0.9999) ?? 10);
}

/** Space above the highest value, for the scale's number. */
const HEADROOM = 1.2;

/** The line of `samples` over a box, 0 at its bottom, time from first to last sample across it. */
export function line(samples: readonly Sample[], width: number, height: number, atLeast = 0): Line {
  const values = samples.flatMap(({ value }) => (value === null ? [] : [value]));
  const top = niceCeiling(Math.max(atLeast, ...values) * HEADROOM);
  const start = samples[0]?.time ?? 0;
  const span = Math.max(1e-9, (samples.at(-1)?.time ?? 0) - start);
  const place = (sample: Sample) => ({
    x: ((sample.time - start) / span) * width,
    y: height * (1 - sample.value! / top),
    sample,
  });
  const pieces: ReturnType<typeof place>[][] = [];
  let piece: ReturnType<typeof place>[] = [];
  for (const sample of samples) {
    if (sample.value === null) {
      piece = [];
      continue;
    }
    if (piece.length === 0) pieces.push(piece);
    piece.push(place(sample));
  }
  const draw = (points: typeof piece) => points.map(({ x, y }, i) => `${i ? "L" : "M"}${round(x)},${round(y)}`).join("");
  return {
    path: pieces.map(draw).join(""),
    area: pieces.map((points) => `${draw(points)}L${round(points.at(-1)!.x)},${height}L${round(points[0]!.x)},${height}Z`).join(""),
    dots: pieces.flat(),
    top,
  };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
