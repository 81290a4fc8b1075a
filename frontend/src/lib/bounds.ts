/** Bounds beside the observed rate, on one scale. */
import type { Bound } from "./schema";

export interface BoundBar {
  readonly bound: Bound;
  /** 0 to 1 of the scale. */
  readonly share: number;
  /** The bound lies beyond the end of the scale. */
  readonly clipped: boolean;
}

export interface BoundScale {
  readonly bars: readonly BoundBar[];
  /** Where the observed rate lies, 0 to 1; null if unknown. */
  readonly observed: number | null;
}

/** A bound this many times the observed rate is simply far away: showing it to scale would flatten the near ones. */
const FAR = 5;

/** Finite bounds, smallest first, on a scale from 0 that ends at the largest or at {@link FAR} times the smallest. */
export function scaleBounds(bounds: readonly Bound[], observed: number | null): BoundScale {
  const finite = bounds.filter((bound) => bound.rate !== null).sort((a, b) => a.rate! - b.rate!);
  const rates = finite.map((bound) => bound.rate!);
  const largest = Math.max(observed ?? 0, ...rates);
  const near = Math.max(observed ?? 0, rates[0] ?? 0);
  const end = Math.min(largest, near * FAR) || 1;
  return {
    bars: finite.map((bound) => ({ bound, share: Math.min(1, bound.rate! / end), clipped: bound.rate! > end * 1.0001 })),
    observed: observed === null ? null : Math.min(1, observed / end),
  };
}
