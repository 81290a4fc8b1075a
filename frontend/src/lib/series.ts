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
  /** Position of each sample that has a value; those above the scale lie on the upper edge, clipped. */
  readonly dots: readonly { readonly x: number; readonly y: number; readonly clipped: boolean; readonly sample: Sample }[];
  /** Value at the upper edge; the lower edge is 0. */
  readonly top: number;
  /** The highest value, on the scale or above it; null where there is none. */
  readonly highest: number | null;
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

/** Fewer values than this have no outliers: each may be the rule. */
const FEWEST_FOR_OUTLIERS = 5;
/** Below this multiple of the 98th percentile the highest value stays on the scale: the rest remains readable. */
const OUTLIER = 2;

/** What a scale must show of `values`: the highest, or about the 98th percentile if the highest lies far above it. */
export function scaleTo(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const highest = sorted.at(-1) ?? 0;
  if (sorted.length < FEWEST_FOR_OUTLIERS) return highest;
  // Rounded down, so that one outlier is left out of a short history too.
  const usual = sorted[Math.floor(0.98 * (sorted.length - 1))]!;
  return usual > 0 && highest > OUTLIER * usual ? usual : highest;
}

/** The middle value, the mean of the two middle ones, or null of nothing. */
export function median(values: readonly number[]): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length === 0 ? null : (sorted[Math.ceil(middle) - 1]! + sorted[Math.floor(middle)]!) / 2;
}

/**
 * The line of `samples` over a box, 0 at its bottom, time from first to last sample across it.
 * With `clip` outliers do not set the scale: the line is cut at the upper edge there.
 */
export function line(samples: readonly Sample[], width: number, height: number, atLeast = 0, clip = false): Line {
  const values = samples.flatMap(({ value }) => (value === null ? [] : [value]));
  const highest = values.length === 0 ? null : Math.max(...values);
  const top = niceCeiling(Math.max(atLeast, clip ? scaleTo(values) : (highest ?? 0)) * HEADROOM);
  const start = samples[0]?.time ?? 0;
  const span = Math.max(1e-9, (samples.at(-1)?.time ?? 0) - start);
  const place = (sample: Sample) => ({
    x: ((sample.time - start) / span) * width,
    y: height * (1 - Math.min(sample.value!, top) / top),
    clipped: sample.value! > top,
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
    highest,
  };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
