import { describe, expect, it } from "vitest";
import { ago, bytes, bytesPerSecond, cores, count, duration, exact, factor, gain, NONE, number, percent, quotient, rate, stepsPerSecond } from "./format";

describe("number", () => {
  it.each([
    [0, "0"],
    [0.0004, "<0.001"],
    [0.0123, "0.0123"],
    [1.234, "1.23"],
    [9.996, "10.0"],
    [24.34, "24.3"],
    [99.96, "100"],
    [1204, "1,204"],
    [-2.5, "−2.50"],
  ])("%f is %s", (value, text) => expect(number(value)).toBe(text));
});

describe("rates", () => {
  it("have their unit", () => expect(stepsPerSecond(24.31)).toBe("24.3 steps/s"));
  it.each([
    [14_200, "14,200"],
    [125_000, "125k"],
    [3_210_000, "3.21M"],
  ])("%f is shortened to %s", (value, text) => expect(rate(value)).toBe(text));
});

describe("duration", () => {
  it.each([
    [85e-9, "85.0 ns"],
    [12.3e-6, "12.3 µs"],
    [0.00033, "330 µs"],
    [0.0263, "26.3 ms"],
    [0.99996, "1.00 s"],
    [1.5, "1.50 s"],
    [49.5, "49.5 s"],
    [60, "1 min"],
    [250, "4 min 10 s"],
    [7500, "2 h 5 min"],
    [400_000, "4 days"],
  ])("%f s is %s", (seconds, text) => expect(duration(seconds)).toBe(text));
});

describe("bytes", () => {
  it.each([
    [512, "512 B"],
    [1536, "1.50 KiB"],
    [1023.9 * 1024, "1.00 MiB"],
    [3.1 * 2 ** 30, "3.10 GiB"],
  ])("%f is %s", (value, text) => expect(bytes(value)).toBe(text));
  it.each([
    [96, "96 B/s"],
    [31.04e6, "31.0 MB/s"],
    [999_900, "1.00 MB/s"],
  ])("%f per second is %s", (value, text) => expect(bytesPerSecond(value)).toBe(text));
});

describe("shares and quotients", () => {
  it.each([
    [0.64, "64%"],
    [0, "0%"],
    [0.004, "<1%"],
    [1, "100%"],
  ])("%f is %s", (value, text) => expect(percent(value)).toBe(text));
  it("a gain is a percentage until it doubles", () => {
    expect(gain(0.24)).toBe("+24%");
    expect(gain(-0.1)).toBe("−10%");
    expect(gain(1.76)).toBe("2.8×");
  });
  it("a factor near one keeps two decimals", () => {
    expect([1.04, 2.761, 83.2].map(factor)).toEqual(["1.04×", "2.8×", "83×"]);
    expect(quotient(0.9712)).toBe("0.97×");
  });
  it("cores are cores but for one", () => expect([0.001, 0.98, 1, 14.7].map(cores)).toEqual(["<0.01 cores", "0.98 cores", "1.00 core", "15 cores"]));
  it("what was set has no decimals", () => expect([3, 1204, 2.5].map(exact)).toEqual(["3", "1,204", "2.50"]));
});

describe("what is not there", () => {
  it("is a dash everywhere, NaN and infinity too", () => {
    for (const format of [number, exact, rate, stepsPerSecond, duration, bytes, bytesPerSecond, percent, gain, factor, quotient, count, cores]) {
      expect([null, undefined, NaN, Infinity].map(format)).toEqual([NONE, NONE, NONE, NONE]);
    }
  });
});

describe("ago", () => {
  it.each([
    [0.4, "just now"],
    [2.9, "2 s ago"],
    [200, "3 min ago"],
    [20_000, "5 h ago"],
    [1_100_000, "12 days ago"],
  ])("%f s is %s", (seconds, text) => expect(ago(seconds)).toBe(text));
});
