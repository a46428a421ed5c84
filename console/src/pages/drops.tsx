// The ledger of drops: messages that the broker let go of, and why.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { query } from "../api";
import { bytes, count, plural, reason } from "../format";
import { setParams, to, useRoute } from "../router";
import { useApp, useTitle } from "../state";
import type { Drop, Drops } from "../types";
import { Bars, type BarKind, type Colour } from "../ui/bars";
import { Dialog } from "../ui/dialog";
import { Select, Text } from "../ui/form";
import { Card, Choices, Empty, ExchangeLink, exchangeTitle, Facts, Note, PageHead, QueueLink, Tag, When } from "../ui/parts";
import { usePaged } from "../ui/paged";
import { Table, useListState, useLocalList, useVHostColumn, type Column } from "../ui/table";
import { officeError } from "./office";

interface Why { title: string; text: string; mend: string; colour: Colour; }

/** whys are the outcomes that end in a drop: what they mean, and the way out. */
const whys: Record<string, Why> = {
  no_dlx: { title: "no dead-letter exchange", colour: 5, text: "The queue has no dead-letter exchange, so what dies there is discarded. That may be meant.", mend: "To keep such messages, give the queue a dead-letter exchange, or the virtual host a default one." },
  dlx_missing: { title: "its exchange does not exist", colour: 4, text: "The queue has a dead-letter exchange, but no exchange has that name: it was misspelt, deleted, or never declared.", mend: "Declare the exchange and bind a queue to it, or correct the queue's argument or policy." },
  no_route: { title: "nothing is bound", colour: 2, text: "The dead-letter exchange exists, but it routes the message to no queue.", mend: "Bind a queue to it for the routing key: the dead-letter key of the queue, or else the key that the message was published with." },
  cycle: { title: "a loop", colour: 3, text: "The message would come back to a queue that it died in before, and nobody has rejected it on the way.", mend: "Send it elsewhere, for example with a dead-letter key of its own. If a retry through a second queue is meant, its consumer must reject." },
  target_refused: { title: "the target is full", colour: 1, text: "Each target queue was full and refuses messages (overflow reject-publish).", mend: "Consume from the target or raise its limit. With the strategy at-least-once the messages wait in their queue." },
  unroutable: { title: "published to nowhere", colour: 2, text: "A publisher sent it to an exchange that led to no queue, and did not ask to be told (mandatory).", mend: "Bind a queue to the exchange, give the exchange an alternate exchange, or let the publisher set mandatory." },
  deleted: { title: "the queue was deleted", colour: 1, text: "The queue or its virtual host was deleted before the message reached another queue.", mend: "Nothing, if the deletion was meant." },
};
const unknown = (why: string): Why => ({ title: why.replaceAll("_", " "), colour: 1, text: "", mend: "" });
const whyOf = (why: string): Why => whys[why] ?? unknown(why);

const hour = 3600000;
const spans = { "24h": { n: 24, step: hour, title: "24 hours" }, "7d": { n: 28, step: 6 * hour, title: "7 days" }, "90d": { n: 90, step: 24 * hour, title: "90 days" } } as const;
type Span = keyof typeof spans;

/** bin adds the counts of hours up to the steps of a span, which ends with the hour or the day of the reader that it is now. */
export function bin(hours: Drops["hours"], span: Span, now = Date.now()): { from: number; step: number; kinds: BarKind[] } {
  const { n, step } = spans[span];
  const midnight = new Date(now); midnight.setHours(24, 0, 0, 0);
  const end = step === hour ? Math.floor(now / hour) * hour + hour : midnight.getTime(), from = end - n * step;
  const kinds = new Map<string, BarKind>();
  for (const h of hours) {
    const i = Math.floor((h.hour_ms - from) / step);
    if (i < 0 || i >= n) continue;
    for (const [why, c] of Object.entries(h.counts)) {
      let k = kinds.get(why);
      if (!k) kinds.set(why, k = { key: why, name: whyOf(why).title, colour: whyOf(why).colour, counts: Array<number>(n).fill(0) });
      k.counts[i]! += c;
    }
  }
  const sum = (k: BarKind) => k.counts.reduce((a, b) => a + b, 0);
  const list = [...kinds.values()].sort((a, b) => sum(b) - sum(a) || a.key.localeCompare(b.key));
  const used = new Set<Colour>();
  for (const k of list) { // no two of the kinds that there are most of have one colour
    if (used.has(k.colour)) k.colour = ([1, 2, 3, 4, 5] as const).find((c) => !used.has(c)) ?? k.colour;
    used.add(k.colour);
  }
  return { from, step, kinds: list };
}

const columns = (open: (d: Drop) => void): Column<Drop>[] => [
  { key: "last", title: "When", by: (d) => d.last_ms, cell: (d) => <When at={d.last_ms} /> },
  { key: "why", title: "Why", name: true, by: (d) => whyOf(d.why).title, cell: (d) => <a href="#" onClick={(e) => { e.preventDefault(); open(d); }}>{whyOf(d.why).title}</a> },
  { key: "count", title: "Messages", num: true, by: (d) => d.count, cell: (d) => <b>{count(d.count)}</b> },
  { key: "queue", title: "Queue", by: (d) => d.queue ?? "", cell: (d) => d.queue ? <a class="clip" title={d.queue} href={to(["queues", d.vhost, d.queue])}>{d.queue}</a> : <span class="muted">none had it</span> },
  { key: "reason", title: "Died of", by: (d) => d.reason ?? "", cell: (d) => d.reason ? <Tag title={reason(d.reason)}>{d.reason}</Tag> : <span class="muted">not dead</span> },
  { key: "exchange", title: "Exchange", text: true, by: (d) => d.exchange, cell: (d) => d.example || d.exchange || d.why === "unroutable" ? exchangeTitle(d.exchange) : <span class="muted">hidden</span> },
  { key: "keys", title: "Routing key", text: true, by: (d) => (d.routing_keys ?? []).join(), cell: (d) => <code>{(d.routing_keys ?? []).join(", ")}</code> },
  { key: "type", title: "Type", text: true, by: (d) => d.type ?? "", cell: (d) => d.type },
  { key: "id", title: "Message ID", hide: true, text: true, by: (d) => d.message_id ?? "", cell: (d) => <code>{d.message_id}</code> },
  { key: "bytes", title: "Size", hide: true, num: true, by: (d) => d.bytes ?? 0, cell: (d) => bytes(d.bytes) },
  { key: "vhost", title: "Virtual host", by: (d) => d.vhost, cell: (d) => <span class="clip">{d.vhost}</span> },
];

export function DropsPage() {
  const { vhost } = useApp();
  const { params } = useRoute();
  useTitle("Drops");
  const why = params.get("why") ?? "", queue = params.get("queue") ?? "", span: Span = (params.get("span") ?? "") in spans ? params.get("span") as Span : "24h";
  const path = "office/drops" + (vhost ? "/" + encodeURIComponent(vhost) : "") + query({ why, queue, limit: 200 });
  const ledger = usePaged<Drop, Drops>(path);
  const [shown, show] = useState<Drop | null>(null), [name, setName] = useState(queue);
  const list = useListState();
  const all = useVHostColumn(columns(show));
  const source = useLocalList(ledger.items, { ...list, columns: all, text: (d) => [whyOf(d.why).title, d.queue, d.exchange, d.type, d.message_id, ...(d.routing_keys ?? [])].join(" "), error: officeError(ledger.error), reload: ledger.reload });
  const { from, step, kinds } = bin(ledger.answer?.hours ?? [], span);
  const known = Object.keys(whys).includes(why) || why === "" ? Object.keys(whys) : [why, ...Object.keys(whys)];
  const filtered = why !== "" || queue !== "";
  return <div class="stack">
    <PageHead title="Drops" lead={<>Messages that the broker let go of, and why. They are gone; here is what is known of them{ledger.answer ? `: ${plural(ledger.answer.dropped, "message")} in ${plural(ledger.answer.total, "entry", "entries")}` : ""}.</>} />
    {ledger.answer && ledger.answer.hours.length > 0 && <Card title="Messages dropped" side={<Choices label="Time shown" value={span} of={(Object.keys(spans) as Span[]).map((s) => [s, spans[s].title] as const)} set={(s: Span) => setParams({ span: s === "24h" ? undefined : s })} />}>
      {kinds.length === 0 ? <p class="muted">Nothing was dropped in the last {spans[span].title}.</p>
        : <Bars label="Messages dropped" what="messages" from={from} step={step} kinds={kinds} legend={(k, sum) => <button class="quiet" aria-pressed={why === k.key} title={`Show only these: ${k.name}`} onClick={() => setParams({ why: why === k.key ? undefined : k.key })}>{k.name} <b>{count(sum)}</b></button>} />}
    </Card>}
    <div>
      {why !== "" && whyOf(why).text && <p class="muted drop-why">{whyOf(why).text} {whyOf(why).mend}</p>}
      <Table label="Drops" what="entries" choose="drops" noFilter source={source} list={list} columns={all} rowKey={(d) => `${d.vhost}/${d.id}`} open={(d) => show(d)}
        tools={<form class="row drop-filter" onSubmit={(e) => { e.preventDefault(); setParams({ queue: name.trim() }); }}>
          <Select label="Why" value={why} set={(v) => setParams({ why: v })} of={[["", "anything"], ...known.map((w) => [w, whyOf(w).title] as const)]} />
          <Text label="Queue" value={name} set={setName} placeholder="all queues" />
          <button type="submit">Show</button>
          {filtered && <button type="button" class="quiet" onClick={() => { setName(""); setParams({ why: undefined, queue: undefined }); }}>Clear</button>}
        </form>}
        empty={filtered ? <Empty title="No drop matches"><p>Nothing was dropped {queue && <>from <b class="name">{queue}</b> </>}{why && <>because: {whyOf(why).title}</>}. The ledger keeps 10,000 entries of each virtual host for seven days.</p></Empty>
          : <Empty title="Nothing was dropped"><p>When a message dies and has nowhere to go, or is published to nowhere, it stands here: which queue, when, how many, and why. The ledger keeps 10,000 entries of each virtual host for seven days, and counts by hour for ninety.</p></Empty>} />
      {ledger.next && <div class="row more"><button onClick={() => void ledger.more()} disabled={ledger.busy}>{ledger.busy ? "Reading…" : "Show more"}</button><span class="muted">{count(ledger.items?.length)} of {count(ledger.answer?.total)} entries are shown.</span></div>}
    </div>
    {shown && <DropDialog drop={shown} close={() => show(null)} />}
  </div>;
}

function DropDialog(props: { drop: Drop; close(): void }) {
  const { drop: d } = props, why = whyOf(d.why);
  const leave = (node: ComponentChildren) => <span onClick={props.close}>{node}</span>;
  return <Dialog title={`${plural(d.count, "message")} dropped: ${why.title}`} close={props.close}>
    {why.text && <Note kind="warn"><p>{why.text}</p><p><b>The way out:</b> {why.mend}</p></Note>}
    <Facts of={[
      ["Queue", d.queue ? leave(<QueueLink vhost={d.vhost} name={d.queue} />) : <span class="muted">no queue had taken {d.count === 1 ? "it" : "them"}</span>],
      ["Virtual host", <span class="name">{d.vhost}</span>],
      ["Died of", d.reason ? reason(d.reason) : <span class="muted">{d.count === 1 ? "it has" : "they have"} not died</span>],
      ["First", <When at={d.first_ms} clock />], ["Last", <When at={d.last_ms} clock />],
    ]} />
    <h3>{d.count === 1 ? "The message" : "One of them"}</h3>
    {d.example ? <Facts of={[
      ["Exchange", leave(<ExchangeLink vhost={d.vhost} name={d.exchange} />)], ["Routing keys", <>{(d.routing_keys ?? []).map((k) => <code key={k} class="name">{k || "(empty)"} </code>)}</>],
      ["Type", d.type ? <span class="name">{d.type}</span> : <span class="muted">none</span>], ["Message ID", d.message_id ? <code class="name">{d.message_id}</code> : <span class="muted">none</span>], ["Size", bytes(d.bytes)],
    ]} /> : d.why === "unroutable" ? <Facts of={[["Exchange", leave(<ExchangeLink vhost={d.vhost} name={d.exchange} />)], ["Else", <span class="muted">nothing is known: of what is published to nowhere only the exchange is kept</span>]]} />
      : <p class="muted">Nothing is known of it, or you may not read the queue.</p>}
  </Dialog>;
}
