/** What the tab knows of the page around it: TensorBoard's theme, its address bar and its messages. */
import { parseHash, writeHash, type Selection } from "./selection";

/** The page that holds the frame; the frame itself when the tab stands alone or may not look outside. */
export function outerWindow(frame: Window): Window {
  try {
    void frame.parent.document.body;
    return frame.parent;
  } catch {
    return frame; // Embedded from another origin.
  }
}

export type Theme = "light" | "dark";

/** Follow TensorBoard's theme, which is a class of its body; standing alone, the system's. */
export function watchTheme(frame: Window, apply: (theme: Theme) => void): void {
  const outer = outerWindow(frame);
  if (outer === frame) {
    const system = frame.matchMedia("(prefers-color-scheme: dark)");
    const follow = () => apply(system.matches ? "dark" : "light");
    system.addEventListener("change", follow);
    follow();
    return;
  }
  const body = outer.document.body;
  const follow = () => apply(body.classList.contains("dark-mode") ? "dark" : "light");
  // The frame's own constructor: the observer must not outlive it.
  new MutationObserver(follow).observe(body, { attributes: true, attributeFilter: ["class"] });
  follow();
}

export function readSelection(frame: Window): Selection {
  return parseHash(outerWindow(frame).location.hash);
}

/** Write the selection into the address bar without an entry in the history. */
export function saveSelection(frame: Window, selection: Selection): void {
  const { history, location } = outerWindow(frame);
  const hash = writeHash(location.hash, selection);
  if (hash !== location.hash.replace(/^#/, "")) history.replaceState(history.state, "", `#${hash}`);
}

interface Message {
  readonly type: string;
  readonly id: number;
  readonly isReply: boolean;
}

/**
 * TensorBoard's message protocol, as far as the tab needs it: `DataReloaded` (the reload button, the reload
 * timer) and `RunsChanged`. Every message is answered, for TensorBoard waits for replies.
 */
export function onReload(frame: Window, callback: () => void): void {
  if (frame.parent === frame) return;
  const channel = new MessageChannel();
  channel.port1.onmessage = (event: MessageEvent<unknown>) => {
    if (typeof event.data !== "string") return;
    const message = JSON.parse(event.data) as Message;
    if (message.isReply) return;
    channel.port1.postMessage(JSON.stringify({ type: message.type, id: message.id, payload: null, error: null, isReply: true }));
    if (message.type === "experimental.DataReloaded" || message.type === "experimental.RunsChanged") callback();
  };
  frame.parent.postMessage("experimental.bootstrap", frame.location.origin, [channel.port2]);
}
