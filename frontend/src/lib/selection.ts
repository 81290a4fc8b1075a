/**
 * What is selected, and its place in the address bar.
 *
 * The tab lives in a frame; the address a person copies is the parent's. TensorBoard keeps the active tab and
 * its plugins' data in the fragment, `#plumber&p.plumber.run=fit`: a plugin's keys begin with `p.<plugin>.`.
 */
import type { HostEntry, RunList } from "./schema";

export interface Selection {
  readonly run: string | null;
  readonly host: string | null;
  readonly pipeline: string | null;
  /** Operator.id whose details are shown. */
  readonly operator: string | null;
}

export const NOTHING_SELECTED: Selection = { run: null, host: null, pipeline: null, operator: null };

const PREFIX = "p.plumber.";
const KEYS = ["run", "host", "pipeline", "operator"] as const;

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // A stray "%" typed by hand.
  }
}

/** The selection that a fragment names; keys of others are ignored. */
export function parseHash(hash: string): Selection {
  const found: Record<(typeof KEYS)[number], string | null> = { ...NOTHING_SELECTED };
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    const name = at < 0 ? "" : decode(part.slice(0, at));
    const key = KEYS.find((candidate) => name === PREFIX + candidate);
    if (key !== undefined) found[key] = decode(part.slice(at + 1)) || null;
  }
  return found;
}

/** `hash` with this selection written into it; everything that is not Plumber's stays as it was. */
export function writeHash(hash: string, selection: Selection): string {
  const kept = hash
    .replace(/^#/, "")
    .split("&")
    .filter((part) => part !== "" && !decode(part.split("=")[0]!).startsWith(PREFIX));
  const own = KEYS.flatMap((key) => {
    const value = selection[key];
    return value === null ? [] : [`${PREFIX}${key}=${encodeURIComponent(value)}`];
  });
  return [...kept, ...own].join("&");
}

/** The slowest host that has a rate, else the first: the one whose pipeline the others wait for. */
function slowest(hosts: readonly HostEntry[]): HostEntry | undefined {
  const rated = hosts.filter((host) => host.rate !== null);
  return rated.length ? rated.reduce((a, b) => (b.rate! < a.rate! ? b : a)) : hosts[0];
}

function mainPipeline(host: HostEntry): string | null {
  const training = host.pipelines.filter((pipeline) => pipeline.role === "train");
  const among = training.length ? training : host.pipelines;
  const longest = among.reduce<HostEntry["pipelines"][number] | undefined>(
    (best, next) => (best === undefined || next.steps > best.steps ? next : best),
    undefined,
  );
  return longest?.id ?? null;
}

/**
 * The wish made possible: what of it exists is kept, the rest filled in with what the server preselects for
 * the list, or by its rule (slowest host, training pipeline with most steps) for another run or host.
 */
export function resolveSelection(wish: Selection, list: RunList): Selection {
  const run = list.runs.find((entry) => entry.run === wish.run) ?? list.runs.find((entry) => entry.run === list.run) ?? list.runs[0];
  if (run === undefined) return NOTHING_SELECTED;
  const preselected = run.run === list.run;
  const host =
    run.hosts.find((entry) => entry.host === wish.host) ??
    (preselected ? run.hosts.find((entry) => entry.host === list.host) : undefined) ??
    slowest(run.hosts);
  if (host === undefined) return { ...NOTHING_SELECTED, run: run.run };
  const preselectedHost = preselected && host.host === list.host;
  const pipeline =
    host.pipelines.find((entry) => entry.id === wish.pipeline) ??
    (preselectedHost ? host.pipelines.find((entry) => entry.id === list.pipeline) : undefined);
  return { run: run.run, host: host.host, pipeline: pipeline?.id ?? mainPipeline(host), operator: wish.operator };
}
