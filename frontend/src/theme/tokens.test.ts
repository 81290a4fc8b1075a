import { describe, expect, it } from "vitest";
import { customProperties, DARK, LIGHT, type Tokens } from "./tokens";

/** WCAG 2.1 relative luminance. */
function luminance(hex: string): number {
  const channels = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
  const [r, g, b] = channels.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

const TEXT: [keyof Tokens, (keyof Tokens)[]][] = [
  ["ink", ["page", "canvas", "card", "raised", "hotSoft", "goodSoft", "neutralSoft"]],
  ["dim", ["page", "canvas", "card", "raised", "hotSoft", "goodSoft", "neutralSoft"]],
  ["accent", ["page", "canvas", "card", "raised", "hotSoft", "goodSoft", "neutralSoft"]],
  ["hot", ["page", "card", "hotSoft"]],
  ["good", ["page", "card", "goodSoft", "hotSoft"]],
  ["warn", ["page", "warnSoft"]],
  ["violet", ["page", "violetSoft"]],
];

describe.each([["light", LIGHT], ["dark", DARK]])("%s", (_, tokens) => {
  it.each(TEXT.flatMap(([ink, grounds]) => grounds.map((ground): [string, string] => [ink, ground])))("%s on %s can be read", (ink, ground) => {
    expect(contrast(tokens[ink as keyof Tokens], tokens[ground as keyof Tokens])).toBeGreaterThanOrEqual(4.5);
  });
  it("marks can be told from their ground", () => {
    for (const mark of ["bar", "hotBar", "goodBar"] as const) expect(contrast(tokens[mark], tokens.card)).toBeGreaterThanOrEqual(3);
  });
});

it("become custom properties", () => expect(customProperties(LIGHT)).toContain("--hot-soft:#fff3ea"));
