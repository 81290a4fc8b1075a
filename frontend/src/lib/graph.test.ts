import { describe, expect, it } from "vitest";
import { chain, interleave, long, zip } from "../fixtures/analyses";
import { analysis, change, row } from "../fixtures/build";
import { buildGraph, CONSUMER_ID, type GraphMode, type PipelineGraph } from "./graph";

const edges = (graph: PipelineGraph) => graph.edges.map(({ from, to }) => `${from}>${to}`).sort();
const group = (graph: PipelineGraph, kind: "fused" | "body") => graph.groups.filter((entry) => entry.kind === kind);

describe("as written", () => {
  const graph = buildGraph(chain, "written");

  it("keeps a card for every operator, fused ones too, with what was injected spliced in", () => {
    expect(edges(graph)).toEqual(["change2>op2", "injected0>consumer", "op0>injected0", "op1>op0", "op2>op1", "op3>change2", "op4>op3"]);
  });

  it("groups what TensorFlow fused and names what runs", () => {
    expect(group(graph, "fused")).toEqual([{ id: "fused:op1", kind: "fused", label: "runs as one MapAndBatch", members: ["op1", "op0"] }]);
  });

  it("shows an insertion as a card of its own, and a setting on its operator", () => {
    const insertions = graph.nodes.filter((node) => node.kind === "insertion");
    expect(insertions.map((node) => [node.change.kind, node.change.to])).toEqual([["cache", "memory"]]);
    const changed = graph.nodes.flatMap((node) => (node.kind === "operator" && node.changes.length ? [node.id] : []));
    expect(changed.sort()).toEqual(["op1", "op3"]);
  });

  it("puts the bytes of an edge and its elements per second on it", () => {
    const edge = graph.edges.find(({ from }) => from === "op2")!;
    expect(edge.bytesPerS).toBe(71.7e6);
    expect(edge.elementsPerS).toBeCloseTo(32 * 24.3);
  });
});

describe("what runs", () => {
  it("makes fused operators one card that carries the cost", () => {
    const graph = buildGraph(chain, "running");
    expect(edges(graph)).toEqual(["change2>op2", "injected0>consumer", "op1>injected0", "op2>op1", "op3>change2", "op4>op3"]);
    const fused = graph.nodes.find((node) => node.id === "op1");
    expect(fused?.kind === "operator" && fused.rows.map(({ id }) => id)).toEqual(["op0", "op1"]);
    expect(group(graph, "fused")).toEqual([]);
  });

  it("leaves out what TensorFlow dropped and closes the gap", () => {
    const graph = buildGraph(
      analysis({
        operators: [row("op0", "Batch", null), row("op1", "Map", "op0", { runs_as: null, flows_to: null }), row("op2", "Range", "op1", { flows_to: "op0" })],
      }),
      "running",
    );
    expect(edges(graph)).toEqual(["op0>consumer", "op2>op0"]);
  });
});

describe("branches", () => {
  it("joins a zip's inputs", () => {
    const graph = buildGraph(zip, "written");
    expect(graph.edges.filter(({ to }) => to === "op2").map(({ from }) => from)).toEqual(["op3", "op5"]);
  });

  it("sets an interleave's function apart, and marks the edge that leaves it", () => {
    const graph = buildGraph(interleave, "written");
    expect(group(graph, "body").map(({ label, members }) => [label, members])).toEqual([["function of ParallelInterleave read_shard", ["op3", "op4"]]]);
    expect(graph.edges.filter(({ kind }) => kind === "body").map(({ from, to }) => `${from}>${to}`)).toEqual(["op3>op2"]);
  });

  it("knows a body whose inner operators do not repeat that they are in it", () => {
    const operators = interleave.operators.map((operator) => (operator.id === "op4" ? { ...operator, in_body: false } : operator));
    const graph = buildGraph({ ...interleave, operators }, "written");
    expect(group(graph, "body")[0]?.members).toEqual(["op3", "op4"]);
  });
});

describe("insertions", () => {
  const base = analysis({ operators: [row("op0", "Batch", null), row("op1", "Map", "op0")] });
  const planned = (...changes: ReturnType<typeof change>[]) => ({ ...base, plan: { ...base.plan!, changes } });

  it("come in the order cache, prefetch behind one operator, however listed", () => {
    for (const changes of [
      [change("prefetch", "op0", "none", 2), change("cache", "op0", "none", "memory")],
      [change("cache", "op0", "none", "memory"), change("prefetch", "op0", "none", 2)],
    ]) {
      const graph = buildGraph(planned(...changes), "written");
      const kind = (id: string) => graph.nodes.flatMap((node) => (node.id === id && node.kind === "insertion" ? [node.change.kind] : []))[0];
      const after = (id: string) => graph.edges.find(({ from }) => from === id)!.to;
      expect(kind(after("op0"))).toBe("cache");
      expect(kind(after(after("op0")))).toBe("prefetch");
      expect(after(after(after("op0")))).toBe(CONSUMER_ID);
    }
  });

  it("are none where an existing prefetch is resized, or the operator is unknown", () => {
    const graph = buildGraph(planned(change("prefetch", "op0", 1, 4), change("cache", "gone", "none", "memory")), "written");
    expect(graph.nodes.some(({ kind }) => kind === "insertion")).toBe(false);
  });
});

describe("every graph", () => {
  it.each(["written", "running"] satisfies GraphMode[])("is a tree into the consumer (%s)", (mode) => {
    for (const fixture of [chain, zip, interleave, long(5), long(30), analysis(), analysis({ operators: [row("op0", "Map", "lost", { flows_to: "lost" })] })]) {
      const graph = buildGraph(fixture, mode);
      const out = new Map(graph.edges.map(({ from, to }) => [from, to]));
      expect(out.size).toBe(graph.edges.length);
      for (const { id } of graph.nodes) {
        let at: string | undefined = id;
        for (let steps = 0; at !== CONSUMER_ID && steps < 100; steps++) at = out.get(at!);
        expect(at).toBe(CONSUMER_ID);
      }
    }
  });
});
