/**
 * The drawn pipeline, made from an analysis: nodes, edges and groups, without positions.
 *
 * The pipeline is a tree whose data flows from its sources to the root and on to the consumer. It can be
 * shown as the user wrote it (every operator its own card, fused ones grouped) or as TensorFlow runs it
 * (fused operators one card, dropped ones absent). What TensorFlow injected is in both.
 */
import type { Analysis, Change, OperatorRow } from "./schema";

export type GraphMode = "written" | "running";

export const CONSUMER_ID = "consumer";

export interface OperatorNode {
  readonly kind: "operator";
  readonly id: string;
  /** The row with the cost: of fused operators, the one that the others name in `fused_with`. */
  readonly row: OperatorRow;
  /** All rows that this card stands for; one but for a fused card of the running view. */
  readonly rows: readonly OperatorRow[];
  /** Changes of its own settings that the plan suggests. */
  readonly changes: readonly Change[];
}

/** A cache or prefetch that the plan suggests, on the edge behind an operator. */
export interface InsertionNode {
  readonly kind: "insertion";
  readonly id: string;
  readonly change: Change;
}

/** What consumes the pipeline: the training step. */
export interface ConsumerNode {
  readonly kind: "consumer";
  readonly id: typeof CONSUMER_ID;
}

export type GraphNode = OperatorNode | InsertionNode | ConsumerNode;

export interface GraphEdge {
  readonly from: string;
  readonly to: string;
  /** "body": from the function body of an interleave or flat_map into it. */
  readonly kind: "data" | "body";
  /** At the observed rate; null if unknown. */
  readonly bytesPerS: number | null;
  readonly bytesPerElement: number | null;
  readonly elementsPerS: number | null;
}

export interface GraphGroup {
  readonly id: string;
  /** "fused": TensorFlow runs the members as one operator. "body": they live in a function of `owner`. */
  readonly kind: "fused" | "body";
  readonly label: string;
  readonly members: readonly string[];
}

export interface PipelineGraph {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
  readonly groups: readonly GraphGroup[];
}

/** Operators whose inputs may live in a function body. */
const BODY_OWNERS = /Interleave|FlatMap|GroupByWindow|Window|TFRecord|Generator|ConcatMap|RaggedMap/i;

/** The graph of an analysis. Rows with unknown parents hang on the consumer rather than vanish. */
export function buildGraph(analysis: Analysis, mode: GraphMode): PipelineGraph {
  const rows = analysis.operators;
  const byId = new Map(rows.map((row) => [row.id, row]));
  const shown = mode === "running" ? rows.filter((row) => row.runs_as !== null || row.injected) : rows;
  const cardOf = cards(shown, byId, mode);
  const observed = analysis.verdict?.observed_rate ?? null;

  const operatorNodes: OperatorNode[] = [];
  const edges: GraphEdge[] = [];
  for (const [id, members] of membersByCard(shown, cardOf)) {
    const row = byId.get(id)!;
    operatorNodes.push({ kind: "operator", id, row, rows: members, changes: ownChanges(analysis, members) });
    edges.push(edgeOut(id, members, byId, cardOf, mode, observed));
  }

  const insertions = insertedNodes(analysis, cardOf);
  const allEdges = insertions.reduce(splice, edges);
  return {
    nodes: [...operatorNodes, ...insertions.map(({ node }) => node), { kind: "consumer", id: CONSUMER_ID }],
    edges: allEdges,
    groups: [...(mode === "written" ? fusedGroups(rows, byId) : []), ...bodyGroups(allEdges, operatorNodes)],
  };
}

/** Row id → id of the card that shows it. */
function cards(rows: readonly OperatorRow[], byId: ReadonlyMap<string, OperatorRow>, mode: GraphMode): Map<string, string> {
  return new Map(rows.map((row) => [row.id, mode === "running" ? fusedHead(row, byId).id : row.id]));
}

/** The row that carries the cost of what `row` is fused with; itself if it is not fused. */
export function fusedHead(row: OperatorRow, byId: ReadonlyMap<string, OperatorRow>): OperatorRow {
  const head = row.fused_with === null ? undefined : byId.get(row.fused_with);
  return head ?? row;
}

function membersByCard(rows: readonly OperatorRow[], cardOf: ReadonlyMap<string, string>): Map<string, OperatorRow[]> {
  const members = new Map<string, OperatorRow[]>();
  for (const row of rows) {
    const card = cardOf.get(row.id)!;
    members.set(card, [...(members.get(card) ?? []), row]);
  }
  return members;
}

function ownChanges(analysis: Analysis, rows: readonly OperatorRow[]): Change[] {
  const ids = new Set(rows.map((row) => row.id));
  return (analysis.plan?.changes ?? []).filter(
    (change) => change.operator !== null && ids.has(change.operator) && !isInsertion(change),
  );
}

/** A change that adds an operator instead of setting one. */
export function isInsertion(change: Change): boolean {
  return (change.kind === "cache" || change.kind === "prefetch") && (change.from === null || change.from === "none");
}

function edgeOut(
  id: string,
  members: readonly OperatorRow[],
  byId: ReadonlyMap<string, OperatorRow>,
  cardOf: ReadonlyMap<string, string>,
  mode: GraphMode,
  observed: number | null,
): GraphEdge {
  // The last of a fused card is the one whose elements leave it.
  let last = members[0]!;
  let to = CONSUMER_ID as string;
  for (const row of members) {
    const next = nextShown(row, byId, cardOf, mode);
    if (next !== id) {
      last = row;
      to = next;
      break;
    }
  }
  return {
    from: id,
    to,
    kind: members.some((row) => entersAsBody(row, byId)) ? "body" : "data",
    bytesPerS: last.bytes_per_s,
    bytesPerElement: last.bytes_per_element,
    elementsPerS: observed === null || last.visit_ratio === null ? null : observed * last.visit_ratio,
  };
}

/** The card that takes this row's elements, skipping operators that are not shown. */
function nextShown(
  row: OperatorRow,
  byId: ReadonlyMap<string, OperatorRow>,
  cardOf: ReadonlyMap<string, string>,
  mode: GraphMode,
): string {
  const seen = new Set([row.id]);
  let next = nextId(row, byId, mode);
  while (next !== null && !seen.has(next)) {
    const card = cardOf.get(next);
    if (card !== undefined) return card;
    seen.add(next);
    const hidden = byId.get(next);
    if (hidden === undefined) break;
    next = nextId(hidden, byId, mode);
  }
  return CONSUMER_ID;
}

function nextId(row: OperatorRow, byId: ReadonlyMap<string, OperatorRow>, mode: GraphMode): string | null {
  if (mode === "running") return row.flows_to ?? row.parent;
  // As written: the user's own tree, with what was injected spliced in.
  const flowsIntoInjected = row.flows_to !== null && byId.get(row.flows_to)?.injected === true;
  // Of fused operators only the last one's elements really flow anywhere; the others' go to their parent.
  const parent = row.parent === null ? undefined : byId.get(row.parent);
  const fusedWithParent = parent !== undefined && fusedHead(parent, byId) === fusedHead(row, byId);
  return row.injected || (flowsIntoInjected && !fusedWithParent) ? row.flows_to : row.parent;
}

/** Whether the row is the last operator of a function body, feeding the operator that owns the function. */
function entersAsBody(row: OperatorRow, byId: ReadonlyMap<string, OperatorRow>): boolean {
  if (!row.in_body || row.parent === null) return false;
  const parent = byId.get(row.parent);
  return parent !== undefined && (!parent.in_body || BODY_OWNERS.test(parent.type));
}

interface Insertion {
  readonly node: InsertionNode;
  readonly behind: string;
}

function insertedNodes(analysis: Analysis, cardOf: ReadonlyMap<string, string>): Insertion[] {
  const insertions: Insertion[] = [];
  (analysis.plan?.changes ?? []).forEach((change, index) => {
    if (!isInsertion(change) || change.operator === null) return;
    const behind = cardOf.get(change.operator);
    if (behind !== undefined) insertions.push({ node: { kind: "insertion", id: `change${index}`, change }, behind });
  });
  // Spliced one by one directly behind the operator: the last one lands nearest to it, and a prefetch comes after a cache.
  return insertions.sort((a, b) => Number(a.node.change.kind === "cache") - Number(b.node.change.kind === "cache"));
}

function splice(edges: readonly GraphEdge[], { node, behind }: Insertion): GraphEdge[] {
  return edges.flatMap((edge) =>
    edge.from === behind ? [{ ...edge, to: node.id, kind: "data" as const }, { ...edge, from: node.id }] : [edge],
  );
}

function fusedGroups(rows: readonly OperatorRow[], byId: ReadonlyMap<string, OperatorRow>): GraphGroup[] {
  const members = new Map<string, Set<string>>();
  for (const row of rows) {
    const head = fusedHead(row, byId);
    if (head.id === row.id) continue;
    members.set(head.id, (members.get(head.id) ?? new Set([head.id])).add(row.id));
  }
  return [...members].map(([head, ids]) => ({
    id: `fused:${head}`,
    kind: "fused" as const,
    label: `runs as one ${byId.get(head)?.runs_as ?? "operator"}`,
    members: [...ids],
  }));
}

function bodyGroups(edges: readonly GraphEdge[], nodes: readonly OperatorNode[]): GraphGroup[] {
  const nodeById = new Map(nodes.map((node) => [node.id, node]));
  const inputs = new Map<string, string[]>();
  for (const edge of edges) inputs.set(edge.to, [...(inputs.get(edge.to) ?? []), edge.from]);
  const upstream = (id: string): string[] => [id, ...(inputs.get(id) ?? []).flatMap(upstream)];
  return edges
    .filter((edge) => edge.kind === "body")
    .map((edge) => {
      const owner = nodeById.get(edge.to)?.row;
      return {
        id: `body:${edge.from}`,
        kind: "body" as const,
        label: owner ? `function of ${owner.type}${owner.label && owner.label !== owner.type ? ` ${owner.label}` : ""}` : "function body",
        members: upstream(edge.from),
      };
    });
}
