import { describe, expect, it, vi } from "vitest";
import { analysisUrl, ApiError, AS_MEASURED, HttpApi } from "./api";
import { NOTHING_SELECTED } from "./selection";

function answering(...responses: (Response | Error)[]) {
  return vi.fn<typeof fetch>(async () => {
    const next = responses.shift()!;
    if (next instanceof Error) throw next;
    return next;
  });
}

const json = (body: unknown, status = 200, headers = {}) => new Response(JSON.stringify(body), { status, headers });

describe("analysisUrl", () => {
  it("is relative and leaves out what is not chosen", () => {
    expect(analysisUrl(NOTHING_SELECTED, AS_MEASURED)).toBe("analysis?");
    expect(analysisUrl({ ...NOTHING_SELECTED, run: "a&b/c" }, { cores: 4, memoryBytes: 1024, consumerRate: 2.5 })).toBe(
      "analysis?run=a%26b%2Fc&cores=4&memory=1024&consumer_rate=2.5",
    );
  });
});

describe("HttpApi", () => {
  it("asks with the last ETag and answers a 304 with the very object of before", async () => {
    const fetcher = answering(json({ runs: [] }, 200, { ETag: '"1"' }), new Response(null, { status: 304 }));
    const api = new HttpApi(fetcher);
    const first = await api.runs();
    expect(await api.runs()).toBe(first);
    expect(fetcher.mock.calls.map(([, init]) => init?.headers)).toEqual([{}, { "If-None-Match": '"1"' }]);
  });

  it.each([
    ["the server's own reply", json({ error: "No such run.", kind: "not-found" }, 404), { error: "No such run.", kind: "not-found" }],
    ["a reply with status 200", json({ error: "No element yet.", kind: "collecting" }, 200, { ETag: '"1"' }), { kind: "collecting" }],
    ["a body that is no reply", new Response("<html>", { status: 502 }), { kind: "internal" }],
    ["a success that is no JSON", new Response("<html>"), { kind: "internal" }],
    ["no answer", new TypeError("Failed to fetch"), { kind: "offline" }],
  ])("turns %s into an error", async (_, response, reply) => {
    const failure = await new HttpApi(answering(response)).runs().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ApiError);
    expect((failure as ApiError).reply).toMatchObject(reply);
  });
});
