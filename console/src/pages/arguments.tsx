// What queues and policies can be given by name, with what it means, and the form to choose from it.
import { useState } from "preact/hooks";
import type { Args } from "../types";
import { Area, Check, Select, Text } from "../ui/form";
import { Fold } from "../ui/parts";

export interface Arg {
  key: string; policy?: string; label: string; help: string; kind: "number" | "text" | "bool" | readonly string[]; group: "Dead letters" | "Limits" | "Retries" | "Delivery" | "Breaker";
  only?: "classic" | "quorum";
  /** of policies only: a number of the object that the key breaker has. */
  part?: "deaths" | "percent" | "window";
}

/** breaker is the policy key of which the form shows the parts. */
const breaker = "dead-letter-breaker";

export const args: Arg[] = [
  { key: "x-dead-letter-exchange", policy: "dead-letter-exchange", label: "Dead-letter exchange (DLX)", group: "Dead letters", kind: "text", help: "Messages that are rejected, expire or find no room go to this exchange; (default exchange) sends them to the queue that the key names. Without an exchange they are dropped, unless the virtual host has a default." },
  { key: "x-dead-letter-routing-key", policy: "dead-letter-routing-key", label: "Dead-letter key (DLK)", group: "Dead letters", kind: "text", help: "The routing key they get. Empty: they keep theirs. It needs a dead-letter exchange." },
  { key: "x-dead-letter-strategy", policy: "dead-letter-strategy", label: "Dead-letter strategy", group: "Dead letters", kind: ["at-most-once", "at-least-once"], only: "quorum", help: "at-least-once keeps a message until every target has it. It needs overflow reject-publish." },
  { key: "x-message-ttl", policy: "message-ttl", label: "Time to live (TTL)", group: "Limits", kind: "number", help: "Milliseconds that a message may wait. Then it dies." },
  { key: "x-expires", policy: "expires", label: "Queue expires", group: "Limits", kind: "number", help: "Milliseconds without a consumer or a get after which the queue is deleted, with its messages." },
  { key: "x-max-length", policy: "max-length", label: "Length limit", group: "Limits", kind: "number", help: "How many messages may be ready." },
  { key: "x-max-length-bytes", policy: "max-length-bytes", label: "Length limit in bytes", group: "Limits", kind: "number", help: "How many bytes the ready messages may have." },
  { key: "x-overflow", policy: "overflow", label: "When the limit is reached", group: "Limits", kind: ["drop-head", "reject-publish", "reject-publish-dlx"], help: "drop-head: the oldest message dies. reject-publish: new ones are refused." },
  { key: "x-max-priority", label: "Priorities", group: "Delivery", kind: "number", only: "classic", help: "The highest priority, 1 to 255. Few are enough: each costs memory." },
  { key: "x-single-active-consumer", label: "Single active consumer", group: "Delivery", kind: "bool", help: "One consumer at a time gets messages, another takes over when it leaves." },
  { key: "x-delivery-limit", policy: "delivery-limit", label: "Delivery limit", group: "Retries", kind: "number", help: "How often a message may fail before it dies." },
  { key: "x-delayed-retry-type", policy: "delayed-retry-type", label: "Delay failed messages", group: "Retries", kind: ["disabled", "all", "failed", "returned"], help: "Which returned messages wait before they are delivered again." },
  { key: "x-delayed-retry-min", policy: "delayed-retry-min", label: "Shortest delay", group: "Retries", kind: "number", help: "Milliseconds that the first retry waits." },
  { key: "x-delayed-retry-max", policy: "delayed-retry-max", label: "Longest delay", group: "Retries", kind: "number", help: "Milliseconds that a retry waits at most." },
  { key: "x-delayed-retry-multiplier", policy: "delayed-retry-multiplier", label: "Factor of the delay", group: "Retries", kind: "number", help: "Each delay is so many times the one before. Empty: it grows by the shortest delay." },
  { key: "deaths", policy: breaker, part: "deaths", label: "Deaths", group: "Breaker", kind: "number", help: "The queue delivers nothing for a while when so many deliveries are rejected, or fail too often, within the window." },
  { key: "percent", policy: breaker, part: "percent", label: "Share in percent", group: "Breaker", kind: "number", help: "They must be at least this share of the deliveries that were acknowledged or died." },
  { key: "window", policy: breaker, part: "window", label: "Window", group: "Breaker", kind: "number", help: "Milliseconds, 1000 or more, within which deaths count, and for which nothing is delivered. Then one message at a time is." },
];

export type Values = Record<string, string>;

/** defaultExchange stands for the exchange without a name in fields, where nothing means that there is none. */
export const defaultExchange = "(default exchange)";

/** build makes the arguments of what was entered; it throws what is wrong. more is JSON. */
export function build(values: Values, more: string, form: "argument" | "policy", type?: string): Args {
  const made: Args = {};
  for (const a of args) {
    const key = form === "policy" ? a.policy : a.key, v = values[a.key];
    if (a.part && form === "argument") continue;
    if (!key || v === undefined || v === "" || a.only && type && a.only !== type) continue;
    if (a.kind === "number") {
      if (!/^-?\d+$/.test(v.trim())) throw new Error(`${a.label} must be a whole number, not “${v}”.`);
      if (a.part) made[key] = { ...made[key] as object, [a.part]: Number(v) };
      else made[key] = Number(v);
    } else if (a.key === "x-dead-letter-exchange" && v === defaultExchange) made[key] = "";
    else made[key] = a.kind === "bool" ? v === "true" : v;
  }
  if (made[breaker] && Object.keys(made[breaker] as object).length < 3) throw new Error("A breaker needs deaths, a share and a window.");
  if (form === "argument" && made["x-dead-letter-routing-key"] !== undefined && made["x-dead-letter-exchange"] === undefined) throw new Error(`A dead-letter key needs a dead-letter exchange. To send to a queue by its name, take ${defaultExchange}.`);
  return { ...made, ...table(more, "Other arguments") };
}

/** table reads a JSON object. */
export function table(text: string, what: string): Args {
  if (text.trim() === "") return {};
  let v: unknown;
  try { v = JSON.parse(text); } catch (e) { throw new Error(`${what} must be a JSON object, such as {"name": "value"}: ${(e as Error).message}`); }
  if (typeof v !== "object" || v === null || Array.isArray(v)) throw new Error(`${what} must be a JSON object, such as {"name": "value"}.`);
  return v as Args;
}

/** split sorts present arguments into those with a field and the others, as JSON. */
export function split(of: Args, form: "argument" | "policy"): { values: Values; more: string } {
  const values: Values = {}, rest = { ...of };
  if (form === "policy" && rest[breaker]) {
    for (const [k, v] of Object.entries(rest[breaker] as Args)) values[k] = String(v);
    delete rest[breaker];
  }
  for (const a of args) {
    if (a.part) continue;
    const key = form === "policy" ? a.policy : a.key;
    if (key && rest[key] !== undefined) {
      values[a.key] = a.key === "x-dead-letter-exchange" && rest[key] === "" ? defaultExchange : String(rest[key]);
      delete rest[key];
    }
  }
  return { values, more: Object.keys(rest).length ? JSON.stringify(rest, null, 2) : "" };
}

export function ArgumentFields(props: { form: "argument" | "policy"; type?: string; values: Values; set(v: Values): void; more: string; setMore(s: string): void; exchanges?: string; /** only these, and no others as JSON. */ keys?: readonly string[] }) {
  const shown = args.filter((a) => (props.form === "argument" ? !a.part : a.policy) && (!a.only || !props.type || a.only === props.type) && (!props.keys || props.keys.includes(a.key)));
  const field = (a: Arg) => {
    const value = props.values[a.key] ?? "", set = (v: string) => props.set({ ...props.values, [a.key]: v });
    const name = a.part ? `${a.policy}.${a.part}` : props.form === "policy" ? a.policy : a.key;
    const help = <>{a.help} <code>{name}</code></>;
    if (a.kind === "bool") return <Check key={a.key} label={a.label} help={help} value={value === "true"} set={(v) => set(v ? "true" : "")} />;
    if (typeof a.kind !== "string") return <Select key={a.key} label={a.label} help={help} value={value} set={set} of={[["", "default"], ...a.kind.map((k) => [k, k] as const)]} />;
    return <Text key={a.key} label={a.label} help={help} value={value} set={set} list={a.key === "x-dead-letter-exchange" ? props.exchanges : undefined} />;
  };
  const filled = (group: string) => shown.some((a) => a.group === group && props.values[a.key]);
  return <div class="stack">
    <fieldset><legend>Dead letters</legend><div class="fields">{shown.filter((a) => a.group === "Dead letters").map(field)}</div></fieldset>
    <fieldset><legend>Limits</legend><div class="fields">{shown.filter((a) => a.group === "Limits").map(field)}</div></fieldset>
    <Fold title="Retries" open={filled("Retries")}><div class="fields">{shown.filter((a) => a.group === "Retries").map(field)}</div></Fold>
    {props.form === "policy" && <Fold title="Breaker" open={filled("Breaker")}><div class="fields">{shown.filter((a) => a.group === "Breaker").map(field)}</div></Fold>}
    {props.form === "argument" && !props.keys && <Fold title="Delivery" open={filled("Delivery")}><div class="fields">{shown.filter((a) => a.group === "Delivery").map(field)}</div></Fold>}
    {!props.keys && <Fold title={props.form === "policy" ? "Other keys" : "Other arguments"} open={props.more !== ""}><More value={props.more} set={props.setMore} /></Fold>}
  </div>;
}

function More(props: { value: string; set(s: string): void }) {
  const [touched, setTouched] = useState(false);
  let error: string | undefined;
  if (touched) try { table(props.value, "This"); } catch (e) { error = (e as Error).message; }
  return <Area label="As JSON" help={<>For example <code>{'{"x-queue-leader-locator": "balanced"}'}</code></>} value={props.value} set={(v) => { setTouched(true); props.set(v); }} error={error} />;
}
