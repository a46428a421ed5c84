// Filters and options of jobs, in words.
import type { ComponentChildren } from "preact";
import { count, plural, reason, span } from "../format";
import type { Job } from "../types";
import { When } from "../ui/parts";

/** verbs are the actions of jobs. */
export const verbs: Record<string, string> = { replay: "Replay", move: "Move", discard: "Discard", restore: "Restore", edit: "Edit" };

/** filterLabels are the filters of a search, as what comes before their value. */
export const filterLabels: Record<string, string> = {
  group: "group", reason: "reason", source: "died in", exchange: "origin exchange", key: "origin key", class: "error class",
  error: "error text", older_than: "older than", newer_than: "newer than", died: "times died", size: "size", job: "job",
  message_id: "message ID", type: "type", body: "body",
};

const sentences: Record<string, (v: string) => ComponentChildren> = {
  reason: (v) => <>they died because: {reason(v)}</>,
  source: (v) => <>they died in the queue <b class="name">{v}</b></>,
  exchange: (v) => <>they were first published to <b class="name">{v || "(default exchange)"}</b></>,
  key: (v) => <>their first routing key is <code class="name">{v}</code></>,
  class: (v) => <>the class of the error is <code class="name">{v}</code></>,
  error: (v) => <>the error text matches <code class="name">{v}</code></>,
  older_than: (v) => <>they died longer than {v} ago</>,
  newer_than: (v) => <>they died in the last {v}</>,
  died: (v) => <>times they died: {v}</>,
  size: (v) => <>their size in bytes: {v}</>,
  job: (v) => <>job {v} has sent them</>,
  message_id: (v) => <>their message ID is <code class="name">{v}</code></>,
  type: (v) => <>their type is <code class="name">{v}</code></>,
  body: (v) => <>their body contains <code class="name">{v}</code></>,
  where: (v) => <>where <code class="name">{v}</code></>,
};

/** FilterWords says which letters a job takes; group is what stands for the filter by group. */
export function FilterWords(props: { job: Job; group?: ComponentChildren }) {
  const { job } = props;
  if (job.ids) return <>{plural(job.ids, "letter")} that were selected one by one</>;
  const parts = Object.entries(job.filter ?? {}).flatMap(([name, value]) => [value].flat().map((v) => [name, v] as const));
  if (parts.length === 0) return <>all letters</>;
  return <ul class="plain">{parts.map(([name, v]) => <li key={name + v}>
    {name === "group" ? props.group ?? <>they are of the group {v}</> : sentences[name]?.(v) ?? `${name}: ${v}`}
  </li>)}</ul>;
}

interface Canary { first: number; wait_ms: number; percent: number; }

/** optionWords are the options of a job; those that say nothing are left out. */
export function optionWords(job: Job): ComponentChildren[] {
  const words: ComponentChildren[] = [];
  const known: Record<string, (v: never) => void> = {
    to_queue: (v: string) => words.push(<>to the queue <b class="name">{v}</b></>),
    to_exchange: (v: string) => words.push(<>to the exchange <b class="name">{v || "(default exchange)"}</b></>),
    routing_key: (v: string) => words.push(<>with the routing key <code class="name">{v || "(empty)"}</code></>),
    rate: (v: number) => words.push(`${count(v)} a second at most`),
    order: (v: string) => words.push(
      job.options?.["order_by"] ? (v === "newest" ? "the highest first" : "the lowest first") : v === "newest" ? "newest first" : "oldest first"),
    order_by: (v: string) => words.push(<>in the order of <code class="name">{v}</code></>),
    limit: (v: number) => words.push(`${plural(v, "letter")} at most`),
    stagger_ms: (v: number) => words.push(`letters to one place go ${span(v)} apart`),
    schedule_ms: (v: number) => words.push(<>beginning <When at={v} clock /></>),
    canary: (c: Canary) => words.push(
      `${count(c.first)} first, then a wait of ${span(c.wait_ms)}; it stops if more than ${c.percent} % of them have died again, or none was consumed, by then`),
    max_replays: (v: number) => words.push(
      v === 0 ? "however often they came back" : `letters that came back ${plural(v, "time")} stay`),
  };
  const options = job.options ?? {};
  if (job.action === "replay" && options["to_queue"] === undefined && options["to_exchange"] === undefined) {
    words.push("to where they were first published");
  }
  for (const [name, v] of Object.entries(options)) {
    const say = known[name];
    if (v === undefined || v === null || v === "" && name !== "to_exchange" && name !== "routing_key") continue;
    if (say) say(v as never); else words.push(`${name.replaceAll("_", " ")}: ${typeof v === "string" ? v : JSON.stringify(v)}`);
  }
  return words;
}
