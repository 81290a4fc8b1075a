/** Small pieces that several views share. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { copyText } from "../lib/clipboard";
import { NONE } from "../lib/format";

/** A formatted number; where there is none, a dash that says why when pointed at. */
export function Value({ text, why }: { text: string; why: string }): JSX.Element {
  if (text !== NONE) return <>{text}</>;
  return (
    <span class="none" title={why} aria-label={why}>
      {NONE}
    </span>
  );
}

export function Chip(props: { tone?: string; title?: string; children: ComponentChildren }): JSX.Element {
  return (
    <span class={`chip ${props.tone ?? ""}`} title={props.title}>
      {props.children}
    </span>
  );
}

/** A titled region of the page. */
export function Section(props: { id: string; title: ComponentChildren; children: ComponentChildren; class?: string }): JSX.Element {
  return (
    <section class={`section ${props.class ?? ""}`} aria-labelledby={`${props.id}-title`} data-section={props.id}>
      <h2 id={`${props.id}-title`}>{props.title}</h2>
      {props.children}
    </section>
  );
}

export function CopyButton({ text, what }: { text: string; what: string }): JSX.Element {
  const [said, setSaid] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), 1600);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <button
      type="button"
      class="copy"
      aria-label={`Copy ${what}`}
      onClick={() => void copyText(text).then((copied) => setSaid(copied ? "Copied" : "Press Ctrl+C"))}
    >
      <span aria-live="polite">{said ?? "Copy"}</span>
    </button>
  );
}

/** A line of code with a button that copies it. */
export function Code({ text, what }: { text: string; what: string }): JSX.Element {
  return (
    <div class="code">
      <code>{text}</code>
      <CopyButton text={text} what={what} />
    </div>
  );
}
