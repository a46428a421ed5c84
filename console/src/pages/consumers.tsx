import { count, ofClient, span } from "../format";
import { p } from "../api";
import { to } from "../router";
import { useApp, useTitle } from "../state";
import type { Consumer } from "../types";
import { Arguments, Empty, PageHead, QueueLink, Tag } from "../ui/parts";
import { Small, Table, useListState, useServerList, useVHostColumn, type Column } from "../ui/table";

/** channel is a link to a consumer's channel; a session of AMQP 1.0 has no page but its connection's. */
const channel = ({ channel_details: c }: Consumer, short = false) => {
  const [href, text] = c.name ? [to(["channels", c.name]), c.name] : [to(["connections", c.connection_name]), `${c.connection_name}, session ${c.number}`];
  return <a class="name" href={href} title={text}>{short ? ofClient(text) : text}</a>;
};
const status = (c: Consumer) => c.activity_status === "up" ? <Tag kind="good">up</Tag> : c.activity_status === "single_active" ? <Tag kind="good">active alone</Tag> : <Tag>waiting</Tag>;

/** ConsumerTable shows the consumers of a queue or of a channel. */
export function ConsumerTable(props: { of: Consumer[]; queue?: boolean }) {
  return <Small label="Consumers" wrapped empty="None: nobody takes messages from it." head={[props.queue ? "Channel" : "Queue", "Tag", "Acknowledges", "Exclusive", ["Prefetch", "num"], "State", "Arguments"]}
    rows={props.of.slice(0, 500).map((c) => [props.queue ? channel(c) : <QueueLink vhost={c.queue.vhost} name={c.queue.name} />, <code class="name">{c.consumer_tag}</code>, c.ack_required ? "yes" : "no", c.exclusive ? "yes" : "no", count(c.prefetch_count), status(c), <Arguments of={c.arguments} />])} />;
}

const columns: Column<Consumer>[] = [
  { key: "queue", title: "Queue", sort: "queue.name", name: true, cell: (c) => <a href={to(["queues", c.queue.vhost, c.queue.name])}>{c.queue.name}</a> },
  { key: "vhost", title: "Virtual host", sort: "queue.vhost", cell: (c) => <span class="clip" title={c.queue.vhost}>{c.queue.vhost}</span> },
  { key: "channel", title: "Channel", sort: "channel_details.name", name: true, cell: (c) => channel(c, true) },
  { key: "user", title: "User", sort: "channel_details.user", cell: (c) => c.channel_details.user },
  { key: "prefetch", title: "Prefetch", sort: "prefetch_count", num: true, cell: (c) => count(c.prefetch_count) },
  { key: "ack", title: "Acknowledges", sort: "ack_required", cell: (c) => c.ack_required ? "yes" : "no" },
  { key: "status", title: "State", sort: "activity_status", cell: status },
  { key: "tag", title: "Tag", sort: "consumer_tag", text: true, cell: (c) => <code title={c.consumer_tag}>{c.consumer_tag}</code> },
  { key: "timeout", title: "Timeout", sort: "consumer_timeout", num: true, hide: true, cell: (c) => c.consumer_timeout ? span(c.consumer_timeout) : "none" },
];

export function ConsumersPage() {
  const { vhost } = useApp();
  useTitle("Consumers");
  const list = useListState();
  const source = useServerList<Consumer>(vhost ? p`consumers/${vhost}` : "consumers", list);
  return <>
    <PageHead title="Consumers" lead="Clients that take messages from queues." />
    <Table label="Consumers" what="consumers" choose="consumers" server noFilter source={source} list={list} columns={useVHostColumn(columns)} rowKey={(c) => `${c.channel_details.connection_name} ${c.channel_details.number} ${c.consumer_tag}`} empty={<Empty title="Nobody consumes"><p>No client takes messages from a queue now, so messages stay where they are.</p></Empty>} />
  </>;
}
