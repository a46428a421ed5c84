import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { p, send } from "../api";
import { bytes, count, ofClient, rate } from "../format";
import { to } from "../router";
import { useApp, usePoll, useTitle } from "../state";
import type { Channel, Connection, Session } from "../types";
import { rateOf } from "../ui/chart";
import { Dialog } from "../ui/dialog";
import { Text } from "../ui/form";
import { Arguments, Card, Empty, Facts, Failed, Loading, PageHead, QueueLink, Tag, When, Zero } from "../ui/parts";
import { Small, Table, useListState, useVHostColumn, useLocalList, useServerList, type Column } from "../ui/table";
import { say } from "../ui/toast";
import { ConsumerTable } from "./consumers";

const state = (s: string) => <Tag kind={s === "running" ? "good" : s === "blocked" ? "bad" : "warn"}>{s}</Tag>;
const product = (c: Connection) => [c.client_properties["product"], c.client_properties["version"]].filter((v) => typeof v === "string").join(" ");

const columns: Column<Connection>[] = [
  { key: "name", title: "Name", sort: "name", name: true, cell: (c) => <a href={to(["connections", c.name])} title={c.name}>{c.user_provided_name ? `${c.user_provided_name} · ${c.peer_host}:${c.peer_port}` : c.name}</a> },
  { key: "vhost", title: "Virtual host", sort: "vhost", cell: (c) => c.vhost },
  { key: "user", title: "User", sort: "user", cell: (c) => <span class="clip">{c.user}</span> },
  { key: "state", title: "State", sort: "state", cell: (c) => state(c.state) },
  { key: "protocol", title: "Protocol", sort: "protocol", cell: (c) => c.protocol },
  { key: "tls", title: "TLS", sort: "ssl", cell: (c) => c.ssl ? "yes" : <span class="muted">no</span> },
  { key: "client", title: "Client", text: true, cell: product },
  { key: "channels", title: "Channels", help: "or sessions, in AMQP 1.0", sort: "channels", num: true, cell: (c) => count(c.channels) },
  { key: "in", title: "From client", sort: "recv_oct_details.rate", num: true, cell: (c) => <Zero n={c.recv_oct_details?.rate} text={bytes(c.recv_oct_details?.rate ?? 0) + "/s"} /> },
  { key: "out", title: "To client", sort: "send_oct_details.rate", num: true, cell: (c) => <Zero n={c.send_oct_details?.rate} text={bytes(c.send_oct_details?.rate ?? 0) + "/s"} /> },
  { key: "since", title: "Connected", sort: "connected_at", num: true, cell: (c) => <When at={c.connected_at} /> },
  { key: "heartbeat", title: "Heartbeat", sort: "timeout", num: true, hide: true, cell: (c) => `${c.timeout} s` },
];

export function ConnectionsPage() {
  const { vhost } = useApp();
  useTitle("Connections");
  const list = useListState();
  const source = useServerList<Connection>(vhost ? p`vhosts/${vhost}/connections` : "connections", list);
  return <>
    <PageHead title="Connections" lead="Clients of AMQP that are connected now." />
    <Table label="Connections" what="connections" choose="connections" server source={source} list={list} columns={useVHostColumn(columns)} rowKey={(c) => c.name} href={(c) => to(["connections", c.name])} empty={<Empty title="Nobody is connected"><p>Clients of AMQP appear here. The ports that they can use are on the <a href="#/">overview</a>.</p></Empty>} />
  </>;
}

export function ConnectionPage(props: { name: string }) {
  const path = p`connections/${props.name}`;
  useTitle("Connection");
  const { data: c, error, loading, reload } = usePoll<Connection>(path);
  const hasSessions = !!c?.protocol.endsWith("AMQP 1-0"), parts = hasSessions ? "sessions" : "channels";
  const channels = usePoll<Channel[]>(c && !hasSessions ? path + "/channels" : null);
  const sessions = usePoll<Session[]>(hasSessions ? path + "/sessions" : null);
  const [closing, setClosing] = useState(false), [why, setWhy] = useState("");
  const title = <>Connection <span class="name">{c?.user_provided_name || props.name}</span></>;
  if (!c) return <><PageHead title={title} />{error?.status === 404 ? <Empty title="This connection is closed"><p><a href="#/connections">Go to the connections</a>.</p></Empty> : <Failed error={error} what="the connection" retry={reload} />}{loading && <Loading what="the connection" />}</>;
  return <div class="stack">
    <PageHead title={title} lead={<span class="name">{c.name}</span>}><button class="danger" onClick={() => setClosing(true)}>Close connection</button></PageHead>
    <Failed error={error} what="the connection" stale retry={reload} />
    <div class="figures">
      <div><span class="value">{bytes(c.recv_oct_details?.rate ?? 0)}/s</span><span class="label">from the client</span></div><div><span class="value">{bytes(c.send_oct_details?.rate ?? 0)}/s</span><span class="label">to the client</span></div>
      <div><span class="value">{bytes(c.recv_oct)}</span><span class="label">received</span></div><div><span class="value">{bytes(c.send_oct)}</span><span class="label">sent</span></div><div><span class="value">{count(c.channels)}</span><span class="label">{parts}</span></div>
    </div>
    <div class="grid2">
      <Card title="Details"><Facts of={[["State", state(c.state)], ["User", <span class="name">{c.user}</span>], ["Virtual host", <span class="name">{c.vhost}</span>], ["Client", `${c.peer_host}:${c.peer_port}`], ["Node", `${c.host}:${c.port}`], ["Connected", <When at={c.connected_at} clock />], ["Protocol", c.protocol], ...(c.container_id ? [["Container", <span class="name">{c.container_id}</span>] as [string, ComponentChildren]] : []), ["Login by", c.auth_mechanism], ["TLS", c.ssl ? `${c.ssl_protocol ?? ""} ${c.ssl_cipher ?? ""} ${c.peer_cert_subject ?? ""}` : "no"], ["Heartbeat", c.timeout ? `${c.timeout} s` : "off"], ["Largest frame", bytes(c.frame_max)], [hasSessions ? "Highest channel number" : "Channels at most", count(c.channel_max)]]} /></Card>
      <Card title="What the client says of itself"><Arguments of={c.client_properties} /></Card>
    </div>
    {hasSessions ? <SessionCards of={sessions.data} vhost={c.vhost} /> : <div><h2 style={{ marginBottom: "8px" }}>Channels</h2><ChannelList of={channels.data} /></div>}
    {closing && <Dialog small title="Close the connection" danger label="Close connection" close={() => setClosing(false)} action={async (go) => {
      await send("DELETE", path, undefined, why ? { "X-Reason": why.replace(/[^\x20-\x7e]/g, "?") } : undefined);
      say("The connection is closed.");
      setClosing(false); go("#/connections");
    }}>
      <p>Its {count(c.channels)} {parts} and their consumers end, and what they have not acknowledged goes back to its queues. Most clients connect again at once.</p>
      <Text label="Reason" value={why} set={setWhy} help="The client and the log get it. Letters without accents only." autofocus />
    </Dialog>}
  </div>;
}

/** SessionCards shows each session of a connection of AMQP 1.0, with its links. */
function SessionCards(props: { of: Session[] | undefined; vhost: string }) {
  if (!props.of) return null;
  if (props.of.length === 0) return <Empty title="It has no sessions" />;
  return <>{props.of.map((s) => <Card key={s.channel_number} title={`Session ${s.channel_number}`} bare>
    <Small label={`Publishers of session ${s.channel_number}`} wrapped empty="The client publishes nothing here." head={["Publishes to", "Link", "Settled", ["Published", "num"], ["Credit", "num"], ["Unconfirmed", "num"]]}
      rows={s.incoming_links.map((l) => [<span class="name">{l.target_address ?? "the address in each message"}</span>, <span class="name">{l.link_name}</span>, l.snd_settle_mode, count(l.delivery_count), count(l.credit), count(l.unconfirmed_messages)])} />
    <Small label={`Consumers of session ${s.channel_number}`} wrapped empty="The client consumes nothing here." head={["Consumes", "Link", "Acknowledges", ["Delivered", "num"], ["Credit", "num"], "State"]}
      rows={s.outgoing_links.map((l) => [l.queue_name ? <QueueLink vhost={props.vhost} name={l.queue_name} /> : <span class="name">{l.source_address}</span>, <span class="name">{l.link_name}</span>, l.send_settled ? "no" : "yes", count(l.delivery_count), count(l.credit),
        l.consumer_timeout ? <Tag kind="bad" title="It has not settled deliveries in time: they went back to the queue.">timed out</Tag> : l.credit === 0 ? <Tag title="The client takes no more messages now.">no credit</Tag> : <Tag kind="good">ready</Tag>])} />
    <p class="muted" style={{ padding: "8px 16px" }}>{count(s.outgoing_unsettled_deliveries)} deliveries are not settled. The client may send {count(s.incoming_window)} transfers, and takes {count(s.remote_incoming_window)}.</p>
  </Card>)}</>;
}

const speed = (key: string) => (c: Channel) => { const n = rateOf(c.message_stats, key); return <Zero n={n} text={n === undefined ? "" : rate(n)} />; };
const channelColumns: Column<Channel>[] = [
  { key: "name", title: "Channel", sort: "name", by: (c) => c.name, name: true, cell: (c) => <a href={to(["channels", c.name])} title={c.name}>{ofClient(c.name)}</a> },
  { key: "vhost", title: "Virtual host", sort: "vhost", by: (c) => c.vhost, cell: (c) => c.vhost },
  { key: "user", title: "User", sort: "user", by: (c) => c.user, cell: (c) => <span class="clip">{c.user}</span> },
  { key: "mode", title: "Mode", help: "C confirms, T transactions", cell: (c) => <>{c.confirm && <Tag title="publisher confirms">C</Tag>}{c.transactional && <Tag title="transactions">T</Tag>}</> },
  { key: "state", title: "State", sort: "state", cell: (c) => c.idle_since ? <span class="muted">idle</span> : state(c.state) },
  { key: "consumers", title: "Consumers", sort: "consumer_count", num: true, by: (c) => c.consumer_count, cell: (c) => <Zero n={c.consumer_count} text={count(c.consumer_count)} /> },
  { key: "prefetch", title: "Prefetch", sort: "prefetch_count", num: true, by: (c) => c.prefetch_count, cell: (c) => <Zero n={c.prefetch_count} text={count(c.prefetch_count)} /> },
  { key: "unacked", title: "Unacked", sort: "messages_unacknowledged", num: true, by: (c) => c.messages_unacknowledged, cell: (c) => <Zero n={c.messages_unacknowledged} text={count(c.messages_unacknowledged)} /> },
  { key: "unconfirmed", title: "Unconfirmed", sort: "messages_unconfirmed", num: true, by: (c) => c.messages_unconfirmed, cell: (c) => <Zero n={c.messages_unconfirmed} text={count(c.messages_unconfirmed)} /> },
  { key: "publish", title: "Published", sort: "message_stats.publish_details.rate", num: true, cell: speed("publish") },
  { key: "deliver", title: "Delivered", sort: "message_stats.deliver_get_details.rate", num: true, cell: speed("deliver_get") },
  { key: "ack", title: "Acked", sort: "message_stats.ack_details.rate", num: true, cell: speed("ack") },
];

function ChannelList(props: { of: Channel[] | undefined }) {
  const list = useListState({ desc: false }, "ch-");
  const local = channelColumns.filter((c) => c.key !== "vhost").map((c) => ({ ...c, sort: undefined }));
  const source = useLocalList(props.of, { ...list, columns: local, text: (c) => c.name });
  return <Table label="Channels" what="channels" noFilter source={source} list={list} columns={local} rowKey={(c) => c.name} empty={<Empty title="It has no channels" />} />;
}

export function ChannelsPage() {
  const { vhost } = useApp();
  useTitle("Channels");
  const list = useListState();
  const source = useServerList<Channel>(vhost ? p`vhosts/${vhost}/channels` : "channels", list);
  return <>
    <PageHead title="Channels" lead="Channels of AMQP 0-9-1. Sessions of AMQP 1.0 and their links are on the pages of their connections." />
    <Table label="Channels" what="channels" choose="channels" server source={source} list={list} columns={useVHostColumn(channelColumns)} rowKey={(c) => c.name} href={(c) => to(["channels", c.name])} empty={<Empty title="There are no channels"><p>Clients open channels on their connections to publish and to consume.</p></Empty>} />
  </>;
}

export function ChannelPage(props: { name: string }) {
  useTitle("Channel");
  const { data: c, error, loading, reload } = usePoll<Channel>(p`channels/${props.name}`);
  const title = <>Channel <span class="name">{props.name}</span></>;
  if (!c) return <><PageHead title={title} />{error?.status === 404 ? <Empty title="This channel is closed"><p><a href="#/channels">Go to the channels</a>.</p></Empty> : <Failed error={error} what="the channel" retry={reload} />}{loading && <Loading what="the channel" />}</>;
  return <div class="stack">
    <PageHead title={title} lead={<>of connection <a class="name" href={to(["connections", c.connection_details.name])}>{c.connection_details.name}</a></>} />
    <Failed error={error} what="the channel" stale retry={reload} />
    <div class="figures">
      <div><span class="value">{rate(rateOf(c.message_stats, "publish") ?? 0)}</span><span class="label">published</span></div><div><span class="value">{rate(rateOf(c.message_stats, "deliver_get") ?? 0)}</span><span class="label">delivered</span></div><div><span class="value">{rate(rateOf(c.message_stats, "ack") ?? 0)}</span><span class="label">acknowledged</span></div>
      <div><span class="value">{count(c.messages_unacknowledged)}</span><span class="label">unacknowledged</span></div><div><span class="value">{count(c.messages_unconfirmed)}</span><span class="label">unconfirmed</span></div>
    </div>
    <Card title="Details"><Facts of={[["User", <span class="name">{c.user}</span>], ["Virtual host", <span class="name">{c.vhost}</span>], ["Confirms", c.confirm ? "yes" : "no"], ["Transactions", c.transactional ? `yes; ${count(c.messages_uncommitted)} publishes and ${count(c.acks_uncommitted)} acknowledgements are not committed` : "no"], ["Prefetch", c.prefetch_count ? count(c.prefetch_count) : "no limit"], ["State", c.idle_since ? <>idle, last used <When at={Date.parse(c.idle_since)} /></> : c.state]]} /></Card>
    <Card title={`Consumers (${count(c.consumer_count)})`} bare><ConsumerTable of={c.consumer_details ?? []} /></Card>
  </div>;
}
