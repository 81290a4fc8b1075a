import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/preact";
import { afterEach, describe, expect, it } from "vitest";
import { analysis, row } from "../fixtures/build";
import { chain, interleave, noCounters, zip } from "../fixtures/analyses";
import { runs } from "../fixtures/runs";
import { ApiError, type Api } from "../lib/api";
import type { Analysis, ErrorReply, RunList } from "../lib/schema";
import { NOTHING_SELECTED } from "../lib/selection";
import { Store } from "../lib/store";
import { App } from "./App";

afterEach(cleanup);

/** The tab over a server that answers with these. */
async function tab(answer: Analysis | ErrorReply | null, list: RunList = runs): Promise<Store> {
  const api: Api = {
    runs: async () => list,
    analysis: async () => {
      if (answer === null) return new Promise<never>(() => undefined);
      if ("kind" in answer) throw new ApiError(answer);
      return answer;
    },
  };
  const store = new Store(api, NOTHING_SELECTED);
  render(<App store={store} />);
  if (answer === null) void store.refresh();
  else await store.refresh();
  await screen.findByRole("main");
  await new Promise((resolve) => setTimeout(resolve));
  return store;
}

const card = (id: string) => document.querySelector<HTMLElement>(`[data-operator="${id}"]`)!;
const section = (id: string) => document.querySelector<HTMLElement>(`[data-section="${id}"]`);
const state = () => document.querySelector<HTMLElement>("[data-state]")?.dataset.state;

describe("a diagnosed pipeline", () => {
  it("leads with the verdict in its colour, and divides the step", async () => {
    await tab(chain);
    const verdict = screen.getByRole("region", { name: "Verdict" });
    expect(verdict.className).toContain("bad");
    expect(within(verdict).getByRole("heading").textContent).toContain("64% of every step waits");
    expect(within(verdict).getByRole("img", { name: "step 41.2 ms = 14.9 ms compute + 26.3 ms waiting" })).toBeTruthy();
    expect(verdict.textContent).toContain("67.1 steps/s");
  });

  it("marks the binding operator in words, and no other", async () => {
    await tab(chain);
    expect([...document.querySelectorAll("[data-binds=true]")].map((element) => element.getAttribute("data-operator"))).toEqual(["op1"]);
    const text = card("op1").textContent;
    for (const part of ["Map", "binds", "decode_and_augment", "train.py:57", "98%", "max 24.8/s", "0.98 cores", "×1", "1 → 12"]) expect(text).toContain(part);
    expect(card("op1").getAttribute("aria-label")).toBe("Map decode_and_augment (train.py:57), 98% of its capacity in use, at most 24.8 steps per second, binds");
  });

  it("names the shared resource that binds", async () => {
    await tab({ ...chain, bottleneck: { ...chain.bottleneck!, constraint: "threadpool" } });
    expect(card("op1").textContent).toContain("binds: thread pool");
  });

  it("opens an operator's details, and closes them", async () => {
    const store = await tab(chain);
    expect(section("details")).toBeNull();
    fireEvent.click(card("op1"));
    await screen.findByRole("button", { name: "Close details" });
    const details = section("details")!;
    for (const part of ["/home/ada/train/train.py:57", "train.py:21", "Runs as MapAndBatch", "cannot be cached", "1.26 ms ±2%", "588 KiB", "It draws random numbers (RandomUniform), at train.py:21; another outcome in each epoch.", "Shuffle draws a new order each epoch, at train.py:55."]) expect(details.textContent).toContain(part);
    expect(store.state.selection.operator).toBe("op1");
    fireEvent.keyDown(card("op1"), { key: "Escape" });
    expect(store.state.selection.operator).toBeNull();
  });

  it("shows the fused truth one click away", async () => {
    await tab(chain);
    expect(card("op0").textContent).toContain("cost counted in Map decode_and_augment");
    fireEvent.click(screen.getByRole("button", { name: "runs as one MapAndBatch" }));
    await screen.findByText("MapAndBatch");
    expect(card("op0")).toBeNull();
    expect(card("injected0").textContent).toContain("by TensorFlow");
  });

  it("lists the plan: setting, now, suggested, why and code", async () => {
    await tab(chain);
    const plan = section("plan")!;
    const cells = within(plan).getAllByRole("row").map((line) => line.textContent);
    expect(cells[1]).toMatch(/Map decode_and_augmentparallel calls · train\.py:571.*12/);
    expect(plan.textContent).toContain("90% interval 60.2 – 67.1");
    expect(plan.textContent).toContain("Adds 3.31 GiB of memory");
    expect(within(plan).getAllByRole("button", { name: /^Copy/ })).toHaveLength(3);
    expect(document.querySelector("[data-suggestion=cache]")?.textContent).toContain("in memory");
  });

  it("tells what is to be done by hand, and what more would bring", async () => {
    const price = { resource: "cores", amount: 1, rate: 80, gain: 0.08, sentence: "One more core: +8 %." } as const;
    const sizing = { wanted_rate: 90, reachable: true, cores: 3, memory_bytes: null, sentence: "For 90 steps/s it takes 3 cores." };
    await tab({ ...chain, plan: { ...chain.plan!, instructions: ["At t.py:5: .cache() (by hand: its line is not known)."] }, prices: [price], sizing });
    const items = (name: string) => [...screen.getByRole("list", { name }).children].map((item) => item.textContent);
    expect(items("By hand")).toEqual(["At t.py:5: .cache() (by hand: its line is not known)."]);
    expect(items("What more would bring")).toEqual(["One more core: +8 %.", "For 90 steps/s it takes 3 cores."]);
  });

  it("marks what TensorFlow dropped, and not what merely cannot be counted", async () => {
    const rows = [row("op0", "Batch", null, { dropped: true, runs_as: null }), row("op1", "Map", "op0", { runs_as: null })];
    await tab(analysis({ operators: rows }));
    expect(card("op0").textContent).toContain("not run");
    expect(card("op1").textContent).not.toContain("not run");
  });

  it("orders findings by severity and gives the gain", async () => {
    await tab({ ...chain, findings: [...chain.findings].reverse() });
    const found = [...section("findings")!.querySelectorAll<HTMLElement>("[data-code]")];
    expect(found.map((entry) => entry.dataset.code)).toEqual(["sequential-map", "missing-cache", "ordered-stragglers"]);
    expect(found[0]!.textContent).toContain("2.8×");
  });

  it("says that nothing helps where nothing does", async () => {
    await tab(interleave);
    expect(section("plan")!.textContent).toContain("No change of settings would make training faster.");
    expect(document.querySelector("[data-consumer]")!.textContent).toContain("binds");
    expect(screen.getByRole("region", { name: "Verdict" }).className).toContain("good");
  });

  it("stays neutral where the consumer cannot be seen, and says why", async () => {
    await tab(zip);
    const verdict = screen.getByRole("region", { name: "Verdict" });
    expect(verdict.className).toContain("neutral");
    expect(verdict.textContent).toContain("Give consumer_rate to know");
    expect(section("waiting")!.textContent).toContain("cannot be seen");
  });

  it("does not let one outlier flatten a chart: it is cut, marked, and its value given", async () => {
    await tab({ ...chain, history: chain.history.map((point, i) => (i === 0 ? { ...point, wait_s: 0.5 } : point)) });
    const waiting = section("waiting")!;
    expect(waiting.querySelector(".tick")!.textContent).toMatch(/^[34]\d\.0 ms · highest 500 ms$/);
    expect(within(waiting).getByRole("img").getAttribute("aria-label")).toContain("highest 500 ms");
    expect([...waiting.querySelectorAll(".clipped title")].map(({ textContent }) => textContent)).toEqual([expect.stringMatching(/^500 ms at .*, above the scale$/)]);
    expect(section("throughput")!.querySelector(".clipped")).toBeNull();
  });

  it("gives the host's newest numbers while live, and how it was while the pipeline ran afterwards", async () => {
    const stopped = { rate: null, wait_s: null, process_cores: 0, read_bytes_per_s: 0 };
    const ended = chain.history.map((point, i) => (i < 50 ? { ...point, rss_bytes: 2 ** 30 } : { ...point, ...stopped }));
    await tab({ ...chain, live: true, history: ended });
    for (const part of ["0.00 cores of 16", "now"]) expect(section("host")!.textContent).toContain(part);
    cleanup();
    await tab({ ...chain, live: false, history: ended });
    expect(section("host")!.textContent).toMatch(/medians while the pipeline ran.*1\.3\d cores of 16.*1\.00 GiB.*3\d\.\d MB\/s/);
    cleanup();
    await tab({ ...chain, live: false, history: ended.map((point) => ({ ...point, rate: null })) });
    for (const part of ["0.00 cores of 16", "last sample"]) expect(section("host")!.textContent).toContain(part);
  });

  it("draws a pipeline without counters, every unknown a dash that explains itself", async () => {
    await tab(noCounters);
    expect(card("op1").textContent).toContain("–");
    expect(within(card("op1")).getByTitle("Nothing was counted for it")).toBeTruthy();
    expect(screen.getByRole("list", { name: "Notes" }).textContent).toContain("damaged record");
    expect(document.body.textContent).not.toMatch(/NaN|null|undefined/);
  });

  it("never takes a name for markup", async () => {
    const evil = `<img src=x onerror="window.hacked=1">`;
    await tab(analysis({ operators: [row("op0", evil, null, { label: evil, source: evil, settings: evil, binds: true })], notes: [evil], host: evil }));
    fireEvent.click(card("op0"));
    await screen.findByRole("button", { name: "Close details" });
    expect(document.querySelector("img")).toBeNull();
    expect(card("op0").textContent).toContain(evil);
  });
});

describe("pickers", () => {
  it("have labels and say which host is slowest", async () => {
    await tab(chain);
    expect([...screen.getByLabelText<HTMLSelectElement>("Run").options].map(({ text }) => text)).toEqual(["resnet/fit", "baseline"]);
    const host = screen.getByLabelText<HTMLSelectElement>("Host");
    expect([host.value, host.selectedOptions[0]!.text]).toEqual(["worker-b-1", "worker-b-1 (slowest of 2)"]);
    expect(screen.getByLabelText<HTMLSelectElement>("Pipeline").selectedOptions[0]!.text).toBe("train (1,190 steps)");
  });

  it("choose", async () => {
    const store = await tab(chain);
    fireEvent.change(screen.getByLabelText("Run"), { target: { value: "baseline" } });
    expect(store.state.selection).toMatchObject({ run: "baseline", host: "worker-a-0", pipeline: "c0ffee" });
  });
});

describe("the self-check's chip", () => {
  const verdict = chain.verdict!;
  it.each<[string, Partial<typeof verdict>, string]>([
    ["good", {}, "model reproduces the observed rate: 0.97×"],
    ["tentative", { tentative: true, self_check: 1.62, caveat: "two windows only" }, "tentative: model at 1.62×"],
    ["unknown", { self_check: null }, "model not checked"],
  ])("%s", async (_, more, text) => {
    await tab({ ...chain, verdict: { ...verdict, ...more } });
    const chip = screen.getByText(text);
    expect(chip.title).toContain(more.caveat ?? "");
  });
});

describe("what if", () => {
  it("asks for other limits and takes them back", async () => {
    const store = await tab(chain);
    fireEvent.change(screen.getByLabelText(/Memory limit/), { target: { value: "8" } });
    expect(store.state.whatIf).toEqual({ cores: null, memoryBytes: 8 * 2 ** 30, consumerRate: null });
    fireEvent.click(await screen.findByRole("button", { name: "As measured" }));
    expect(store.state.whatIf.memoryBytes).toBeNull();
  });

  it.each(["0", "-4"])("says beside the field that %s is no limit, and does not ask", async (typed) => {
    const store = await tab(chain);
    const cores = () => screen.getByLabelText<HTMLInputElement>(/Cores/);
    fireEvent.change(cores(), { target: { value: "8" } });
    await screen.findByText("shown for these limits");
    fireEvent.change(cores(), { target: { value: typed } });
    expect((await within(section("what-if")!).findByRole("alert")).textContent).toContain("number above 0");
    expect([cores().value, cores().getAttribute("aria-invalid"), store.state.whatIf.cores]).toEqual([typed, "true", 8]);
    fireEvent.change(cores(), { target: { value: "16" } });
    await waitFor(() => expect(within(section("what-if")!).queryByRole("alert")).toBeNull());
    expect(store.state.whatIf.cores).toBe(16);
  });

  it("forgets what it refused when all is as measured again", async () => {
    const store = await tab(chain);
    fireEvent.change(screen.getByLabelText(/Memory limit/), { target: { value: "8" } });
    fireEvent.change(screen.getByLabelText(/Cores/), { target: { value: "-1" } });
    await within(section("what-if")!).findByRole("alert");
    fireEvent.click(screen.getByRole("button", { name: "As measured" }));
    await waitFor(() => expect(within(section("what-if")!).queryByRole("alert")).toBeNull());
    expect(screen.getByLabelText<HTMLInputElement>(/Cores/).value).toBe("");
    expect(store.state.whatIf).toEqual({ cores: null, memoryBytes: null, consumerRate: null });
  });
});

describe("without an analysis", () => {
  const none = (problem: ErrorReply | null): RunList => ({ runs: [], run: null, host: null, pipeline: null, problem });

  it("is loading at first", async () => {
    await tab(null);
    expect(state()).toBe("loading");
  });

  it("says what to do where nothing was recorded", async () => {
    await tab(chain, none({ kind: "empty", error: "Nothing was recorded in logs." }));
    expect(state()).toBe("empty");
    for (const part of ["Nothing was recorded in logs.", "pip install tensorboard-plugin-plumber", 'PlumberCallback("logs/run1")', "plumber.trace", "plumber demo"]) {
      expect(document.body.textContent).toContain(part);
    }
  });

  it("says what is damaged", async () => {
    await tab(chain, none({ kind: "damaged", error: "events.out is damaged beyond use." }));
    expect(state()).toBe("damaged");
    expect(screen.getByRole("alert").textContent).toBe("events.out is damaged beyond use.");
  });

  it("waits for a second sample, with the pickers at hand", async () => {
    await tab({ kind: "collecting", error: "1 sample so far." });
    expect(state()).toBe("collecting");
    for (const part of ["needs two samples", "1 sample so far.", "looks again"]) expect(document.body.textContent).toContain(part);
    expect(screen.queryByRole("alert")).toBeNull();
    expect(screen.getByLabelText("Run")).toBeTruthy();
  });

  it.each(["not-found", "bad-request", "internal", "damaged"])("shows the server's sentence (%s)", async (kind) => {
    await tab({ kind, error: "What is wrong, and what to do." });
    expect(state()).toBe(kind);
    expect(screen.getByRole("alert").textContent).toContain("What is wrong, and what to do.");
  });
});
