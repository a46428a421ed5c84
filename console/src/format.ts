// Numbers, sizes and times for readers.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(n: number | null | undefined): string { return n === undefined || n === null ? "–" : whole.format(n); }

export function rate(n: number | undefined): string {
  if (n === undefined) return "–";
  const a = Math.max(0, n);
  return (a >= 100 ? whole.format(a) : a > 0 && a < 0.1 ? "<0.1" : short.format(a)) + "/s";
}

export function bytes(n: number | null | undefined): string {
  if (n === undefined || n === null) return "–";
  if (n < 1024) return `${whole.format(n)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = -1;
  do { n /= 1024; i++; } while (n >= 1023.5 && i < units.length - 1);
  return `${n >= 100 ? whole.format(n) : short.format(n)} ${units[i]}`;
}

/** span is a length of time in two units at most. */
export function span(ms: number): string {
  const s = Math.round(ms / 1000);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  const two = (n: number, one: string, rest: number, other: string) => rest ? `${n} ${one} ${rest} ${other}` : `${n} ${one}`;
  if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return two(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

/** age is how long ago, in one unit. */
export function age(at: number, now = Date.now()): string {
  const s = Math.max(0, Math.round((now - at) / 1000));
  if (s < 5) return "just now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

const full = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, timeZoneName: "short" });
const day = new Intl.DateTimeFormat("en-GB", { month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** exact is a moment in the reader's zone, to the millisecond, and in UTC. */
export function exact(at: number): string { return `${full.format(at)} (${new Date(at).toISOString()})`; }
export function clock(at: number): string { return day.format(at); }

export function plural(n: number, one: string, many = one + "s"): string { return `${count(n)} ${n === 1 ? one : many}`; }

/** ofClient is the name of a connection, channel or session without the node's own end, for lists. */
export function ofClient(name: string): string { return name.replace(/ -> [^ ,]+/, ""); }

/** argument is a value of a table on one line. */
export function argument(v: unknown): string { return typeof v === "string" ? v : JSON.stringify(v); }

/** reasons are the reasons of deaths in words. */
export const reasons: Record<string, string> = {
  rejected: "rejected by a consumer", expired: "expired (TTL)", maxlen: "queue was full", delivery_limit: "failed too often", maxlenbytes: "queue was full",
};
export function reason(r: string): string { return reasons[r] ?? r; }
