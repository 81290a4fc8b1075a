import type { JSX } from "preact";
import type { State, Store } from "../lib/store";
import { Details } from "./Details";
import { Findings } from "./Findings";
import { Footer } from "./Footer";
import { GraphView } from "./GraphView";
import { Header } from "./Header";
import { useStore } from "./hooks";
import { PlanView } from "./PlanView";
import { Collecting, Empty, Loading, Problem } from "./states";
import { VerdictView } from "./VerdictView";
import { WhatIfView } from "./WhatIfView";
import type { Analysis } from "../lib/schema";

export function App({ store }: { store: Store }): JSX.Element {
  const state = useStore(store);
  const { runs, analysis, error } = state;
  if (runs === null || runs.runs.length === 0) {
    return <main class="alone">{runs === null && error === null ? <Loading /> : error?.kind === "offline" ? <Problem error={error} /> : <Empty problem={error} />}</main>;
  }
  return (
    <div class="app" aria-busy={state.busy}>
      <Header state={state} runs={runs} store={store} />
      {analysis === null ? <main class="alone">{withoutAnalysis(state)}</main> : <Page analysis={analysis} state={state} store={store} />}
    </div>
  );
}

function withoutAnalysis({ error }: State): JSX.Element {
  if (error === null) return <Loading />;
  return error.kind === "collecting" || error.kind === "empty" ? <Collecting error={error} /> : <Problem error={error} />;
}

function Page({ analysis, state, store }: { analysis: Analysis; state: State; store: Store }): JSX.Element {
  const selected = analysis.operators.find((row) => row.id === state.selection.operator) ?? null;
  const inspect = (id: string | null) => store.inspect(id);
  return (
    <main class="page">
      <VerdictView analysis={analysis} onInspect={inspect} />
      {analysis.notes.length > 0 && (
        <ul class="notes" aria-label="Notes">
          {analysis.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
      <div class="middle">
        <GraphView analysis={analysis} mode={state.mode} selected={selected?.id ?? null} onInspect={inspect} onMode={(mode) => store.show(mode)} />
        <aside class="side" aria-label="Plan and findings">
          {selected !== null && <Details analysis={analysis} row={selected} onInspect={inspect} />}
          <PlanView analysis={analysis} onInspect={inspect} />
          <Findings analysis={analysis} onInspect={inspect} />
          <WhatIfView analysis={analysis} whatIf={state.whatIf} error={state.whatIfError} onAsk={(whatIf) => void store.ask(whatIf)} />
        </aside>
      </div>
      <Footer analysis={analysis} onInspect={inspect} />
    </main>
  );
}
