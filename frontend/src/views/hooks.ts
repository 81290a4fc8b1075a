import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";
import type { State, Store } from "../lib/store";

export function useStore(store: Store): State {
  const [state, setState] = useState(store.state);
  useLayoutEffect(() => {
    setState(store.state);
    return store.subscribe(setState);
  }, [store]);
  return state;
}

/** Inner size of an element, in CSS pixels, kept up to date; null until it is laid out. */
export function useSize(ref: RefObject<HTMLElement | null>): { width: number; height: number } | null {
  const [size, setSize] = useState<{ width: number; height: number } | null>(null);
  useLayoutEffect(() => {
    const element = ref.current;
    if (element === null || typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = element;
      // A hidden tab has no size: keep the drawing of before.
      if (width > 0) setSize((old) => (old?.width === width && old.height === height ? old : { width, height }));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [ref]);
  return size;
}

/** The present, Unix seconds, again every `periodS` seconds while `ticking`. */
export function useNow(periodS: number, ticking: boolean): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    setNow(Date.now() / 1000);
    if (!ticking) return;
    const timer = setInterval(() => setNow(Date.now() / 1000), periodS * 1000);
    return () => clearInterval(timer);
  }, [periodS, ticking]);
  return now;
}

/** Whether a media query holds. */
export function useMedia(query: string): boolean {
  const [holds, setHolds] = useState(() => window.matchMedia?.(query).matches ?? true);
  useEffect(() => {
    if (!window.matchMedia) return;
    const list = window.matchMedia(query);
    const follow = () => setHolds(list.matches);
    follow();
    list.addEventListener("change", follow);
    return () => list.removeEventListener("change", follow);
  }, [query]);
  return holds;
}
