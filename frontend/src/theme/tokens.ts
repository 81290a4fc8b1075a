/** The colours of both themes, as data. Text on its own background keeps a contrast of 4.5 or more (tokens.test.ts). */

export interface Tokens {
  /** Page; canvas behind the graph; cards. */
  readonly page: string;
  readonly canvas: string;
  readonly card: string;
  readonly raised: string;
  readonly ink: string;
  readonly dim: string;
  readonly line: string;
  readonly track: string;
  readonly edge: string;
  /** Links, focus, capacity bars. */
  readonly accent: string;
  readonly bar: string;
  /** What binds, what waits. */
  readonly hot: string;
  readonly hotBar: string;
  readonly hotSoft: string;
  /** What helps: suggestions, headroom. */
  readonly good: string;
  readonly goodBar: string;
  readonly goodSoft: string;
  readonly warn: string;
  readonly warnSoft: string;
  /** Memory, injected operators. */
  readonly violet: string;
  readonly violetSoft: string;
  readonly neutralSoft: string;
}

export const LIGHT: Tokens = {
  page: "#ffffff",
  canvas: "#f6f7f9",
  card: "#ffffff",
  raised: "#f3f5f7",
  ink: "#1a1f26",
  dim: "#58616d",
  line: "#dde2e8",
  track: "#e4e8ed",
  edge: "#9aa5b1",
  accent: "#1d5fd1",
  bar: "#4482e6",
  hot: "#b03a06",
  hotBar: "#e8590c",
  hotSoft: "#fff3ea",
  good: "#14703f",
  goodBar: "#2b9e5c",
  goodSoft: "#ebf8f0",
  warn: "#805300",
  warnSoft: "#fff6dc",
  violet: "#6b3fb0",
  violetSoft: "#f3effb",
  neutralSoft: "#f1f4f8",
};

export const DARK: Tokens = {
  page: "#202327",
  canvas: "#191c1f",
  card: "#272b30",
  raised: "#2b3036",
  ink: "#e9ecef",
  dim: "#a9b2bd",
  line: "#3b424a",
  track: "#3a4149",
  edge: "#6d7783",
  accent: "#8ab4ff",
  bar: "#5b93ee",
  hot: "#ffa270",
  hotBar: "#f2762e",
  hotSoft: "#3a2517",
  good: "#7ddaa5",
  goodBar: "#3fae74",
  goodSoft: "#183325",
  warn: "#f2c75c",
  warnSoft: "#382e14",
  violet: "#c3a6f5",
  violetSoft: "#2e2840",
  neutralSoft: "#272c33",
};

/** The tokens as CSS custom properties: `hotSoft` is `--hot-soft`. */
export function customProperties(tokens: Tokens): string {
  return Object.entries(tokens)
    .map(([name, value]) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}:${value}`)
    .join(";");
}
