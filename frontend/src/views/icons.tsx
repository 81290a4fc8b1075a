/** One small sign for each family of operators. */
import type { JSX } from "preact";

const PATHS = {
  source: "M2.5 4c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2zm0 0v8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2V4M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2",
  call: "M11.5 2.5c-2-.8-3.200.2-3.5 2L6.800 11.5c-.3 1.800-1.5 2.800-3.5 2M5 6.5h5.5",
  gather: "M2.5 3h11M2.5 6.300h11M2.5 9.600h11M2.5 13h11",
  shuffle: "M2 4.5h2.5l6 7H14M2 11.5h2.5l2-2.300M8.700 6.700l1.800-2.200H14M12 2.5l2 2-2 2M12 9.5l2 2-2 2",
  buffer: "M2.5 4.5h11v7h-11zM5.5 4.5v7M8.5 4.5v7",
  merge: "M2 3.5h2.5l4 4.5H14M2 12.5h2.5l4-4.5M12 6l2 2-2 2",
  select: "M2.5 3h11L9.5 8.200V13l-3-1.5V8.200z",
  step: "M4.5 3l7.5 5-7.5 5z",
  plus: "M8 3v10M3 8h10",
} as const;

export type IconName = keyof typeof PATHS;

/** The family of an operator type, by its name. */
export function iconOf(type: string): IconName {
  if (/Zip|Interleave|FlatMap|Concatenate|Sample|Choose/i.test(type)) return "merge";
  if (/Batch|Window|Group|Rebatch/i.test(type)) return "gather";
  if (/Filter|Take|Skip|Shard|Unique/i.test(type)) return "select";
  if (/Map|Scan/i.test(type)) return "call";
  if (/Shuffle|Repeat/i.test(type)) return "shuffle";
  if (/Cache|Prefetch|Snapshot|Buffer/i.test(type)) return "buffer";
  return "source";
}

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
