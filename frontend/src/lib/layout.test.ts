import { describe, expect, it } from "vitest";
import { chain, interleave, long, zip } from "../fixtures/analyses";
import type { Analysis } from "./schema";
import { buildGraph } from "./graph";
import { type Box, CARD, columnsThatFit, fitGraph, fold, GAP_X, type Layout, layoutGraph } from "./layout";

const WIDTHS = [280, 560, 1000, 1400, 10_000];
const FIXTURES: [string, Analysis][] = [["chain", chain], ["zip", zip], ["interleave", interleave], ["5", long(5)], ["12", long(12)], ["30", long(30)]];
const layouts = FIXTURES.flatMap(([name, fixture]) => WIDTHS.map((width): [string, Layout, Analysis, number] => [`${name} in ${width}`, layoutGraph(buildGraph(fixture, "written"), width), fixture, width]));

function overlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

describe.each(layouts)("%s", (_, layout, fixture, width) => {
  it("places every card, none over another", () => {
    expect(layout.nodes.length).toBe(buildGraph(fixture, "written").nodes.length);
    layout.nodes.forEach((a, i) => layout.nodes.slice(i + 1).forEach((b) => expect(overlap(a, b), `${a.id} ${b.id}`).toBe(false)));
  });

  it("stays inside the width, where one card fits", () => {
    for (const node of layout.nodes) {
      expect(node.x).toBeGreaterThanOrEqual(0);
      expect(node.x + node.width).toBeLessThanOrEqual(layout.width);
    }
    expect(layout.width).toBeLessThanOrEqual(Math.max(width, CARD.width + GAP_X));
  });

  it("lets a group hold its members and nobody else", () => {
    for (const { group, ...box } of layout.groups) {
      for (const node of layout.nodes) if (!group.members.includes(node.id)) expect(overlap(box, node), `${group.id} ${node.id}`).toBe(false);
    }
  });

  it("lets data flow one way within a band and the other way in the next", () => {
    const at = new Map(layout.nodes.map((node) => [node.id, node]));
    for (const { edge } of layout.edges) {
      const from = at.get(edge.from)!;
      const to = at.get(edge.to)!;
      if (from.band === to.band) expect(Math.sign(to.x - from.x)).toBe(from.direction);
      else expect([to.band - from.band, to.direction]).toEqual([1, -from.direction]);
    }
  });
});

describe("fold", () => {
  const free = Array.from({ length: 40 }, () => 0);
  it("keeps one band where it fits", () => expect(fold(4, 4, free)).toEqual([0]));
  it("halves what is a little too long instead of leaving one card over", () => expect(fold(6, 5, free)).toEqual([0, 3]));
  it("fills the bands of a long pipeline", () => expect(fold(22, 5, free)).toEqual([0, 5, 10, 15, 20]));
  it("moves a cut to where it costs less", () => expect(fold(6, 5, [0, 0, 0, 2, 0, 0])).not.toContain(3));
  it("works with one column", () => expect(fold(3, 1, free)).toEqual([0, 1, 2]));
});

describe("fit", () => {
  it("counts whole columns", () => {
    expect(columnsThatFit(10)).toBe(1);
    expect(columnsThatFit(60 + 2 * CARD.width + GAP_X)).toBe(2);
  });
  it("shrinks what would scroll, but never beyond what can be read", () => {
    expect(fitGraph(buildGraph(chain, "written"), { width: 1048, height: 500 }).scale).toBe(1);
    expect(fitGraph(buildGraph(long(12), "written"), { width: 1048, height: 500 }).scale).toBeLessThan(1);
    expect(fitGraph(buildGraph(long(30), "written"), { width: 1048, height: 300 }).scale).toBe(0.8);
  });
});
