/**
 * The tab without TensorBoard: `npm run dev`, then `?fixture=zip&theme=dark`.
 * Fixtures: chain, zip, interleave, noCounters, long12, long30, empty, damaged, collecting, offline, loading.
 */
import * as fixtures from "../src/fixtures/analyses";
import { runs } from "../src/fixtures/runs";
import { render } from "../src/index";
import type { Analysis, ErrorReply } from "../src/lib/schema";

const query = new URLSearchParams(location.search);
const name = query.get("fixture") ?? "chain";

function chosen(): Analysis {
  const length = /^long(\d+)$/.exec(name);
  if (length) return fixtures.long(Number(length[1]));
  const analysis = (fixtures as Record<string, unknown>)[name];
  return (analysis as Analysis | undefined) ?? fixtures.chain;
}

function now(analysis: Analysis): Analysis {
  const shift = Date.now() / 1000 - 2 - analysis.updated_s;
  return {
    ...analysis,
    updated_s: analysis.updated_s + shift,
    history: analysis.history.map((point) => ({ ...point, time_s: point.time_s + shift })),
  };
}

const problems: Record<string, ErrorReply> = {
  empty: { kind: "empty", error: "No Plumber records in this log directory." },
  damaged: { kind: "damaged", error: "The event files in logs/run1/plumber/worker-a-0 are damaged beyond use: no whole graph record is left. Record again." },
  collecting: { kind: "empty", error: "Run resnet/fit on worker-a-0 has 1 sample; an analysis needs 2." },
};

function json(body: unknown, status = 200): Response {
  return new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
}

window.fetch = async (input) => {
  const url = String(input);
  const problem = problems[name];
  if (name === "loading") return new Promise<Response>(() => undefined);
  if (name === "offline") throw new TypeError("Failed to fetch");
  if (url.startsWith("runs")) {
    return json(problem && name !== "collecting" ? { runs: [], run: null, host: null, pipeline: null, problem } : runs);
  }
  return problem ? json(problem, 404) : json(now(chosen()));
};

render();
if (query.get("theme") === "dark") document.documentElement.dataset.theme = "dark";
