import { useMemo, useState } from "preact/hooks";
import { p, query, send } from "../api";
import { bytes, count, plural, rate, reason } from "../format";
import { setParams, to, useRoute } from "../router";
import { may, useApp, usePoll, useTitle } from "../state";
import type { Message, Queue, Stats } from "../types";
import { Body } from "../ui/body";
import { Chart, flow, rateOf, spanQuery, spans, through, waiting, type Span } from "../ui/chart";
import { Dialog } from "../ui/dialog";
import { Check, Select, Text } from "../ui/form";
import { Arguments, Card, Choices, Empty, ExchangeLink, Facts, Failed, Features, Fold, Loading, Note, PageHead, Tag, When } from "../ui/parts";
import { say } from "../ui/toast";
import { Bindings } from "./bindings";
import { Breaker, BreakerFact, LiveChange } from "./live";
import { ConsumerTable } from "./consumers";
import { Publish } from "./publish";
import { features } from "./queues";

export function QueuePage(props: { vhost: string; name: string }) {
  const { vhost, name } = props;
  const { session } = useApp();
  useTitle(`Queue ${name}`);
  const path = p`queues/${vhost}/${name}`;
  const [span, setSpan] = useState<Span>("600");
  const { data: q, error, loading, reload } = usePoll<Queue>(path + query(spanQuery(span)));
  const [dialog, setDialog] = useState<"" | "purge" | "delete" | "move">("");
  const change = useRoute().params.get("change") !== null; // a link may ask for the form
  const charts = useMemo(() => q && {
    depth: waiting(q as unknown as Stats), rates: flow(q.message_stats, through("Incoming"), q.messages_details),
  }, [q]);
  if (!q) return <><PageHead title={<>Queue <span class="name">{name}</span></>} />{error?.status === 404 ? <Empty title="This queue does not exist"><p>It was deleted, or you may not see the virtual host {vhost}. <a href="#/queues">Go to the queues</a>.</p></Empty> : <Failed error={error} what="the queue" retry={reload} />}{loading && <Loading what="the queue" />}</>;
  const dlx = (q.arguments["x-dead-letter-exchange"] ?? q.effective_policy_definition?.["dead-letter-exchange"]) as string | undefined;
  const dlk = (q.arguments["x-dead-letter-routing-key"] ?? q.effective_policy_definition?.["dead-letter-routing-key"]) as string | undefined;
  const deaths = Object.entries(q.dead_letters ?? {}).map(([r, by]) => `${count(Object.values(by).reduce((a, b) => a + b, 0))} ${reason(r)}`);
  return <div class="stack">
    <PageHead title={<>Queue <span class="name">{name}</span></>} lead={<>in virtual host <b class="name">{vhost}</b> · {q.type} · <Features of={features(q)} /></>}>
      <a class="button" href={to(["letters", vhost], { queue: name })}>Search its letters</a>
      <button onClick={() => setParams({ change: "1" })}>Change…</button>
      <button onClick={() => setDialog("move")}>Move messages</button>
      <button class="danger" onClick={() => setDialog("purge")}>Purge</button>
      <button class="danger" onClick={() => setDialog("delete")}>Delete</button>
    </PageHead>
    <Failed error={error} what="the queue" stale retry={reload} />
    <Breaker q={q} done={reload} />
    <div class="figures">
      <div><span class="value">{count(q.messages_ready)}</span><span class="label">ready</span></div>
      <div><span class="value">{count(q.messages_unacknowledged)}</span><span class="label">unacknowledged</span></div>
      <div><span class="value">{count(q.messages)}</span><span class="label">messages</span></div>
      <div><span class="value">{bytes(q.message_bytes)}</span><span class="label">{q.type === "quorum" ? "with headers" : "in bodies"}</span></div>
      <div><span class="value">{rate(rateOf(q.message_stats, "publish") ?? 0)}</span><span class="label">incoming</span></div>
      <div><span class="value">{rate(rateOf(q.message_stats, "deliver_get") ?? 0)}</span><span class="label">delivered</span></div>
      <div><span class="value">{count(q.consumers)}</span><span class="label">{q.consumers === 1 ? "consumer" : "consumers"}</span></div>
    </div>
    <div class="row apart"><h2>Traffic</h2><Choices label="Time shown" value={span} of={spans} set={(s: Span) => setSpan(s)} /></div>
    {charts && <div class="grid2"><Card title="Messages"><Chart label="Messages in the queue over time" unit="count" height={160} {...charts.depth} /></Card><Card title="Messages a second"><Chart label="Messages a second over time" unit="rate" height={160} {...charts.rates} /></Card></div>}
    <div class="grid2">
      <Card title="Details"><Facts of={[
        ["State", <>{q.state}{q.idle_since && <>, last used <When at={Date.parse(q.idle_since)} /></>}</>],
        ["Durable", q.durable ? "yes" : "no"], ["Auto-delete", q.auto_delete ? "yes" : "no"],
        ...(q.owner_pid_details ? [["Exclusive to", <a class="name" href={to(["connections", q.owner_pid_details.name])}>{q.owner_pid_details.name}</a>] as [string, preact.ComponentChildren]] : []),
        ["Arguments", <Arguments of={q.arguments} />],
        ["Policy", q.policy ? <Tag>{q.policy}</Tag> : <span class="muted">none</span>], ["Operator policy", q.operator_policy ? <Tag>{q.operator_policy}</Tag> : <span class="muted">none</span>],
        ["From policies", <Arguments of={q.effective_policy_definition} />],
      ]} /></Card>
      <Card title="Dead letters"><Facts of={[
        ["Exchange (DLX)", dlx === undefined ? <>none: what dies here is dropped</> : <ExchangeLink vhost={vhost} name={dlx} />],
        ["Key (DLK)", dlk === undefined ? <span class="muted">as published</span> : <code class="name">{dlk}</code>],
        ["Died here", deaths.length === 0 ? "nothing since the node started" : <ul class="plain">{deaths.map((d) => <li key={d}>{d}</li>)}</ul>],
        ...(q.delivery_limit !== undefined ? [["Delivery limit", String(q.delivery_limit)] as [string, string]] : []),
        ...(q.breaker ? [["Breaker", <BreakerFact q={q} />] as [string, preact.ComponentChildren]] : []),
        ...(q.messages_delayed ? [["Waiting for a retry", count(q.messages_delayed)] as [string, string]] : []),
        ...(q.messages_dlx ? [["Held until targets take them", count(q.messages_dlx)] as [string, string]] : []),
      ]} /></Card>
    </div>
    <Card title={`Consumers (${count(q.consumers)})`} bare><ConsumerTable of={q.consumer_details ?? []} queue /></Card>
    <Bindings path={path + "/bindings"} title="Bindings" side="from" vhost={vhost} add={{ destination: name, kind: "queue" }} />
    <Fold title="Look at messages"><Peek path={path} changed={reload} /></Fold>
    <Fold title="Publish a message"><Publish vhost={vhost} exchange="" routingKey={name} done={reload} /></Fold>
    {change && <LiveChange q={q} close={() => setParams({ change: undefined })} done={reload} />}
    {dialog === "purge" && <Purge q={q} path={path} close={() => setDialog("")} done={reload} />}
    {dialog === "delete" && <Delete q={q} path={path} close={() => setDialog("")} />}
    {dialog === "move" && <Move q={q} close={() => setDialog("")} may={may(session, "policymaker")} />}
  </div>;
}

function Peek(props: { path: string; changed(): void }) {
  const [mode, setMode] = useState("peek"), [n, setN] = useState("10"), [found, setFound] = useState<Message[] | null>(null), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const risks: Record<string, string> = {
    peek: "Nothing changes: order, counts and the redelivered flag stay as they are.", ack_requeue_true: "The messages go back to their places and are marked as redelivered.",
    ack_requeue_false: "The messages are REMOVED from the queue.", reject_requeue_true: "The messages go back; this counts as a failed delivery.", reject_requeue_false: "The messages are rejected: they go to the dead-letter exchange, or are dropped if there is none.",
  };
  return <div class="stack">
    <form class="stack" onSubmit={async (e) => {
      e.preventDefault(); setError(""); setBusy(true);
      try {
        const many = Number(n);
        if (!Number.isInteger(many) || many < 1 || many > 1000) throw new Error(`How many must be a number from 1 to 1,000, not “${n}”.`);
        setFound(await send<Message[]>("POST", props.path + "/get", { ackmode: mode, count: many, encoding: "auto", truncate: 50000 }));
        if (mode !== "peek") props.changed();
      } catch (e) { setError((e as Error).message); }
      setBusy(false);
    }}>
      <div class="fields">
        <Select label="How" value={mode} set={setMode} help={risks[mode]} of={[["peek", "Look, change nothing"], ["ack_requeue_true", "Get and put back"], ["ack_requeue_false", "Get and remove"], ["reject_requeue_true", "Reject and put back"], ["reject_requeue_false", "Reject to the dead-letter exchange"]]} />
        <Text label="How many" value={n} set={setN} help="1 to 1,000" />
      </div>
      {error && <Note kind="bad">{error}</Note>}
      <div class="row"><button type="submit" class={mode.endsWith("false") ? "danger" : ""} disabled={busy}>{mode === "ack_requeue_false" ? `Get and remove up to ${n}` : mode === "reject_requeue_false" ? `Reject up to ${n}` : "Show messages"}</button></div>
    </form>
    {found && (found.length === 0 ? <p class="muted" role="status">No message is ready.</p> : <><p class="muted" role="status">{plural(found.length, "message")}</p>{found.map((m, i) => <MessageCard key={i} n={i + 1} m={m} />)}</>)}
  </div>;
}

export function MessageCard(props: { n: number; m: Message }) {
  const { m } = props;
  const properties = Array.isArray(m.properties) ? {} : m.properties;
  const { headers, ...rest } = properties as Record<string, unknown>;
  return <Card title={`Message ${props.n}`} side={<span class="muted small">{bytes(m.payload_bytes)}{m.redelivered && " · redelivered"}</span>}>
    <div class="stack"><Facts of={[["Exchange", m.exchange === "" ? "(default exchange)" : <span class="name">{m.exchange}</span>], ["Routing key", <code class="name">{m.routing_key}</code>], ["Properties", <Arguments of={rest} />], ["Headers", <Arguments of={headers as Record<string, unknown>} />]]} />
      <Body text={m.payload} encoding={m.payload_encoding === "base64" ? "base64" : "text"} bytes={m.payload_bytes} cut={m.payload_bytes > 50000} /></div>
  </Card>;
}

function Purge(props: { q: Queue; path: string; close(): void; done(): void }) {
  return <Dialog small title="Purge the queue" danger label={`Purge ${plural(props.q.messages_ready ?? 0, "message")}`} close={props.close} action={async () => { await send("DELETE", props.path + "/contents"); say(`The queue ${props.q.name} is purged.`); props.done(); props.close(); }}>
    <p>All <b>{plural(props.q.messages_ready ?? 0, "ready message")}</b> of <b class="name">{props.q.name}</b> are removed for good. They do not go to a dead-letter exchange. {plural(props.q.messages_unacknowledged ?? 0, "unacknowledged message")} stay.</p>
  </Dialog>;
}

function Delete(props: { q: Queue; path: string; close(): void }) {
  const { q } = props;
  const [unused, setUnused] = useState(false), [empty, setEmpty] = useState(true);
  return <Dialog small title="Delete the queue" danger label={empty ? "Delete if empty" : `Delete with ${plural(q.messages ?? 0, "message")}`} close={props.close} action={async (go) => {
    await send("DELETE", props.path + query({ "if-empty": empty, "if-unused": unused }));
    say(`The queue ${q.name} is deleted.`);
    props.close(); go("#/queues");
  }}>
    <p><b class="name">{q.name}</b> has <b>{plural(q.messages ?? 0, "message")}</b> and <b>{plural(q.consumers ?? 0, "consumer")}</b>. Its bindings go with it.</p>
    <Check label="Only if it has no messages" value={empty} set={setEmpty} /><Check label="Only if it has no consumers" value={unused} set={setUnused} />
  </Dialog>;
}

function Move(props: { q: Queue; close(): void; may: boolean }) {
  const { q } = props;
  const [target, setTarget] = useState("");
  return <Dialog small title="Move messages" label={`Move ${plural(q.messages_ready ?? 0, "message")}`} close={props.close} action={async () => {
    if (target === "") throw new Error("Enter the name of the queue that gets the messages.");
    if (target === q.name) throw new Error("Source and target are the same queue.");
    await send("GET", p`queues/${q.vhost}/${target}` + "?columns=name");
    const name = `Move from ${q.name}`;
    await send("PUT", p`parameters/shovel/${q.vhost}/${name}`, { value: { "src-uri": "amqp:///" + encodeURIComponent(q.vhost), "src-queue": q.name, "src-protocol": "amqp091", "src-prefetch-count": 1000, "src-delete-after": "queue-length", "dest-protocol": "amqp091", "dest-uri": "amqp:///" + encodeURIComponent(q.vhost), "dest-queue": target, "dest-add-forward-headers": false, "ack-mode": "on-confirm" } });
    say(`A shovel moves the messages of ${q.name} to ${target}.`); props.close();
  }}>
    <p>All <b>{plural(q.messages_ready ?? 0, "message")}</b> that are ready now go to another queue of the virtual host, by a shovel. It ends when they are moved.</p>
    {!props.may && <Note kind="warn">You need the tag policymaker for this.</Note>}
    <Text label="To the queue" value={target} set={setTarget} autofocus />
    <p class="muted small">Dead letters are better sent back from the <a href={to(["letters", q.vhost], { queue: q.name })} onClick={props.close}>search page</a>: there they keep their history, and you see what becomes of them.</p>
  </Dialog>;
}
