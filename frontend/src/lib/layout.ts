/**
 * Positions for a pipeline graph: columns and lanes of a tree, folded like a ribbon to a given width.
 *
 * A pipeline is a tree (every operator hands its elements to one other), so its column is its distance from the
 * consumer, each source has a lane of its own, and no edges can cross: this needs no general graph layout.
 * Where the one band that results is wider than the view, it is cut between columns and every second piece turned
 * by half a turn: data then flows right, turns down, flows left, and so on, and the edges across a cut are nested
 * U-turns that cannot cross either.
 */
import { CONSUMER_ID, type GraphEdge, type GraphGroup, type PipelineGraph } from "./graph";

export const CARD = { width: 196, height: 112 } as const;
/** Between columns: room for an arrow and the edge's label. */
export const GAP_X = 60;
/** Between lanes and between bands: room for the foot of one group and the head of the next. */
const GAP_Y = 42;
const BAND_GAP = 48;
const GROUP = { side: 10, head: 24, foot: 10 } as const;
/** How far out the innermost U-turn goes, and how much further each next one. */
const TURN = 18;
const TURN_STEP = 12;
/** Length of an arrow's head; the line ends where it begins. */
export const ARROW = 9;
const MARGIN = { x: 30, top: 30, bottom: 14 } as const;

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface PlacedNode extends Box {
  readonly id: string;
  readonly band: number;
  /** +1 where data flows to the right, −1 where it flows to the left. */
  readonly direction: 1 | -1;
}

export interface PlacedEdge {
  readonly edge: GraphEdge;
  /** SVG path of the line, up to the arrow's head. */
  readonly path: string;
  /** Tip of the arrow, at the card's border, and where it points to along x. */
  readonly tip: { readonly x: number; readonly y: number; readonly direction: 1 | -1 };
  readonly label: { readonly x: number; readonly y: number; readonly anchor: "start" | "middle" | "end" };
}

export interface PlacedGroup extends Box {
  readonly group: GraphGroup;
  /** A group cut by a fold has several parts; only the first has the label. */
  readonly first: boolean;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  /** From the sources to the root: the reading and tabbing order. */
  readonly nodes: readonly PlacedNode[];
  readonly edges: readonly PlacedEdge[];
  readonly groups: readonly PlacedGroup[];
  readonly bands: number;
}

interface Cell {
  readonly id: string;
  /** Column from the sources, and top in the unfolded band. */
  readonly column: number;
  readonly y: number;
}

/** Columns that fit side by side into `width` pixels; at least one. */
export function columnsThatFit(width: number): number {
  return Math.max(1, Math.floor((width - 2 * MARGIN.x + GAP_X) / (CARD.width + GAP_X)));
}

/** Lay out `graph` at natural size so that it is no wider than `width` pixels, if one card fits at all. */
export function layoutGraph(graph: PipelineGraph, width: number): Layout {
  const cells = unfolded(graph);
  const columns = 1 + Math.max(...cells.map((cell) => cell.column));
  const bands = fold(columns, columnsThatFit(width), cutCosts(graph, cells, columns));
  return place(graph, cells, bands);
}

function unfolded(graph: PipelineGraph): Cell[] {
  const inputs = new Map<string, string[]>();
  for (const edge of graph.edges) inputs.set(edge.to, [...(inputs.get(edge.to) ?? []), edge.from]);
  const placed: { id: string; depth: number; y: number }[] = [];
  let lanes = 0;
  const visit = (id: string, depth: number): number => {
    const ys = (inputs.get(id) ?? []).map((input) => visit(input, depth + 1));
    // A source takes the next lane; what joins several lanes stands between the outer ones.
    const y = ys.length === 0 ? lanes++ * (CARD.height + GAP_Y) : (ys[0]! + ys.at(-1)!) / 2;
    placed.push({ id, depth, y });
    return y;
  };
  visit(CONSUMER_ID, 0);
  const deepest = Math.max(...placed.map(({ depth }) => depth));
  const cells = placed.map(({ id, depth, y }) => ({ id, column: deepest - depth, y }));
  return cells.sort((a, b) => a.column - b.column || a.y - b.y);
}

/** What it costs the reader to cut before each column: crossing edges beyond the first, and split groups. */
function cutCosts(graph: PipelineGraph, cells: readonly Cell[], columns: number): number[] {
  const columnOf = new Map(cells.map((cell) => [cell.id, cell.column]));
  return Array.from({ length: columns }, (_, cut) => {
    const isLeft = (id: string) => columnOf.get(id)! < cut;
    const crossing = graph.edges.filter((edge) => isLeft(edge.from) !== isLeft(edge.to)).length;
    const split = graph.groups.filter((group) => new Set(group.members.map(isLeft)).size > 1).length;
    return 2 * Math.max(0, crossing - 1) + split;
  });
}

/**
 * First column of each band. Few bands are cut into even lengths, many into full ones with a rest at the end; a
 * cut costs what `costs` says. Solved exactly, by dynamic programming over the cuts.
 */
export function fold(columns: number, fit: number, costs: readonly number[]): number[] {
  const few = Math.ceil(columns / fit);
  const wanted = few <= 3 ? Math.ceil(columns / few) : fit;
  const best: { cost: number; from: number }[] = [{ cost: 0, from: 0 }];
  for (let end = 1; end <= columns; end++) {
    let choice = { cost: Infinity, from: 0 };
    for (let from = Math.max(0, end - fit); from < end; from++) {
      const cut = from === 0 ? 0 : (costs[from] ?? 0);
      const uneven = end === columns ? 0 : 0.3 * (end - from - wanted) ** 2;
      const cost = best[from]!.cost + 3 + cut + uneven;
      if (cost < choice.cost) choice = { cost, from };
    }
    best.push(choice);
  }
  const starts: number[] = [];
  for (let end = columns; end > 0; end = best[end]!.from) starts.unshift(best[end]!.from);
  return starts;
}

function place(graph: PipelineGraph, cells: readonly Cell[], starts: readonly number[]): Layout {
  const bandOf = (column: number) => starts.findLastIndex((start) => start <= column);
  const columns = 1 + Math.max(...cells.map((cell) => cell.column));
  const lengths = starts.map((start, band) => (starts[band + 1] ?? columns) - start);
  const widest = Math.max(...lengths);
  const offsets = bandOffsets(lengths, widest);

  const nodes: PlacedNode[] = [];
  let top: number = MARGIN.top;
  starts.forEach((start, band) => {
    const members = cells.filter((cell) => bandOf(cell.column) === band);
    const low = Math.min(...members.map((cell) => cell.y));
    const high = Math.max(...members.map((cell) => cell.y));
    const flipped = band % 2 === 1;
    for (const cell of members) {
      const inBand = cell.column - start;
      const column = offsets[band]! + (flipped ? lengths[band]! - 1 - inBand : inBand);
      nodes.push({
        id: cell.id,
        band,
        direction: flipped ? -1 : 1,
        x: MARGIN.x + column * (CARD.width + GAP_X),
        y: top + (flipped ? high - cell.y : cell.y - low),
        ...CARD,
      });
    }
    top += high - low + CARD.height + BAND_GAP;
  });

  return {
    width: 2 * MARGIN.x + widest * (CARD.width + GAP_X) - GAP_X,
    height: top - BAND_GAP + MARGIN.bottom,
    nodes,
    edges: placeEdges(graph, nodes),
    groups: placeGroups(graph, nodes),
    bands: starts.length,
  };
}

/** Column at which each band begins on the left, so that it starts under the end of the one before where it can. */
function bandOffsets(lengths: readonly number[], widest: number): number[] {
  let turn = 0;
  return lengths.map((length, band) => {
    const wanted = band % 2 === 0 ? turn : turn - length + 1;
    const offset = Math.min(Math.max(0, wanted), widest - length);
    turn = band % 2 === 0 ? offset + length - 1 : offset;
    return offset;
  });
}

function placeEdges(graph: PipelineGraph, nodes: readonly PlacedNode[]): PlacedEdge[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  return graph.edges.flatMap((edge) => {
    const from = byId.get(edge.from);
    const to = byId.get(edge.to);
    if (from === undefined || to === undefined) return [];
    return [from.band === to.band ? straight(edge, from, to) : turned(edge, from, to, nodes, graph, byId)];
  });
}

function straight(edge: GraphEdge, from: PlacedNode, to: PlacedNode): PlacedEdge {
  const { direction } = from;
  const x1 = direction === 1 ? from.x + from.width : from.x;
  const x2 = direction === 1 ? to.x : to.x + to.width;
  const end = x2 - direction * ARROW;
  const y1 = from.y + from.height / 2;
  const y2 = to.y + to.height / 2;
  const bend = (end - x1) / 2;
  const path = y1 === y2 ? `M${x1},${y1}H${end}` : `M${x1},${y1}C${x1 + bend},${y1} ${end - bend},${y2} ${end},${y2}`;
  // On a slope the label goes beside the flat piece at the start, where no other lane is.
  const label = y1 === y2 ? { x: (x1 + x2) / 2, y: y1 - 9 } : { x: x1 + 6 * direction, y: y1 + (y2 > y1 ? -9 : 18) };
  const anchor = y1 === y2 ? "middle" : direction === 1 ? "start" : "end";
  return { edge, path, tip: { x: x2, y: y2, direction }, label: { ...label, anchor } };
}

function turned(
  edge: GraphEdge,
  from: PlacedNode,
  to: PlacedNode,
  nodes: readonly PlacedNode[],
  graph: PipelineGraph,
  byId: ReadonlyMap<string, PlacedNode>,
): PlacedEdge {
  const right = from.direction === 1;
  const side = (node: PlacedNode) => (right ? node.x + node.width : node.x);
  // Lanes further from the fold take wider turns; the lowest lane is innermost.
  const below = graph.edges.filter((other) => {
    const start = byId.get(other.from);
    const end = byId.get(other.to);
    return start?.band === from.band && end?.band === to.band && start.y > from.y;
  }).length;
  const out = TURN + TURN_STEP * below;
  const touched = nodes.filter((node) => (node.band === from.band && node.x === from.x) || (node.band === to.band && node.x === to.x));
  const x = right ? Math.max(...touched.map(side)) + out : Math.min(...touched.map(side)) - out;
  const y1 = from.y + from.height / 2;
  const y2 = to.y + to.height / 2;
  const r = Math.min(14, out) * (right ? 1 : -1);
  const d = Math.abs(r);
  const end = side(to) + (right ? ARROW : -ARROW);
  const path = `M${side(from)},${y1}H${x - r}Q${x},${y1} ${x},${y1 + d}V${y2 - d}Q${x},${y2} ${x - r},${y2}H${end}`;
  return {
    edge,
    path,
    tip: { x: side(to), y: y2, direction: to.direction },
    label: { x: right ? x - 8 : x + 8, y: from.y + from.height + 16, anchor: right ? "end" : "start" },
  };
}

function placeGroups(graph: PipelineGraph, nodes: readonly PlacedNode[]): PlacedGroup[] {
  return graph.groups.flatMap((group) => {
    const members = nodes.filter((node) => group.members.includes(node.id));
    const bands = [...new Set(members.map((node) => node.band))].sort((a, b) => a - b);
    return bands.map((band, part) => {
      const inBand = members.filter((node) => node.band === band);
      const left = Math.min(...inBand.map((node) => node.x)) - GROUP.side;
      const right = Math.max(...inBand.map((node) => node.x + node.width)) + GROUP.side;
      const top = Math.min(...inBand.map((node) => node.y)) - GROUP.head;
      const bottom = Math.max(...inBand.map((node) => node.y + node.height)) + GROUP.foot;
      return { group, first: part === 0, x: left, y: top, width: right - left, height: bottom - top };
    });
  });
}

/** Shares of natural size that are tried before the graph scrolls; smaller would not be readable. */
export const SCALES = [1, 0.9, 0.8] as const;

/** The largest scale at which the folded graph fits the view's height, else the smallest; and its layout. */
export function fitGraph(graph: PipelineGraph, view: { width: number; height: number }): { scale: number; layout: Layout } {
  let last = { scale: 1, layout: layoutGraph(graph, view.width) };
  for (const scale of SCALES) {
    last = { scale, layout: layoutGraph(graph, view.width / scale) };
    if (last.layout.height * scale <= view.height) break;
  }
  return last;
}
