import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { frameVisibility, Poller, type Visibility } from "./poll";

class Switch implements Visibility {
  visible = true;
  private callbacks = new Set<() => void>();
  shown = () => this.visible;
  onChange(callback: () => void) {
    this.callbacks.add(callback);
    return () => this.callbacks.delete(callback);
  }
  turn(visible: boolean) {
    this.visible = visible;
    this.callbacks.forEach((callback) => callback());
  }
}

describe("Poller", () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  function started(task = vi.fn(async () => undefined)) {
    const visibility = new Switch();
    const poller = new Poller(task, 5000, visibility);
    poller.start();
    return { task, visibility, poller };
  }

  it("runs at once and then every interval", async () => {
    const { task } = started();
    await vi.advanceTimersByTimeAsync(0);
    expect(task).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(15_000);
    expect(task).toHaveBeenCalledTimes(4);
  });

  it("does nothing while hidden, and catches up on return", async () => {
    const { task, visibility } = started();
    await vi.advanceTimersByTimeAsync(0);
    visibility.turn(false);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(task).toHaveBeenCalledTimes(1);
    expect(vi.getTimerCount()).toBe(0);
    visibility.turn(true);
    await vi.advanceTimersByTimeAsync(0);
    expect(task).toHaveBeenCalledTimes(2);
  });

  it("does not ask again at once when hidden only for a moment", async () => {
    const { task, visibility } = started();
    await vi.advanceTimersByTimeAsync(1000);
    visibility.turn(false);
    visibility.turn(true);
    await vi.advanceTimersByTimeAsync(3000);
    expect(task).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(1000);
    expect(task).toHaveBeenCalledTimes(2);
  });

  it("never runs twice at a time", async () => {
    let finish: () => void = () => undefined;
    const slow = vi.fn(() => new Promise<undefined>((resolve) => (finish = () => resolve(undefined))));
    const { visibility } = started(slow);
    await vi.advanceTimersByTimeAsync(20_000);
    visibility.turn(true);
    await vi.advanceTimersByTimeAsync(0);
    expect(slow).toHaveBeenCalledTimes(1);
    finish();
    await vi.advanceTimersByTimeAsync(5000);
    expect(slow).toHaveBeenCalledTimes(2);
  });

  it("stops", async () => {
    const { task, poller, visibility } = started();
    await vi.advanceTimersByTimeAsync(0);
    poller.stop();
    visibility.turn(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(task).toHaveBeenCalledTimes(1);
  });
});

describe("frameVisibility", () => {
  it("takes a frame without height for hidden, and hears of its return", () => {
    const changed = vi.fn();
    const visibility = frameVisibility(window);
    const stop = visibility.onChange(changed);
    expect(visibility.shown()).toBe(true);
    const height = window.innerHeight;
    window.innerHeight = 0;
    window.dispatchEvent(new Event("resize"));
    expect(visibility.shown()).toBe(false);
    expect(changed).toHaveBeenCalledTimes(1);
    stop();
    window.innerHeight = height;
    window.dispatchEvent(new Event("resize"));
    expect(changed).toHaveBeenCalledTimes(1);
  });
});
