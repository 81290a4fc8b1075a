/** Repeats a task while somebody can see the tab, and only then. */

/** Whether the tab can be seen, and when that may have changed. */
export interface Visibility {
  shown(): boolean;
  /** Calls back whenever `shown` may answer otherwise; returns how to stop. */
  onChange(callback: () => void): () => void;
}

/** TensorBoard hides a plugin by giving its frame no height; the browser hides a page by visibilityState. */
export function frameVisibility(frame: Window): Visibility {
  return {
    shown: () => frame.document.visibilityState === "visible" && frame.innerHeight > 0,
    onChange(callback) {
      frame.addEventListener("resize", callback);
      frame.document.addEventListener("visibilitychange", callback);
      return () => {
        frame.removeEventListener("resize", callback);
        frame.document.removeEventListener("visibilitychange", callback);
      };
    },
  };
}

/**
 * Runs `task` at once and then `intervalMs` after it has ended, never twice at a time. While hidden nothing
 * runs and no timer is set; on return the task runs at once if its time has passed.
 */
export class Poller {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running = false;
  private endedAt = -Infinity;
  private stopListening: (() => void) | undefined;

  constructor(
    private readonly task: () => Promise<void>,
    private readonly intervalMs: number,
    private readonly visibility: Visibility,
  ) {}

  start(): void {
    this.stopListening = this.visibility.onChange(() => this.schedule());
    this.schedule();
  }

  stop(): void {
    this.stopListening?.();
    this.stopListening = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private schedule(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.running || this.stopListening === undefined || !this.visibility.shown()) return;
    const wait = Math.max(0, this.endedAt + this.intervalMs - performance.now());
    this.timer = setTimeout(() => void this.run(), wait);
  }

  private async run(): Promise<void> {
    this.running = true;
    try {
      await this.task();
    } finally {
      this.running = false;
      this.endedAt = performance.now();
      this.schedule();
    }
  }
}
