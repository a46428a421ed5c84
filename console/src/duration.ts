// Lengths of time as people write them: 90s, 5m, 1h 30m, 2d; a bare number is milliseconds, as in arguments of queues.

const units: Record<string, number> = { ms: 1, s: 1000, sec: 1000, m: 60000, min: 60000, h: 3600000, d: 86400000 };

/** duration reads a length of time into whole milliseconds; undefined if the text is empty. what names the field in its error. */
export function duration(text: string, what: string): number | undefined {
  const t = text.trim().toLowerCase();
  if (t === "") return undefined;
  const wrong = new Error(`${what} must be a time such as 30s, 5m, 1h 30m or 2d, not “${text}”.`);
  if (/^\d+$/.test(t)) return safe(Number(t), wrong);
  if (!/^(\d+(\.\d+)?\s*(ms|sec|s|min|m|h|d)\s*)+$/.test(t)) throw wrong;
  let sum = 0;
  for (const [, n, unit] of t.matchAll(/(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d)/g)) sum += Number(n) * units[unit!]!;
  return safe(Math.round(sum), wrong);
}

function safe(n: number, wrong: Error): number { if (!Number.isSafeInteger(n)) throw wrong; return n; }

/** durationText writes milliseconds so that duration reads the same: 5400000 is "1h 30m". */
export function durationText(ms: number | undefined | null): string {
  if (ms === undefined || ms === null) return "";
  if (ms === 0) return "0s";
  const parts: string[] = [];
  for (const [unit, n] of [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000], ["ms", 1]] as const) {
    if (ms >= n) { parts.push(`${Math.floor(ms / n)}${unit}`); ms %= n; }
  }
  return parts.join(" ");
}
