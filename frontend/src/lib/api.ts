/** The plugin's HTTP interface. URLs are relative to the frame's base, so that any path prefix works. */
import type { Analysis, ErrorReply, RunList } from "./schema";
import type { Selection } from "./selection";

/** Limits to ask "what if" about; null means as measured. */
export interface WhatIf {
  readonly cores: number | null;
  readonly memoryBytes: number | null;
  readonly consumerRate: number | null;
}

export const AS_MEASURED: WhatIf = { cores: null, memoryBytes: null, consumerRate: null };

/** The server answered with an {@link ErrorReply}, or (kind "offline") not at all. */
export class ApiError extends Error {
  constructor(readonly reply: ErrorReply) {
    super(reply.error);
  }
}

export interface Api {
  runs(): Promise<RunList>;
  analysis(selection: Selection, whatIf: WhatIf): Promise<Analysis>;
}

/** Address of an analysis, relative to the plugin's routes. */
export function analysisUrl(selection: Selection, whatIf: WhatIf): string {
  const query = new URLSearchParams();
  if (selection.run !== null) query.set("run", selection.run);
  if (selection.host !== null) query.set("host", selection.host);
  if (selection.pipeline !== null) query.set("pipeline", selection.pipeline);
  if (whatIf.cores !== null) query.set("cores", String(whatIf.cores));
  if (whatIf.memoryBytes !== null) query.set("memory", String(whatIf.memoryBytes));
  if (whatIf.consumerRate !== null) query.set("consumer_rate", String(whatIf.consumerRate));
  return `analysis?${query}`;
}

/**
 * Fetches with validators: a poll of something unchanged costs a 304 without a body, answered here with the
 * very object of the time before, so that the view has nothing to do either.
 */
export class HttpApi implements Api {
  private readonly known = new Map<string, { etag: string; body: unknown }>();

  constructor(private readonly fetcher: typeof fetch = (input, init) => fetch(input, init)) {}

  runs(): Promise<RunList> {
    return this.get<RunList>("runs");
  }

  analysis(selection: Selection, whatIf: WhatIf): Promise<Analysis> {
    return this.get<Analysis>(analysisUrl(selection, whatIf));
  }

  private async get<Body>(url: string): Promise<Body> {
    const known = this.known.get(url);
    let response: Response;
    try {
      response = await this.fetcher(url, {
        cache: "no-store",
        headers: known === undefined ? {} : { "If-None-Match": known.etag },
      });
    } catch {
      throw new ApiError({ kind: "offline", error: "TensorBoard does not answer. Is it still running?" });
    }
    if (response.status === 304 && known !== undefined) return known.body as Body;
    const body: unknown = await response.json().catch(() => null);
    // "collecting" comes with status 200: a browser would log anything else as an error at each poll.
    if (!response.ok || body === null || isReply(body)) throw new ApiError(errorReply(body, response.status));
    const etag = response.headers.get("ETag");
    if (etag !== null) {
      // Only the newest few: every what-if has a URL of its own.
      if (this.known.size >= 8) this.known.delete(this.known.keys().next().value!);
      this.known.delete(url);
      this.known.set(url, { etag, body });
    }
    return body as Body;
  }
}

function isReply(body: unknown): body is ErrorReply {
  return typeof body === "object" && body !== null && "error" in body && "kind" in body;
}

function errorReply(body: unknown, status: number): ErrorReply {
  if (isReply(body)) return body;
  return { kind: "internal", error: `The server answered with status ${status}. Its own log says why.` };
}
