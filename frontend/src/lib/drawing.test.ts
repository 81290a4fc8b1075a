import { describe, expect, it } from "vitest";
import { bound } from "../fixtures/build";
import { scaleBounds } from "./bounds";
import { line, median, niceCeiling, scaleTo } from "./series";

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

describe("a line with an outlier", () => {
  const waits = [0.5, ...Array.from({ length: 29 }, (_, i) => 0.01 + 0.0001 * (i % 3))].map((value, time) => ({ time, value }));
  it("is scaled to the rest, cut at the upper edge and marked there, and still knows the highest", () => {
    const drawn = line(waits, 100, 50, 0, true);
    expect(drawn.top).toBeLessThan(0.02);
    expect(drawn.dots.filter(({ clipped }) => clipped)).toEqual([{ x: 0, y: 0, clipped: true, sample: waits[0] }]);
    expect(Math.min(...drawn.dots.slice(1).map(({ y }) => y))).toBeGreaterThan(0);
    expect(drawn.path).toMatch(/^M0,0L/);
    expect(drawn.highest).toBe(0.5);
  });
  it("shows all of it where it may not be cut, and where it is compared with more", () => {
    for (const drawn of [line(waits, 100, 50), line(waits, 100, 50, 0.6, true)]) {
      expect(drawn.dots.some(({ clipped }) => clipped)).toBe(false);
      expect(drawn.top).toBeGreaterThan(0.5);
    }
  });
});

describe("scaleTo", () => {
  it.each<[string, number[], number]>([
    ["nothing", [], 0],
    ["too few to tell", [500, 10, 10, 10], 500],
    ["one outlier of five", [500, 10, 10, 10, 10], 10],
    ["a wobble", [12, 10, 10, 10, 10, 19], 19],
    ["two outliers of a hundred", [500, 400, ...Array<number>(98).fill(10)], 10],
    ["what is no outlier any more: a tenth", [...Array<number>(10).fill(500), ...Array<number>(90).fill(10)], 500],
    ["mostly nothing", [500, 0, 0, 0, 0, 0], 500],
  ])("%s", (_, values, top) => expect(scaleTo(values)).toBe(top));
});

describe("median", () => {
  it.each<[number[], number | null]>([
    [[], null],
    [[3], 3],
    [[9, 1, 2], 2],
    [[4, 1, 2, 100], 3],
  ])("of %j is %j", (values, middle) => expect(median(values)).toBe(middle));
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
