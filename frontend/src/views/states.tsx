/** What the tab shows while there is no analysis: what is the matter, and what to do. */
import type { JSX } from "preact";
import type { ErrorReply } from "../lib/schema";
import { Code, CopyButton } from "./bits";

export function Loading(): JSX.Element {
  return (
    <div class="state" role="status" data-state="loading">
      <div class="spinner" aria-hidden="true" />
      <p>Reading what was recorded …</p>
    </div>
  );
}

const FIT = `import tensorboard_plugin_plumber as plumber

model.fit(dataset, callbacks=[plumber.PlumberCallback("logs/run1")])`;

const LOOP = `with plumber.trace("logs/run1"):
    for batch in dataset: ...`;

/** Nothing in the log directory: how to record. */
export function Empty({ problem }: { problem: ErrorReply | null }): JSX.Element {
  const damaged = problem?.kind === "damaged";
  return (
    <div class="state empty" data-state={problem?.kind ?? "empty"}>
      <h1>{damaged ? "What was recorded cannot be read" : "No pipeline was recorded here yet"}</h1>
      {problem !== null && (
        <p class="said" role="alert">
          {problem.error}
        </p>
      )}
      <p>Plumber shows why training waits for its data. Record a training in two steps; this page then fills by itself.</p>
      <ol class="how">
        <li>
          <h2>Install it where you train</h2>
          <Code text="pip install tensorboard-plugin-plumber" what="the install command" />
        </li>
        <li>
          <h2>Give training its callback, with a directory under TensorBoard's --logdir</h2>
          <Snippet text={FIT} what="the lines for fit" />
          <p>or, around a loop of your own:</p>
          <Snippet text={LOOP} what="the lines for a loop" />
        </li>
      </ol>
      <p>Or look at an example first:</p>
      <Code text="plumber demo" what="the demo command" />
    </div>
  );
}

function Snippet({ text, what }: { text: string; what: string }): JSX.Element {
  return (
    <div class="code block">
      <pre>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} what={what} />
    </div>
  );
}

/** A recording has begun, but there is not enough of it yet. */
export function Collecting({ error }: { error: ErrorReply }): JSX.Element {
  return (
    <div class="state" role="status" data-state="collecting">
      <div class="spinner" aria-hidden="true" />
      <h1>Collecting: an analysis needs two samples</h1>
      <p class="said">{error.error}</p>
      <p>A sample is written about every second while training reads its data. This page looks again every few seconds.</p>
    </div>
  );
}

const TITLES: Record<string, string> = {
  offline: "TensorBoard does not answer",
  damaged: "What was recorded cannot be read",
  "not-found": "There is no such recording",
  "bad-request": "This cannot be answered",
};

export function Problem({ error }: { error: ErrorReply }): JSX.Element {
  return (
    <div class="state" role="alert" data-state={error.kind}>
      <h1>{TITLES[error.kind] ?? "Something went wrong"}</h1>
      <p class="said">{error.error}</p>
    </div>
  );
}
