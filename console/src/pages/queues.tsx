import { useState } from "preact/hooks";
import { p, send } from "../api";
import { bytes, count, rate } from "../format";
import { to } from "../router";
import { useApp, usePoll, useTitle } from "../state";
import type { Exchange, Queue } from "../types";
import { rateOf } from "../ui/chart";
import { Dialog } from "../ui/dialog";
import { Check, Select, Text } from "../ui/form";
import { Empty, Features, PageHead, Tag, Zero } from "../ui/parts";
import { Table, useListState, useVHostColumn, useServerList, type Column } from "../ui/table";
import { say } from "../ui/toast";
import { ArgumentFields, build, defaultExchange, type Values } from "./arguments";

export function QueueState(props: { q: Queue }) {
  const { q } = props;
  if (q.state !== "running") return <Tag kind="bad">{q.state}</Tag>;
  return q.idle_since ? <span class="muted">idle</span> : <Tag kind="good">running</Tag>;
}

/** features are those of a queue; its type stands beside them. */
export const features = (q: Queue) => q.features?.filter((f) => f.code !== "Args" || !/^x-queue-type: \w+$/.test(f.title));

const messages = (key: string) => (q: Queue) => <Zero n={q[key as "messages"]} text={count(q[key as "messages"])} />;
const speed = (key: string) => (q: Queue) => { const n = rateOf(q.message_stats, key); return <Zero n={n} text={n === undefined ? "" : rate(n)} />; };

const columns: Column<Queue>[] = [
  { key: "name", title: "Name", sort: "name", name: true, cell: (q) => <a href={to(["queues", q.vhost, q.name])} title={q.name}>{q.name}</a> },
  { key: "vhost", title: "Virtual host", sort: "vhost", cell: (q) => <span class="clip">{q.vhost}</span> },
  { key: "type", title: "Type", sort: "type", cell: (q) => q.type },
  { key: "features", title: "Features", help: "D durable, AD auto-delete, Excl exclusive, TTL time to live, Exp queue expires, Lim and Lim B length limits, DLX dead-letter exchange, DLK dead-letter key, DlL delivery limit, Ovfl what a full queue does, DR delayed retries with DRT their type and DRm, DRM their bounds, SAC single active consumer, Pri priorities, Args other arguments; policies by name. Each says its value when the pointer is on it.", cell: (q) => <Features of={features(q)} /> },
  { key: "state", title: "State", sort: "state", cell: (q) => <QueueState q={q} /> },
  { key: "ready", title: "Ready", sort: "messages_ready", num: true, cell: messages("messages_ready") },
  { key: "unacked", title: "Unacked", sort: "messages_unacknowledged", num: true, cell: messages("messages_unacknowledged") },
  { key: "total", title: "Total", sort: "messages", num: true, cell: messages("messages") },
  { key: "consumers", title: "Consumers", sort: "consumers", num: true, cell: (q) => <Zero n={q.consumers} text={count(q.consumers)} /> },
  { key: "in", title: "Incoming", sort: "message_stats.publish_details.rate", num: true, cell: speed("publish") },
  { key: "out", title: "Delivered", sort: "message_stats.deliver_get_details.rate", num: true, cell: speed("deliver_get") },
  { key: "ack", title: "Acked", sort: "message_stats.ack_details.rate", num: true, cell: speed("ack") },
  { key: "bytes", title: "Bytes", sort: "message_bytes", num: true, hide: true, cell: (q) => bytes(q.message_bytes) },
  { key: "delayed", title: "Waiting for a retry", sort: "messages_delayed", num: true, hide: true, cell: (q) => count(q.messages_delayed) },
  { key: "dlx", title: "Held dead letters", sort: "messages_dlx", num: true, hide: true, cell: (q) => count(q.messages_dlx) },
  { key: "policy", title: "Policy", sort: "policy", hide: true, cell: (q) => q.policy ?? "" },
  { key: "persistent", title: "Persistent", sort: "messages_persistent", num: true, hide: true, cell: (q) => count(q.messages_persistent) },
];

export function QueuesPage() {
  const { vhost } = useApp();
  useTitle("Queues");
  const list = useListState();
  const source = useServerList<Queue>(vhost ? p`queues/${vhost}` : "queues", list);
  const [adding, setAdding] = useState(false);
  return <>
    <PageHead title="Queues"><button class="primary" onClick={() => setAdding(true)}>Add a queue</button></PageHead>
    <Table label="Queues" what="queues" choose="queues" server source={source} list={list} columns={useVHostColumn(columns)} rowKey={(q) => `${q.vhost}/${q.name}`} href={(q) => to(["queues", q.vhost, q.name])}
      empty={<Empty title="There are no queues yet"><p>Clients declare queues when they connect. You can also add one here, with its dead-letter exchange, limits and time to live.</p><button onClick={() => setAdding(true)}>Add a queue</button></Empty>} />
    {adding && <AddQueue close={() => setAdding(false)} done={source.reload} />}
  </>;
}

export function AddQueue(props: { close(): void; done(): void }) {
  const { session, vhost: here } = useApp();
  const [vhost, setVHost] = useState(here || session.vhosts[0] || "/");
  const [name, setName] = useState(""), [type, setType] = useState("classic"), [durable, setDurable] = useState(true), [autoDelete, setAutoDelete] = useState(false);
  const [values, setValues] = useState<Values>({}), [more, setMore] = useState(""), [missing, setMissing] = useState(false);
  const exchanges = usePoll<Exchange[]>(p`exchanges/${vhost}` + "?columns=name", 0);
  const dlx = values["x-dead-letter-exchange"];
  const unknown = dlx && dlx !== defaultExchange && exchanges.data && !exchanges.data.some((x) => x.name === dlx);
  return <Dialog title="Add a queue" label="Add queue" close={props.close} action={async (go) => {
    if (name === "") { setMissing(true); throw new Error("The queue needs a name."); }
    const made = build(values, more, "argument", type);
    await send("PUT", p`queues/${vhost}/${name}`, { durable: type === "quorum" || durable, auto_delete: autoDelete, arguments: { ...(type === "classic" ? {} : { "x-queue-type": type }), ...made } });
    say(`The queue ${name} is there.`);
    props.close(); props.done(); go(to(["queues", vhost, name]));
  }}>
    <div class="fields">
      <Select label="Virtual host" value={vhost} set={setVHost} of={session.vhosts.map((v) => [v, v] as const)} />
      <Text label="Name" value={name} set={setName} error={missing && name === "" ? "Enter a name." : undefined} autofocus required />
      <Select label="Type" value={type} set={setType} of={[["classic", "Classic"], ["quorum", "Quorum (replicated)"]]} />
    </div>
    <div class="fields">
      <Check label="Durable" help="The queue and its persistent messages survive a restart." value={type === "quorum" || durable} set={setDurable} />
      <Check label="Auto-delete" help="It is deleted when its last consumer leaves." value={autoDelete} set={setAutoDelete} />
    </div>
    <ArgumentFields form="argument" type={type} values={values} set={setValues} more={more} setMore={setMore} exchanges="exchange-names" />
    <datalist id="exchange-names"><option value={defaultExchange} />{(exchanges.data ?? []).filter((x) => x.name !== "").map((x) => <option key={x.name} value={x.name} />)}</datalist>
    {unknown && <p class="note warn">The exchange “{dlx}” does not exist in {vhost}. Until somebody declares it, dead letters of this queue are dropped.</p>}
  </Dialog>;
}
