// What can be changed of a queue while it is in use: some of its arguments, and its breaker.
import { useMemo, useState } from "preact/hooks";
import { p, send } from "../api";
import { argument, plural } from "../format";
import { may, useApp, usePoll } from "../state";
import type { Args, Exchange, Queue, VHost } from "../types";
import { Dialog, useConfirm } from "../ui/dialog";
import { Note, Tag } from "../ui/parts";
import { Small } from "../ui/table";
import { say } from "../ui/toast";
import { Due } from "./retries";
import { ArgumentFields, build, defaultExchange, split } from "./arguments";

/** live are the arguments that can be changed. */
export const live = ["x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-overflow", "x-delivery-limit", "x-expires", "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-multiplier"];

/** difference is what is to be set and unset so that the live arguments before become those after. */
export function difference(before: Args, after: Args): { set: Args; unset: string[] } {
  const set: Args = {}, unset: string[] = [];
  for (const k of live) {
    if (after[k] !== undefined && JSON.stringify(after[k]) !== JSON.stringify(before[k])) set[k] = after[k];
    if (after[k] === undefined && before[k] !== undefined) unset.push(k);
  }
  return { set, unset };
}

export function LiveChange(props: { q: Queue; close(): void; done(): void }) {
  const { session } = useApp();
  const { q } = props;
  const before = useMemo(() => Object.fromEntries(Object.entries(q.arguments).filter(([k]) => live.includes(k))), []);
  const [values, setValues] = useState(() => split(before, "argument").values);
  const exchanges = usePoll<Exchange[]>(p`exchanges/${q.vhost}` + "?columns=name", 0), vhost = usePoll<VHost>(p`vhosts/${q.vhost}`, 0);
  let after: Args = before, wrong = "";
  try { after = build(values, "", "argument", q.type); } catch (e) { wrong = (e as Error).message; }
  const { set, unset } = difference(before, after), n = Object.keys(set).length + unset.length;
  const now = q.messages_ready ?? 0, limit = set["x-max-length"];
  const over = typeof limit === "number" && now > limit ? now - limit : 0;
  const dlx = set["x-dead-letter-exchange"], unknown = typeof dlx === "string" && dlx !== "" && exchanges.data && !exchanges.data.some((x) => x.name === dlx);
  return <Dialog title={`Change ${q.name}`} close={props.close} danger={over > 0} disabled={n === 0 || wrong !== ""} label={n === 0 ? "Change" : `Change ${plural(n, "argument")} for ${plural(q.messages ?? 0, "message")}`}
    action={async () => {
      await send("PUT", p`office/queues/${q.vhost}/${q.name}/arguments`, { set, unset });
      say(`${plural(n, "argument")} of ${q.name} ${n === 1 ? "is" : "are"} changed.`); props.done(); props.close();
    }}>
    <p class="muted">These arguments can be changed while the queue is in use. They hold for the messages that are in it, too.</p>
    {!may(session, "policymaker") && <Note kind="warn">You need the tag policymaker, and permission to configure the queue.</Note>}
    {q.policy && <Note>The policy <b class="name">{q.policy}</b> also applies to the queue. Where both set something, an argument goes before the policy; of limits the lower one holds.</Note>}
    <ArgumentFields form="argument" type={q.type} values={values} set={setValues} more="" setMore={() => {}} exchanges="live-exchanges" keys={live} />
    <datalist id="live-exchanges"><option value={defaultExchange} />{(exchanges.data ?? []).filter((x) => x.name !== "").map((x) => <option key={x.name} value={x.name} />)}</datalist>
    <section aria-live="polite" class="stack tight"><h3>What would change</h3>
      {wrong !== "" ? <Note kind="bad">{wrong}</Note> : n === 0 ? <p class="muted">Nothing yet.</p> : <Small label="Changes" wrapped head={["Argument", "Now", "Then"]} rows={[...Object.keys(set), ...unset].map((k) => [<code>{k}</code>, before[k] === undefined ? <span class="muted">not set</span> : <code>{argument(before[k])}</code>, set[k] === undefined ? <span class="muted">not set</span> : <code>{argument(set[k])}</code>])} />}
      {over > 0 && <Note kind="warn" title={`${plural(over, "message")} too many`}>The queue has {plural(now, "ready message")}. {(set["x-overflow"] ?? after["x-overflow"] ?? "drop-head") === "drop-head" ? "The oldest die at once." : "New messages are refused until there is room."}</Note>}
      {unknown && <Note kind="warn">The exchange “{String(dlx)}” does not exist in {q.vhost}. Until somebody declares it, dead letters of this queue lead nowhere: the lost and found has them, or they are dropped.</Note>}
      {n > 0 && wrong === "" && vhost.data && (vhost.data.lenient_declarations ? <p class="small muted">Clients that declare the queue with the old arguments are accepted: {q.vhost} has lenient declarations.</p> : <Note kind="warn">Clients that declare the queue with its old arguments are refused (406) from now on. With lenient declarations of the virtual host they are accepted.</Note>)}
    </section>
  </Dialog>;
}

/** Breaker says that the queue delivers nothing because too much of it died. */
export function Breaker(props: { q: Queue; done(): void }) {
  const { q } = props, b = q.breaker;
  const [confirm, ask] = useConfirm();
  if (!b || b.state === "closed") return null;
  return <Note kind={b.state === "open" ? "bad" : "warn"}>
    <div class="row apart"><span><b>{b.state === "open" ? "The breaker is open: nothing is delivered." : "The breaker tries: one message at a time is delivered."}</b> {b.why && <span class="name">{b.why[0]!.toUpperCase() + b.why.slice(1)}{/[.!?]$/.test(b.why) ? "" : "."} </span>}{b.state === "open" ? <>It tries again <Due at={b.until_ms} />.</> : "The first that is acknowledged closes it; a death opens it again."}</span>
      <button onClick={() => ask({ title: "Close the breaker", label: `Close for ${plural(q.messages_ready ?? 0, "message")}`, text: <p><b class="name">{q.name}</b> delivers all of its <b>{plural(q.messages_ready ?? 0, "ready message")}</b> to {plural(q.consumers ?? 0, "consumer")} again. If they still fail, they die, and the breaker opens again.</p>, action: async () => { await send("POST", p`office/queues/${q.vhost}/${q.name}/breaker/close`); say(`The breaker of ${q.name} is closed.`); props.done(); } })}>Close the breaker</button></div>
    {confirm}
  </Note>;
}

/** BreakerFact is the breaker's state among the details of a queue that has one. */
export function BreakerFact(props: { q: Queue }) {
  const { state, until_ms } = props.q.breaker!;
  return <Tag kind={state === "closed" ? "good" : state === "open" ? "bad" : "warn"}>{state === "open" ? <>open, tries again <Due at={until_ms} /></> : state}</Tag>;
}

