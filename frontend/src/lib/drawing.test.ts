import { describe, expect, it } from "vitest";
import { bound } from "../fixtures/build";
import { scaleBounds } from "./bounds";
import { line, niceCeiling } from "./series";

describe("niceCeiling", () => {
  it.each([
    [0, 1],
    [0.0263, 0.03],
    [24.3, 25],
    [25, 25],
    [67.1, 80],
    [99, 100],
  ])("%f goes under %f", (value, top) => expect(niceCeiling(value)).toBeCloseTo(top));
});

describe("line", () => {
  const drawn = line([0, 1, null, 1, 2].map((value, time) => ({ time, value })), 100, 50);
  it("starts at zero, spans the width and leaves room at the top", () => {
    expect(drawn.dots.map(({ x }) => x)).toEqual([0, 25, 75, 100]);
    expect(drawn.dots[0]!.y).toBe(50);
    expect(drawn.dots[3]!.y).toBeGreaterThan(0);
  });
  it("breaks where a value is missing", () => expect(drawn.path.match(/M/g)).toHaveLength(2));
  it("draws nothing of nothing", () => expect(line([], 100, 50)).toMatchObject({ path: "", area: "", dots: [] }));
  it("has room for what it is compared with", () => expect(line([{ time: 0, value: 1 }], 100, 50, 60).top).toBeGreaterThan(60));
});

describe("scaleBounds", () => {
  const scale = scaleBounds([bound("far", 1000), bound("near", 20, { binds: true }), bound("none", null), bound("next", 40)], 19);
  it("sorts, leaves out what is infinite, and cuts off what is far", () => {
    expect(scale.bars.map(({ bound: { label }, clipped }) => [label, clipped])).toEqual([["near", false], ["next", false], ["far", true]]);
    expect(scale.bars.map(({ share }) => share)).toEqual([0.2, 0.4, 1]);
  });
  it("puts the observed rate on the same scale", () => expect(scale.observed).toBeCloseTo(0.19));
  it("survives having nothing", () => expect(scaleBounds([], null)).toEqual({ bars: [], observed: null }));
});
