import { describe, expect, it } from "vitest";
import { chain, interleave, noCounters, zip } from "../fixtures/analyses";
import { headline, selfCheck, speedup, stepParts, tone } from "./verdict";

const show = (value: number) => `${value}x`;

describe("headline", () => {
  const bottleneck = { ...chain.bottleneck!, sentence: "Map f caps it at 5.14 steps/s." };
  const said = (sentence: string) => headline({ ...chain, verdict: { ...chain.verdict!, sentence }, bottleneck });
  it("leaves to the bottleneck its own line", () => expect(said("Input-bound: 87 % waits. Map f caps it at 5.14 steps/s.")).toBe("Input-bound: 87 % waits."));
  it("does so where one sentence carries both", () => {
    expect(said("Input-bound: 87 % waits, because Map f caps it at 5.14 steps/s.")).toBe("Input-bound: 87 % waits.");
    expect(said("It gives 5 steps/s: map f caps it at 5.14 steps/s.")).toBe("It gives 5 steps/s.");
  });
  it("keeps a sentence that says something else, or nothing else", () => {
    expect(said("Input-bound.")).toBe("Input-bound.");
    expect(said("Map f caps it at 5.14 steps/s.")).toBe("Map f caps it at 5.14 steps/s.");
  });
});

it("takes its tone from input_bound", () => expect([chain, interleave, zip].map(({ verdict }) => tone(verdict!))).toEqual(["bad", "good", "neutral"]));

it("divides a step, or says that it cannot", () => {
  expect(stepParts(chain.verdict!)).toEqual({ total: 0.0412, waiting: 0.0263, compute: expect.closeTo(0.0149) });
  expect(stepParts(zip.verdict!)).toBeNull();
});

describe("selfCheck", () => {
  const check = (more: object) => selfCheck({ ...chain.verdict!, ...more }, show);
  it.each([
    ["good", { self_check: 0.8 }, "good"],
    ["low", { self_check: 0.79 }, "warn"],
    ["high", { self_check: 1.26 }, "warn"],
    ["tentative", { tentative: true }, "warn"],
    ["unknown", { self_check: null }, "neutral"],
  ])("%s", (_, more, expected) => expect(check(more).tone).toBe(expected));
  it("gives the reason of a tentative verdict", () => {
    expect(check({ tentative: true, caveat: "two windows only" })).toMatchObject({ text: "tentative: model at 0.97x", detail: "two windows only" });
    expect(check({ tentative: true, self_check: null }).text).toBe("tentative");
  });
});

it("compares the plan with what is observed", () => {
  expect(speedup(chain)).toBeCloseTo(2.76);
  expect([speedup(noCounters), speedup(interleave)]).toEqual([null, null]);
});
