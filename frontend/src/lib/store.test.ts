import { describe, expect, it } from "vitest";
import { chain, interleave } from "../fixtures/analyses";
import { runs } from "../fixtures/runs";
import { ApiError, AS_MEASURED, type Api, type WhatIf } from "./api";
import type { Analysis, RunList } from "./schema";
import { NOTHING_SELECTED, type Selection } from "./selection";
import { Store } from "./store";

/** Answers from lists; what is asked is kept. */
class TestApi implements Api {
  list: RunList = runs;
  answer: (selection: Selection, whatIf: WhatIf) => Analysis | Promise<Analysis> = () => chain;
  asked: { selection: Selection; whatIf: WhatIf }[] = [];
  runs = async () => this.list;
  analysis = async (selection: Selection, whatIf: WhatIf) => {
    this.asked.push({ selection, whatIf });
    return this.answer(selection, whatIf);
  };
}

const failing = (kind: string, error = "why") => () => {
  throw new ApiError({ kind, error });
};

describe("Store", () => {
  it("loads what the server preselects", async () => {
    const store = new Store(new TestApi(), NOTHING_SELECTED);
    await store.refresh();
    expect(store.state).toMatchObject({ analysis: chain, error: null, selection: { run: "resnet/fit", host: "worker-b-1" } });
  });

  it("keeps the selection over refreshes, though a newer run appears", async () => {
    const api = new TestApi();
    const store = new Store(api, NOTHING_SELECTED);
    await store.refresh();
    store.inspect("op1");
    api.list = { ...runs, runs: [{ run: "newer", hosts: [], updated_s: 2e9 }, ...runs.runs], run: "newer", host: null, pipeline: null };
    await store.refresh();
    expect(store.state.selection).toEqual({ run: "resnet/fit", host: "worker-b-1", pipeline: "5f0c9a", operator: "op1" });
  });

  it("choosing a run chooses anew what lies below it and shows nothing old", async () => {
    const api = new TestApi();
    const store = new Store(api, NOTHING_SELECTED);
    await store.refresh();
    store.inspect("op1");
    api.answer = () => interleave;
    const done = store.select({ run: "baseline" });
    expect(store.state).toMatchObject({ analysis: null, busy: true, selection: { run: "baseline", host: "worker-a-0", pipeline: "c0ffee", operator: null } });
    await done;
    expect(store.state).toMatchObject({ analysis: interleave, busy: false });
  });

  it("remembers apart what was chosen, so that a link pins no more than that", async () => {
    const store = new Store(new TestApi(), NOTHING_SELECTED);
    await store.refresh();
    expect(store.state.chosen).toEqual(NOTHING_SELECTED);
    await store.select({ host: "worker-a-0" });
    store.inspect("op1");
    expect(store.state.chosen).toEqual({ run: "resnet/fit", host: "worker-a-0", pipeline: null, operator: "op1" });
  });

  it("drops an answer that a newer request has overtaken", async () => {
    const api = new TestApi();
    const store = new Store(api, NOTHING_SELECTED);
    await store.refresh();
    let late: (analysis: Analysis) => void = () => undefined;
    api.answer = (selection) => (selection.run === "baseline" ? new Promise((resolve) => (late = resolve)) : chain);
    const first = store.select({ run: "baseline" });
    const second = store.select({ run: "resnet/fit" });
    await second;
    late(interleave);
    await first;
    expect(store.state.analysis).toBe(chain);
  });

  it("says why there is nothing", async () => {
    const api = new TestApi();
    api.list = { runs: [], run: null, host: null, pipeline: null, problem: { kind: "empty", error: "No records." } };
    const store = new Store(api, NOTHING_SELECTED);
    await store.refresh();
    expect(store.state).toMatchObject({ analysis: null, error: { error: "No records." } });
    expect(api.asked).toEqual([]);
  });

  it("keeps the last analysis while the server is away, not when it says there is none", async () => {
    const api = new TestApi();
    const store = new Store(api, NOTHING_SELECTED);
    await store.refresh();
    api.answer = failing("offline");
    await store.refresh();
    expect(store.state).toMatchObject({ analysis: chain, error: { kind: "offline" } });
    api.answer = failing("not-found");
    await store.refresh();
    expect(store.state).toMatchObject({ analysis: null, error: { kind: "not-found" } });
    api.answer = () => chain;
    await store.refresh();
    expect(store.state).toMatchObject({ analysis: chain, error: null });
  });

  it("asks under other limits, and answers without them where they make no sense", async () => {
    const api = new TestApi();
    const store = new Store(api, NOTHING_SELECTED);
    await store.ask({ ...AS_MEASURED, cores: 64 });
    expect(api.asked.at(-1)?.whatIf.cores).toBe(64);
    api.answer = (_, { cores }) => (cores === null ? chain : failing("bad-request", "cores must be positive")());
    await store.ask({ ...AS_MEASURED, cores: 1e-9 });
    expect(store.state).toMatchObject({ analysis: chain, error: null, whatIfError: "cores must be positive" });
  });

  it("tells its listeners until they leave", async () => {
    const store = new Store(new TestApi(), NOTHING_SELECTED);
    let told = 0;
    const leave = store.subscribe(() => told++);
    store.show("running");
    leave();
    store.show("written");
    expect([told, store.state.mode]).toEqual([1, "written"]);
  });
});
