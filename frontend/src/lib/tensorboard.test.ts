import { afterEach, describe, expect, it, vi } from "vitest";
import { NOTHING_SELECTED } from "./selection";
import { onReload, outerWindow, readSelection, saveSelection, watchTheme } from "./tensorboard";

/** A frame in this page, as TensorBoard makes one. */
function frame(): Window {
  const element = document.createElement("iframe");
  document.body.append(element);
  return element.contentWindow!;
}

afterEach(() => {
  document.body.replaceChildren();
  document.body.className = "";
  history.replaceState(null, "", "#");
});

describe("theme", () => {
  it("follows the class of TensorBoard's body", async () => {
    const apply = vi.fn();
    watchTheme(frame(), apply);
    expect(apply).toHaveBeenLastCalledWith("light");
    document.body.classList.add("dark-mode");
    await vi.waitFor(() => expect(apply).toHaveBeenLastCalledWith("dark"));
    document.body.classList.remove("dark-mode");
    await vi.waitFor(() => expect(apply).toHaveBeenLastCalledWith("light"));
  });

  it("follows the system where the tab stands alone", () => {
    const apply = vi.fn();
    window.matchMedia = vi.fn(() => ({ matches: true, addEventListener: vi.fn() }) as unknown as MediaQueryList);
    watchTheme(window, apply);
    expect(apply).toHaveBeenLastCalledWith("dark");
  });
});

describe("address bar", () => {
  it("is the parent's, and keeps the history's length", () => {
    history.replaceState(null, "", "#plumber");
    const entries = history.length;
    const inner = frame();
    saveSelection(inner, { ...NOTHING_SELECTED, run: "fit" });
    expect(location.hash).toBe("#plumber&p.plumber.run=fit");
    expect(readSelection(inner).run).toBe("fit");
    expect(history.length).toBe(entries);
  });

  it("is the frame's own where the parent may not be seen", () => {
    const stranger = {
      get parent(): Window {
        throw new DOMException("cross-origin", "SecurityError");
      },
    } as Window;
    expect(outerWindow(stranger)).toBe(stranger);
  });
});

describe("messages", () => {
  it("answers every one and hears of reloads", () => {
    const sent: unknown[] = [];
    const reload = vi.fn();
    const ports = { port1: { onmessage: null as ((event: MessageEvent) => void) | null, postMessage: (text: string) => sent.push(JSON.parse(text)) }, port2: {} };
    vi.stubGlobal("MessageChannel", class { port1 = ports.port1; port2 = ports.port2; });
    const parent = { postMessage: vi.fn() };
    onReload({ parent, location: { origin: "http://tb" } } as unknown as Window, reload);
    expect(parent.postMessage).toHaveBeenCalledWith("experimental.bootstrap", "http://tb", [ports.port2]);
    const receive = (message: object) => ports.port1.onmessage!(new MessageEvent("message", { data: JSON.stringify(message) }));
    receive({ type: "experimental.DataReloaded", id: 7, isReply: false });
    receive({ type: "experimental.Other", id: 8, isReply: false });
    receive({ type: "experimental.GetRuns", id: 9, isReply: true });
    expect(reload).toHaveBeenCalledTimes(1);
    expect(sent).toMatchObject([{ id: 7, isReply: true }, { id: 8, isReply: true }]);
    vi.unstubAllGlobals();
  });
});
