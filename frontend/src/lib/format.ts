/** Numbers as people read them. Every function answers {@link NONE} for null: the schema's "unknown" or "infinite". */

/** What stands for a number that is not there; the view adds a tooltip that says why. */
export const NONE = "–";

const MINUS = "−";

function present(value: number | null | undefined): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Three significant digits, thousands separated, no exponent: 0.0123, 1.23, 24.3, 1,240. */
export function number(value: number | null | undefined): string {
  if (!present(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  const sign = value < 0 ? MINUS : "";
  if (size >= 100) return sign + Math.round(size).toLocaleString("en-US");
  if (size < 0.001) return sign + "<0.001";
  // toPrecision first, so that 9.996 becomes 10.0 and not 10.00.
  const rounded = Number(size.toPrecision(3));
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(rounded)));
  return sign + rounded.toFixed(decimals);
}

/** A number that was set, not measured: whole ones without decimals. */
export function exact(value: number | null | undefined): string {
  return present(value) && Number.isInteger(value) ? count(value) : number(value);
}

/** A rate in root elements per second, without its unit; large ones shortened: 24.3, 1,240, 125k, 3.2M. */
export function rate(value: number | null | undefined): string {
  if (!present(value)) return NONE;
  if (value >= 999_500) return `${number(value / 1e6)}M`;
  if (value >= 99_950) return `${number(value / 1e3)}k`;
  return number(value);
}

/** The same with its unit. */
export function stepsPerSecond(value: number | null | undefined): string {
  return present(value) ? `${rate(value)} steps/s` : NONE;
}

/** Seconds in the unit that fits: 85 ns, 12.3 µs, 26.3 ms, 1.50 s, 4 min 10 s, 2 h 5 min. */
export function duration(seconds: number | null | undefined): string {
  if (!present(seconds)) return NONE;
  if (seconds === 0) return "0 s";
  const size = Math.abs(seconds);
  if (size < 999.5e-9) return `${number(seconds * 1e9)} ns`;
  if (size < 999.5e-6) return `${number(seconds * 1e6)} µs`;
  if (size < 0.9995) return `${number(seconds * 1e3)} ms`;
  if (size < 59.95) return `${number(seconds)} s`;
  return longDuration(seconds);
}

function longDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} days`;
}

/** How long ago, coarse: "just now", "2 s ago", "3 min ago", "5 h ago", "12 days ago". */
export function ago(seconds: number): string {
  if (seconds < 1) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} days ago`;
}

function scaled(value: number, base: number, units: readonly string[]): string {
  let size = Math.abs(value);
  let index = 0;
  // 999.5 would print as "1,000 kB".
  while (size >= base * 0.9995 && index < units.length - 1) {
    size /= base;
    index += 1;
  }
  const text = index === 0 ? String(Math.round(size)) : number(size);
  return `${value < 0 ? MINUS : ""}${text} ${units[index]}`;
}

/** Memory, in binary units: 512 B, 1.50 KiB, 3.10 GiB. */
export function bytes(value: number | null | undefined): string {
  return present(value) ? scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) : NONE;
}

/** Bytes per second, in decimal units as disks and networks are sold: 31.0 MB/s. */
export function bytesPerSecond(value: number | null | undefined): string {
  return present(value) ? `${scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"])}/s` : NONE;
}

/** A share, 0 to 1: "64%", "<1%". */
export function percent(value: number | null | undefined): string {
  if (!present(value)) return NONE;
  if (value > 0 && value < 0.01) return "<1%";
  return `${Math.round(value * 100)}%`;
}

/** How many times as fast: "1.04×", "2.8×", "83×". */
export function factor(value: number | null | undefined): string {
  if (!present(value)) return NONE;
  const decimals = value < 1.5 ? 2 : value < 9.95 ? 1 : 0;
  return `${value.toFixed(decimals)}×`;
}

/** new / old − 1 as people say it: "+24%", "2.8×". */
export function gain(value: number | null | undefined): string {
  if (!present(value)) return NONE;
  if (value >= 1) return factor(value + 1);
  return `${value < 0 ? MINUS : "+"}${Math.round(Math.abs(value) * 100)}%`;
}

/** A quotient that ought to be 1, with two decimals: "0.97×". */
export function quotient(value: number | null | undefined): string {
  return present(value) ? `${value.toFixed(2)}×` : NONE;
}

/** A count: whole, thousands separated. */
export function count(value: number | null | undefined): string {
  return present(value) ? Math.round(value).toLocaleString("en-US") : NONE;
}

/** Cores in use: "0.98 cores", "1.00 core", "<0.01 cores", "12 cores". */
export function cores(value: number | null | undefined): string {
  if (!present(value)) return NONE;
  const text = value < 0.005 && value > 0 ? "<0.01" : value.toFixed(value < 10 ? 2 : 0);
  return `${text} ${text === "1.00" ? "core" : "cores"}`;
}

/** Time of day of a Unix time, seconds. */
export function clock(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}
