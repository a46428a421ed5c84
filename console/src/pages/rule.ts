// A rule in words, and what a form makes of it.
import { duration, durationText } from "../duration";
import { plural, reason, span } from "../format";
import { pattern as compile } from "../regexp";
import type { Filter, Rule, RuleAction } from "../types";

export const ruleActions: [RuleAction, string, string][] = [
  ["retry", "Retry", "The letter goes back where it was first published, after a while."],
  ["send", "Send", "The letter goes to a queue or an exchange at once."],
  ["discard", "Discard", "The letter goes to bartleby.archive, which keeps it for 7 days."],
  ["hold", "Hold", "The letter stays where it lies, and no later rule touches it."],
  ["webhook", "Call a webhook", "A webhook is told of the letter, which stays where it lies."],
];

/** the filters that a rule may have, with what they mean to it. */
export const ruleFilters: { key: Exclude<keyof Filter, "where">; label: string; help: string; regex?: boolean; first?: boolean }[] = [
  { key: "class", label: "Error class", help: "Such as PaymentTimeout; the last part of its name is enough", first: true },
  { key: "error", label: "Error text", help: "Regular expression on what the consumer said", regex: true, first: true },
  { key: "source", label: "Died in queue", help: "The queue in which it died last", first: true },
  { key: "died", label: "Times died", help: "A number or a bound, such as 1 or >=3", first: true },
  { key: "type", label: "Message type", help: "The property type, or what the framework calls it" },
  { key: "exchange", label: "Origin exchange", help: "Where it was first published" },
  { key: "key", label: "Origin key", help: "The routing key with which it was first published" },
  { key: "size", label: "Size in bytes", help: "A number or a bound, such as >=1024" },
  { key: "older_than", label: "Died longer ago than", help: "Such as 90s, 1h, 2d" },
  { key: "newer_than", label: "Died in the last", help: "Such as 90s, 1h, 2d" },
  { key: "message_id", label: "Message ID", help: "The property message_id" },
  { key: "body", label: "Body contains", help: "Text; costs more than the other conditions" },
];

/** words of what letters a rule is for. */
export function condition(r: Rule): string {
  const m = r.match ?? {}, parts: string[] = [];
  for (const f of ruleFilters) {
    const v = m[f.key];
    if (!v) continue;
    const name = f.label.toLowerCase();
    parts.push(f.regex ? `${name} matches ${v}` : f.key === "died" || f.key === "size" ? `${name} ${v}` : f.key === "older_than" || f.key === "newer_than" || f.key === "body" ? `${name} ${v}` : `${name} is ${v}`);
  }
  if (m.reason) parts.unshift(reason(m.reason));
  for (const w of m.where ?? []) parts.push(w);
  return parts.join(", ");
}

/** words of what a rule does. */
export function deed(r: Rule): string {
  switch (r.action) {
    case "retry": {
      const after = r.after_ms ?? 0, factor = r.factor ?? 1;
      return `retry after ${span(after)}${factor > 1 ? `, then ${factor === 2 ? "twice" : `${factor} times`} as long each time${r.max_ms ? `, ${span(r.max_ms)} at most` : ""}` : ""}${r.jitter_percent ? `, give or take ${r.jitter_percent} %` : ""}${r.max_times ? `, ${plural(r.max_times, "time")} at most` : ""}${r.parked ? ", parked ones too" : ""}`;
    }
    case "send": return r.to_queue ? `send to the queue ${r.to_queue}` : `send to the exchange ${r.to_exchange || "(default exchange)"}${r.routing_key ? ` with the key ${r.routing_key}` : ""}`;
    case "discard": return "discard into the archive";
    case "hold": return "hold: leave it where it lies";
    case "webhook": return `call the webhook ${r.webhook ?? ""}`;
  }
}

/** leads says whether the letter itself says where the rule sends it. */
export function leads(r: Rule): boolean {
  if (r.action === "retry") return !r.to_queue && (r.to_exchange === undefined || r.routing_key === undefined);
  return r.action === "send" && r.to_exchange !== undefined && r.routing_key === undefined;
}

/** defaultTimes is how often a rule sends a letter if it does not say. */
export const defaultTimes = { retry: 3, send: 100 };

/** waits are the first waits of a retry, in milliseconds, without chance, and how many there are in all. */
export function waits(r: Rule, show = 6): { first: number[]; times: number } {
  const factor = Math.max(1, r.factor ?? 1), times = r.max_times || defaultTimes.retry, first: number[] = [];
  for (let i = 0, w = r.after_ms ?? 0; i < Math.min(show, times); i++, w *= factor) first.push(Math.min(w, r.max_ms ?? Infinity));
  return { first, times };
}

const settings = ["name", "on", "queues", "match", "action", "after_ms", "factor", "max_ms", "jitter_percent", "max_times", "to_queue", "to_exchange", "routing_key", "parked", "webhook", "last"] as const;

/** settingsOf is a rule without what the node counts of it: what is sent. */
export function settingsOf(r: Rule): Rule {
  return Object.fromEntries(settings.filter((k) => r[k] !== undefined).map((k) => [k, r[k]])) as unknown as Rule;
}

/** Entered is a rule as it is typed. */
export interface Entered { name: string; on: boolean; queues: string; reason: string; match: Record<string, string>; where: string; action: RuleAction; after: string; factor: string; max: string; jitter: string; times: string; sends: string; target: "queue" | "exchange"; queue: string; exchange: string; key: string; parked: boolean; webhook: string; last: boolean; }

export function enter(r?: Rule): Entered {
  const m = r?.match ?? {};
  return {
    name: r?.name ?? "", on: r?.on ?? false, queues: r?.queues ?? "", reason: m.reason ?? "", match: Object.fromEntries(ruleFilters.map((f) => [f.key, m[f.key] ?? ""])), where: (m.where ?? []).join("\n"), action: r?.action ?? "retry",
    after: r ? durationText(r.after_ms) : "30s", factor: r ? String(r.factor ?? 1) : "2", max: r ? durationText(r.max_ms) : "1h", jitter: r ? String(r.jitter_percent ?? "") : "10", times: r ? String(r.max_times ?? "") : "5", sends: r?.action === "send" ? String(r.max_times ?? "") : "",
    target: r?.to_exchange !== undefined && !r.to_queue ? "exchange" : "queue", queue: r?.to_queue ?? "", exchange: r?.to_exchange ?? "", key: r?.routing_key ?? "", parked: r?.parked ?? false, webhook: r?.webhook ?? "", last: r?.last ?? false,
  };
}

export type Problems = Record<string, string>;

/** read makes a rule of what is entered, and says by field what is wrong. missing are fields that are only not filled in yet. */
export function read(e: Entered, others: string[]): { rule: Rule; problems: Problems; missing: Problems } {
  const problems: Problems = {}, missing: Problems = {};
  const take = <T>(key: string, f: () => T): T | undefined => { try { return f(); } catch (x) { problems[key] = (x as Error).message; return undefined; } };
  const pattern = (key: string, text: string) => take(key, () => { compile(text); });
  const number = (key: string, text: string, what: string, least: number, most: number, wholeOnly: boolean) => take(key, () => {
    if (text.trim() === "") return undefined;
    const n = Number(text);
    if (!Number.isFinite(n) || wholeOnly && !Number.isInteger(n) || n < least || n > most) throw new Error(`${what} must be a ${wholeOnly ? "whole " : ""}number from ${least} to ${most.toLocaleString("en")}, not “${text}”.`);
    return n;
  });
  if (e.name.trim() === "") missing["name"] = "Enter a name."; else if (others.includes(e.name.trim())) problems["name"] = `There is another rule with the name ${e.name.trim()}.`;
  pattern("queues", e.queues);
  const match: Filter = {};
  if (e.reason) match.reason = e.reason;
  for (const f of ruleFilters) {
    const v = (e.match[f.key] ?? "").trim();
    if (v === "") continue;
    if (f.regex) pattern(f.key, v);
    if ((f.key === "died" || f.key === "size") && !/^(<=|>=|<|>|=|!=)?\s*\d+$/.test(v)) problems[f.key] = `${f.label} must be a number or a bound such as >=3, not “${v}”.`;
    if (f.key === "older_than" || f.key === "newer_than") take(f.key, () => duration(v, f.label));
    match[f.key] = v;
  }
  const where = e.where.split("\n").map((w) => w.trim()).filter(Boolean);
  const odd = where.find((w) => !/^(header|property)\../.test(w));
  if (odd) problems["where"] = `A condition begins with header. or property., unlike “${odd}”.`;
  if (where.length) match.where = where;
  const rule: Rule = { name: e.name.trim(), on: e.on, queues: e.queues, match, action: e.action };
  if (e.action === "webhook") rule.last = e.last; // a letter that was moved is not there for the next rule
  if (e.action === "retry") {
    rule.after_ms = take("after", () => duration(e.after, "The first wait"));
    if (rule.after_ms === undefined && !problems["after"]) missing["after"] = "Enter how long a letter waits.";
    rule.factor = number("factor", e.factor, "The factor", 1, 100, false) ?? 1;
    rule.max_ms = take("max", () => duration(e.max, "The longest wait"));
    if (rule.max_ms !== undefined && rule.after_ms !== undefined && rule.max_ms < rule.after_ms) problems["max"] = "The longest wait is shorter than the first.";
    rule.jitter_percent = number("jitter", e.jitter, "Chance", 0, 100, true);
    rule.max_times = number("times", e.times, "Times", 1, 1000, true);
  } else if (e.action === "send" && e.target === "queue") {
    rule.to_queue = e.queue;
    if (e.queue === "") missing["queue"] = "Enter the queue that gets the letters.";
  } else if (e.action === "send") {
    rule.to_exchange = e.exchange;
    if (e.key !== "") rule.routing_key = e.key;
    if (e.exchange === "" && e.key === "") missing["key"] = "The default exchange needs a routing key: the name of a queue.";
  } else if (e.action === "webhook") {
    rule.webhook = e.webhook;
    if (e.webhook === "") missing["webhook"] = "Enter the name of a webhook.";
  }
  if (e.action === "send") rule.max_times = number("sends", e.sends, "Times", 1, 1000, true);
  if (leads(rule) && e.parked) rule.parked = true;
  for (const k of Object.keys(rule) as (keyof Rule)[]) if (rule[k] === undefined) delete rule[k];
  return { rule, problems, missing };
}
