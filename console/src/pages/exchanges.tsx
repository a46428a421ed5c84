import { useMemo, useState } from "preact/hooks";
import { p, query, send } from "../api";
import { count, rate } from "../format";
import { to } from "../router";
import { useApp, usePoll, useTitle } from "../state";
import type { Exchange, Overview } from "../types";
import { Chart, flow, rateOf, spanQuery } from "../ui/chart";
import { Dialog } from "../ui/dialog";
import { Area, Check, Select, Text } from "../ui/form";
import { Arguments, Card, Empty, exchangeTitle, Facts, Failed, Features, Fold, Loading, PageHead, Tag, Zero } from "../ui/parts";
import { Table, useListState, useVHostColumn, useServerList, type Column } from "../ui/table";
import { say } from "../ui/toast";
import { table } from "./arguments";
import { Bindings } from "./bindings";
import { Publish } from "./publish";

const speed = (key: string) => (x: Exchange) => { const n = rateOf(x.message_stats, key); return <Zero n={n} text={n === undefined ? "" : rate(n)} />; };
const columns: Column<Exchange>[] = [
  { key: "name", title: "Name", sort: "name", name: true, cell: (x) => <a href={to(["exchanges", x.vhost, x.name])} title={x.name}>{exchangeTitle(x.name)}</a> },
  { key: "vhost", title: "Virtual host", sort: "vhost", cell: (x) => <span class="clip">{x.vhost}</span> },
  { key: "type", title: "Type", sort: "type", cell: (x) => x.type },
  { key: "features", title: "Features", help: "D durable, AD auto-delete, I internal, AE alternate exchange; policies by name", cell: (x) => <Features of={x.features} /> },
  { key: "in", title: "In", sort: "message_stats.publish_in_details.rate", num: true, cell: speed("publish_in") },
  { key: "out", title: "Out", sort: "message_stats.publish_out_details.rate", num: true, cell: speed("publish_out") },
  { key: "total", title: "Published", sort: "message_stats.publish_in", num: true, cell: (x) => <Zero n={x.message_stats?.["publish_in"] as number} text={count((x.message_stats?.["publish_in"] as number | undefined) ?? 0)} /> },
  { key: "delayed", title: "Delayed", sort: "messages_delayed", num: true, hide: true, cell: (x) => count(x.messages_delayed) },
];

export function ExchangesPage() {
  const { vhost } = useApp();
  useTitle("Exchanges");
  const list = useListState();
  const source = useServerList<Exchange>(vhost ? p`exchanges/${vhost}` : "exchanges", list);
  const [adding, setAdding] = useState(false);
  return <>
    <PageHead title="Exchanges"><button class="primary" onClick={() => setAdding(true)}>Add an exchange</button></PageHead>
    <Table label="Exchanges" what="exchanges" choose="exchanges" server source={source} list={list} columns={useVHostColumn(columns)} rowKey={(x) => `${x.vhost}/${x.name}`} href={(x) => to(["exchanges", x.vhost, x.name])} empty={<Empty title="There are no exchanges" />} />
    {adding && <Add close={() => setAdding(false)} done={source.reload} />}
  </>;
}

function Add(props: { close(): void; done(): void }) {
  const { session, vhost: here } = useApp();
  const [vhost, setVHost] = useState(here || session.vhosts[0] || "/"), [name, setName] = useState(""), [type, setType] = useState("direct");
  const [durable, setDurable] = useState(true), [autoDelete, setAutoDelete] = useState(false), [internal, setInternal] = useState(false), [alternate, setAlternate] = useState(""), [more, setMore] = useState("");
  const overview = usePoll<Overview>("overview", 0);
  const types = overview.data?.exchange_types.map((t) => t.name) ?? ["direct", "fanout", "topic", "headers"];
  return <Dialog title="Add an exchange" label="Add exchange" close={props.close} action={async (go) => {
    if (name === "") throw new Error("The exchange needs a name.");
    await send("PUT", p`exchanges/${vhost}/${name}`, { type, durable, auto_delete: autoDelete, internal, arguments: { ...(alternate ? { "alternate-exchange": alternate } : {}), ...table(more, "Other arguments") } });
    say(`The exchange ${name} is there.`); props.close(); props.done(); go(to(["exchanges", vhost, name]));
  }}>
    <div class="fields">
      <Select label="Virtual host" value={vhost} set={setVHost} of={session.vhosts.map((v) => [v, v] as const)} />
      <Text label="Name" value={name} set={setName} autofocus required /><Select label="Type" value={type} set={setType} of={types.map((t) => [t, t] as const)} />
      <Text label="Alternate exchange" value={alternate} set={setAlternate} help={<>Gets what this one cannot route. <code>alternate-exchange</code></>} />
    </div>
    <div class="fields"><Check label="Durable" help="It survives a restart." value={durable} set={setDurable} /><Check label="Auto-delete" help="It is deleted when its last binding goes." value={autoDelete} set={setAutoDelete} /><Check label="Internal" help="Clients cannot publish to it; other exchanges can." value={internal} set={setInternal} /></div>
    <Fold title="Other arguments"><Area label="As JSON" value={more} set={setMore} help={type === "x-delayed-message" ? <>For example <code>{'{"x-delayed-type": "direct"}'}</code>, which this type needs</> : undefined} /></Fold>
  </Dialog>;
}

export function ExchangePage(props: { vhost: string; name: string }) {
  const { vhost } = props;
  const name = props.name === "amq.default" ? "" : props.name, path = p`exchanges/${vhost}/${name || "amq.default"}`;
  useTitle(`Exchange ${exchangeTitle(name)}`);
  const { data: x, error, loading, reload } = usePoll<Exchange>(path + query(spanQuery("600")));
  const [deleting, setDeleting] = useState(false), [unused, setUnused] = useState(false);
  const chart = useMemo(() => x && flow(x.message_stats, [["In", 1, "publish_in"], ["Out", 2, "publish_out"]]), [x]);
  const title = <>Exchange <span class="name">{exchangeTitle(name)}</span></>;
  if (!x) return <><PageHead title={title} />{error?.status === 404 ? <Empty title="This exchange does not exist"><p>It was deleted, or you may not see the virtual host {vhost}. <a href="#/exchanges">Go to the exchanges</a>.</p></Empty> : <Failed error={error} what="the exchange" retry={reload} />}{loading && <Loading what="the exchange" />}</>;
  const builtin = name === "" || name.startsWith("amq.");
  return <div class="stack">
    <PageHead title={title} lead={<>in virtual host <b class="name">{vhost}</b> · {x.type} · <Features of={x.features} /></>}>{!builtin && <button class="danger" onClick={() => setDeleting(true)}>Delete</button>}</PageHead>
    <Failed error={error} what="the exchange" stale retry={reload} />
    {name === "" && <p class="note">Every queue is bound to the default exchange by its own name. It cannot be changed.</p>}
    <div class="grid2">
      <Card title="Messages a second, 10 minutes">{chart && chart.times.length > 0 ? <Chart label="Messages a second over time" unit="rate" height={150} {...chart} /> : <p class="empty">Nothing was published to it yet.</p>}</Card>
      <Card title="Details"><Facts of={[["Type", x.type], ["Durable", x.durable ? "yes" : "no"], ["Auto-delete", x.auto_delete ? "yes" : "no"], ["Internal", x.internal ? "yes" : "no"], ["Arguments", <Arguments of={x.arguments} />], ["Policy", x.policy ? <Tag>{x.policy}</Tag> : <span class="muted">none</span>], ...(x.messages_delayed !== undefined ? [["Delayed messages", count(x.messages_delayed)] as [string, string]] : [])]} /></Card>
    </div>
    <Bindings path={path + "/bindings/source"} title="Bound to it: where its messages go" side="to" vhost={vhost} add={name === "" ? undefined : { source: name }} />
    <Bindings path={path + "/bindings/destination"} title="It is bound to: where its messages come from" side="from" vhost={vhost} add={name === "" ? undefined : { destination: name, kind: "exchange" }} />
    {!x.internal && <Fold title="Publish a message"><Publish vhost={vhost} exchange={name} done={reload} /></Fold>}
    {deleting && <Dialog small title="Delete the exchange" danger label="Delete exchange" close={() => setDeleting(false)} action={async (go) => {
      await send("DELETE", path + query({ "if-unused": unused }));
      say(`The exchange ${name} is deleted.`);
      setDeleting(false); go("#/exchanges");
    }}>
      <p>Clients that publish to <b class="name">{name}</b> get an error. Queues that name it as their dead-letter exchange drop what dies. Its bindings go with it.</p>
      <Check label="Only if nothing is bound to it" value={unused} set={setUnused} />
    </Dialog>}
  </div>;
}
