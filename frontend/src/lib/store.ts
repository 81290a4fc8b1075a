/** The tab's state and the few things that can happen to it. Views read it; nothing else writes it. */
import { ApiError, AS_MEASURED, type Api, type WhatIf } from "./api";
import type { GraphMode } from "./graph";
import type { Analysis, ErrorReply, RunList } from "./schema";
import { resolveSelection, type Selection } from "./selection";

export interface State {
  /** Null until the first answer. */
  readonly runs: RunList | null;
  /** What is shown. */
  readonly selection: Selection;
  /** Of it, what a person chose: this belongs into a link, while the rest follows what is recorded. */
  readonly chosen: Selection;
  readonly whatIf: WhatIf;
  /** The last good answer for this selection; kept while newer ones fail. */
  readonly analysis: Analysis | null;
  /** Of the newest request, or why there is nothing to show; null after a good one. */
  readonly error: ErrorReply | null;
  /** The limits asked for cannot be answered; the analysis shown is without them. */
  readonly whatIfError: string | null;
  readonly mode: GraphMode;
  /** A request for another selection or what-if is under way. */
  readonly busy: boolean;
}

type Listener = (state: State) => void;

function sameSource(a: Selection, b: Selection): boolean {
  return a.run === b.run && a.host === b.host && a.pipeline === b.pipeline;
}

export class Store {
  private current: State;
  private readonly listeners = new Set<Listener>();
  /** Answers to older requests than the newest are dropped. */
  private newest = 0;

  constructor(
    private readonly api: Api,
    /** From the address bar. */
    wish: Selection,
  ) {
    this.current = {
      runs: null,
      selection: wish,
      chosen: wish,
      whatIf: AS_MEASURED,
      analysis: null,
      error: null,
      whatIfError: null,
      mode: "written",
      busy: false,
    };
  }

  get state(): State {
    return this.current;
  }

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private set(change: Partial<State>): void {
    this.current = { ...this.current, ...change };
    for (const listener of this.listeners) listener(this.current);
  }

  /** Ask the server for everything that is shown. Never rejects: failures become `error`. */
  async refresh(): Promise<void> {
    const request = ++this.newest;
    const stale = () => request !== this.newest;
    try {
      const runs = await this.api.runs();
      if (stale()) return;
      const selection = resolveSelection(this.current.selection, runs);
      const moved = !sameSource(selection, this.current.selection);
      this.set({ runs, selection, ...(moved ? { analysis: null } : {}) });
      if (runs.runs.length === 0) {
        this.set({ analysis: null, error: runs.problem, busy: false });
        return;
      }
      const { analysis, whatIfError } = await this.analyse(selection, this.current.whatIf);
      if (!stale()) this.set({ analysis, error: null, whatIfError, busy: false });
    } catch (failure) {
      if (!stale()) this.fail(failure);
    }
  }

  /** The analysis under the what-if; if that cannot be answered, the one without it and the reason. */
  private async analyse(selection: Selection, whatIf: WhatIf): Promise<{ analysis: Analysis; whatIfError: string | null }> {
    try {
      return { analysis: await this.api.analysis(selection, whatIf), whatIfError: null };
    } catch (failure) {
      const asked = Object.values(whatIf).some((value) => value !== null);
      if (!asked || !(failure instanceof ApiError) || failure.reply.kind !== "bad-request") throw failure;
      return { analysis: await this.api.analysis(selection, AS_MEASURED), whatIfError: failure.reply.error };
    }
  }

  private fail(failure: unknown): void {
    if (!(failure instanceof ApiError)) throw failure;
    const { reply } = failure;
    // A server that is away may come back: what it said last stays readable.
    this.set({ error: reply, busy: false, ...(reply.kind === "offline" ? {} : { analysis: null }) });
  }

  /** Choose a run, host or pipeline; what lies below it is chosen anew. */
  select(choice: { run: string } | { host: string } | { pipeline: string }): Promise<void> {
    const { run, host } = this.current.selection;
    const fresh = { run, host, pipeline: null, operator: null };
    const wish: Selection =
      "run" in choice
        ? { ...fresh, run: choice.run, host: null }
        : "host" in choice
          ? { ...fresh, host: choice.host }
          : { ...fresh, pipeline: choice.pipeline };
    const selection = this.current.runs ? resolveSelection(wish, this.current.runs) : wish;
    this.set({ selection, chosen: wish, analysis: null, error: null, busy: true });
    return this.refresh();
  }

  /** Show an operator's details, or hide them (null). */
  inspect(operator: string | null): void {
    const { selection, chosen } = this.current;
    this.set({ selection: { ...selection, operator }, chosen: { ...chosen, operator } });
  }

  show(mode: GraphMode): void {
    this.set({ mode });
  }

  ask(whatIf: WhatIf): Promise<void> {
    this.set({ whatIf, whatIfError: null, busy: true });
    return this.refresh();
  }
}
