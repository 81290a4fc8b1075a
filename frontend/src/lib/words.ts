/** Names and phrases that several views use. */
import type { Analysis, Change, Constraint, OperatorRow, Setting } from "./schema";

/** "Map decode", or only "Batch" where the label says nothing more. */
export function operatorName(row: OperatorRow): string {
  return row.label === "" || row.label === row.type ? row.type : `${row.type} ${row.label}`;
}

/** The same with its place in the user's code. */
export function operatorPlace(row: OperatorRow): string {
  return row.source === null ? operatorName(row) : `${operatorName(row)} (${row.source})`;
}

/** What binds, in the words of the cards' mark. */
export function constraintName(constraint: Constraint | null): string {
  const names: Record<Constraint, string> = {
    operator: "operator",
    thread: "thread",
    cpu: "cores",
    threadpool: "thread pool",
    gil: "Python's lock",
    storage: "storage",
    memory: "memory",
    network: "network",
    consumer: "training step",
  };
  return constraint === null ? "unknown" : names[constraint];
}

/** The mark of a binding card: "binds", or with the shared resource, "binds: thread pool". */
export function bindsMark(constraint: Constraint | null): string {
  return constraint === null || constraint === "operator" || constraint === "consumer" ? "binds" : `binds: ${constraintName(constraint)}`;
}

export function setting(value: Setting | null): string {
  return value === null ? "none" : String(value);
}

/** What a change sets, for the plan's table. */
export function settingName(change: Change): string {
  switch (change.kind) {
    case "parallelism":
      return "parallel calls";
    case "prefetch":
      return "prefetch";
    case "cache":
      return "cache";
    case "threadpool":
      return "thread pool";
    case "order":
      return "order";
    case "service":
      return "data service";
    case "rewrite":
      return "rewrite";
    case "unbounded":
      return "unbounded thread pool";
    case null:
      return "setting";
  }
}

/** Short, on a card: "1 → 12". */
export function changeMark(change: Change): string {
  return `${setting(change.from)} → ${setting(change.to)}`;
}

export function findOperator(analysis: Analysis, id: string | null): OperatorRow | null {
  return id === null ? null : (analysis.operators.find((row) => row.id === id) ?? null);
}
