import { useMemo, useState } from "preact/hooks";
import { query } from "../api";
import { bytes, count, plural, rate, reason, span as spanText } from "../format";
import { to } from "../router";
import { may, stored, useApp, usePoll, useTitle } from "../state";
import type { Group, Groups, Job, Node, Overview } from "../types";
import { Chart, details, flow, rateOf, spanQuery, spans, through, waiting, type Span } from "../ui/chart";
import { Bar, Card, Choices, Facts, Failed, Loading, PageHead, Tag } from "../ui/parts";
import { Small } from "../ui/table";
import { lostAndFound } from "./office";

interface Todo { kind: "bad" | "warn" | "good"; title: string; text: string; href?: string; link?: string; }

const deathCauses: Record<string, string> = { rejected: "Rejected", expired: "Expired", maxlen: "Queue was full", delivery_limit: "Failed too often" };
const outcomes: Record<string, string> = { routed: "moved to a queue", no_dlx: "dropped: no dead-letter exchange", dlx_missing: "dropped: its exchange does not exist", no_route: "dropped: nothing is bound", cycle: "dropped: a cycle" };

export function OverviewPage() {
  const { session, vhost } = useApp();
  useTitle("Overview");
  const [span, setSpan] = useState<Span>(() => { const kept = stored.get("span") as Span; return spans.some(([s]) => s === kept) ? kept : "600"; });
  const monitoring = may(session, "monitoring");
  const overview = usePoll<Overview>("overview" + query(spanQuery(span)));
  const nodes = usePoll<Node[]>(monitoring ? "nodes" : null);
  const groups = usePoll<Groups>("office/groups" + (vhost ? "/" + encodeURIComponent(vhost) : "") + "?limit=5&state=new", 10000);
  const jobs = usePoll<Job[] | { items: Job[] }>("office/jobs", 10000);
  const o = overview.data, node = nodes.data?.[0];
  const charts = useMemo(() => o && {
    depth: waiting(o.queue_totals), rates: flow(o.message_stats, through("Published"), details(o.message_stats, "disk_reads")),
  }, [o]);
  if (!o) return <><PageHead title="Overview" /><Failed error={overview.error} what="the overview" retry={overview.reload} />{overview.loading && <Loading what="the overview" />}</>;
  const jobList = Array.isArray(jobs.data) ? jobs.data : jobs.data?.items ?? [];
  const todo = attention(o, node, groups.data, jobList, vhost === "" && session.vhosts.length > 1);
  const totals = o.object_totals;
  const now = (key: string) => (o.queue_totals[key] as number | undefined) ?? 0;
  const deaths = Object.entries(o.dead_letters ?? {}).flatMap(([reason, by]) => Object.entries(by).map(([outcome, n]) => ({ reason, outcome, n })));
  return <div class="stack">
    <PageHead title="Overview" lead={<>Node {session.node} · Bartleby {o.product_version}{session.strict && <> · <Tag title="The node behaves exactly as RabbitMQ 4.3.6">strict mode</Tag></>}</>} />
    <Failed error={overview.error} what="the overview" stale retry={overview.reload} />
    <Card title="What needs attention" bare>
      {todo.length > 0 ? <ul class="todo">{todo.map((t, i) => <li key={i}><span class={`dot ${t.kind}`} /><div><h3>{t.title}</h3><p class="muted">{t.text}</p></div>{t.href && <a class="button" href={t.href}>{t.link}</a>}</li>)}</ul>
        : <ul class="todo"><li><span class="dot good" /><div><h3>Nothing</h3><p class="muted">No alarm is on{groups.data ? ", and no group of dead letters is new" : ""}.</p></div></li></ul>}
    </Card>
    <div class="figures">
      <a href="#/queues?sort=-messages_ready"><span class="value">{count(now("messages_ready"))}</span><span class="label">ready</span></a>
      <a href="#/queues?sort=-messages_unacknowledged"><span class="value">{count(now("messages_unacknowledged"))}</span><span class="label">unacked</span></a>
      <div><span class="value">{rate(rateOf(o.message_stats, "publish") ?? 0)}</span><span class="label">published</span></div>
      <div><span class="value">{rate(rateOf(o.message_stats, "deliver_get") ?? 0)}</span><span class="label">delivered</span></div>
      <a href="#/queues"><span class="value">{count(totals["queues"])}</span><span class="label">queues</span></a>
      <a href="#/exchanges"><span class="value">{count(totals["exchanges"])}</span><span class="label">exchanges</span></a>
      <a href="#/connections"><span class="value">{count(totals["connections"])}</span><span class="label">connections</span></a>
      <a href="#/channels"><span class="value">{count(totals["channels"])}</span><span class="label">channels</span></a>
      <a href="#/consumers"><span class="value">{count(totals["consumers"])}</span><span class="label">consumers</span></a>
    </div>
    <div class="row apart"><h2>Traffic</h2><Choices label="Time shown" value={span} of={spans} set={(s) => { stored.set("span", s); setSpan(s); }} /></div>
    {charts && <div class="grid2">
      <Card title="Messages in queues"><Chart label="Messages in queues over time" unit="count" {...charts.depth} /></Card>
      <Card title="Messages a second"><Chart label="Messages a second over time" unit="rate" {...charts.rates} /></Card>
    </div>}
    <div class="grid2">
      {node && <Card title="Node" side={<span class="muted small">up {spanText(node.uptime)}</span>}>
        <div class="stack">
          <Resource name="Memory" used={node.mem_used} limit={node.mem_limit} alarm={node.mem_alarm} text={`${bytes(node.mem_used)} of ${bytes(node.mem_limit)} before publishers are blocked`} />
          <Resource name="Disk" used={node.disk_free_limit} limit={node.disk_free} alarm={node.disk_free_alarm} text={`${bytes(node.disk_free)} free; publishers are blocked below ${bytes(node.disk_free_limit)}`} />
          <Resource name="Open files" used={node.fd_used} limit={node.fd_total} alarm={false} text={`${count(node.fd_used)} of ${count(node.fd_total)}`} />
          <Facts of={[["Node", <span class="name">{node.name}</span>], ["Versions", `Bartleby ${o.product_version}, as RabbitMQ ${o.rabbitmq_version}`], ["Data", <code class="name">{node.db_dir}</code>], ["Processors", count(node.processors)]]} />
        </div>
      </Card>}
      <div class="stack">
        <Card title="Where messages died" side={<a class="small" href="#/inbox">Inbox</a>} bare>
          <Small label="Deaths" head={["Reason", "What became of them", ["Messages", "num"]]} empty="No message has died since the node started." rows={deaths.map((d) => [deathCauses[d.reason] ?? d.reason, outcomes[d.outcome] ?? d.outcome.replaceAll("_", " "), count(d.n)])} />
        </Card>
        <Card title="Ports" bare>
          <Small label="Ports" head={["Protocol", "Address", ["Port", "num"]]} rows={o.listeners.map((l) => [<>{l.protocol}{l.tls && <> <Tag kind="good">TLS</Tag></>}</>, l.ip_address, l.port])} />
        </Card>
      </div>
    </div>
  </div>;
}

function Resource(props: { name: string; used: number; limit: number; alarm: boolean; text: string }) {
  const part = props.limit > 0 ? props.used / props.limit : 0;
  return <div><div class="row apart"><h3>{props.name}</h3>{props.alarm ? <Tag kind="bad">alarm</Tag> : null}</div><Bar label={props.name} part={part} kind={props.alarm ? "bad" : part > .8 ? "warn" : undefined} /><p class="muted small">{props.text}</p></div>;
}

/** attention lists what somebody should look at, the worst first. */
function attention(o: Overview, node: Node | undefined, groups: Groups | undefined, jobs: Job[], several: boolean): Todo[] {
  const where = (vhost: string) => several ? ` in virtual host ${vhost}` : "";
  const list: Todo[] = [];
  if (node?.mem_alarm) list.push({ kind: "bad", title: "Memory alarm: publishers are blocked", text: `The node uses ${bytes(node.mem_used)}; its limit is ${bytes(node.mem_limit)}. Consume or purge queues, or raise vm_memory_high_watermark.`, href: "#/queues?sort=-message_bytes", link: "Largest queues" });
  if (node?.disk_free_alarm) list.push({ kind: "bad", title: "Disk alarm: publishers are blocked", text: `${bytes(node.disk_free)} are free in ${node.db_dir}; the limit is ${bytes(node.disk_free_limit)}. Free disk, or lower disk_free_limit.`, href: "#/queues?sort=-message_bytes", link: "Largest queues" });
  const lost = Object.values(o.dead_letters ?? {}).flatMap((by) => Object.entries(by)).filter(([outcome]) => outcome === "dlx_missing" || outcome === "no_route").reduce((n, [, c]) => n + c, 0);
  if (lost > 0) list.push({ kind: "bad", title: `${plural(lost, "dead letter was", "dead letters were")} dropped`, text: "A dead-letter exchange does not exist, or nothing is bound to it. Look at the queues with DLX in their features.", href: "#/queues", link: "Queues" });
  const broken = o.breakers?.queues.slice(0, 5) ?? [], more = (o.breakers?.open ?? 0) - broken.length;
  for (const q of broken) list.push({ kind: "bad", title: q.state === "open" ? `Queue ${q.name}${where(q.vhost)} delivers nothing: its breaker is open` : `Queue ${q.name}${where(q.vhost)} delivers one message at a time: its breaker tries`, text: q.why ?? "", href: to(["queues", q.vhost, q.name]), link: "Show queue" });
  if (more > 0) list.push({ kind: "bad", title: `${plural(more, "more breaker is", "more breakers are")} open`, text: "bartleby_queue_breaker_open has all of them by queue.", href: "#/queues", link: "Queues" });
  for (const j of jobs) if (j.state === "halted" || j.state === "failed") list.push({ kind: "bad", title: `Job ${j.id} is ${j.state}`, text: j.why ? j.why.charAt(0).toUpperCase() + j.why.slice(1) : j.reason, href: to(["jobs", String(j.id)]), link: "Show job" });
  const fresh = (groups?.items ?? []).filter((g: Group) => g.state === "new");
  for (const g of fresh.slice(0, 5)) list.push({ kind: "warn", title: `${plural(g.letters, "new dead letter")} ${g.source ? `from ${g.source}` : `in ${g.queues?.[0]?.name ?? "a queue"}`}${where(g.vhost)}`, text: `${g.queues?.some((q) => q.name === lostAndFound) ? "In the lost and found, since nothing takes them. " : ""}${[g.error_class, g.error].filter(Boolean).join(": ") || `No cause was given: ${reason(g.reason)}`}`, href: to(["letters", g.vhost], { group: g.id, queue: g.queues?.[0]?.name }), link: "Show letters" });
  const others = (groups?.total ?? fresh.length) - Math.min(5, fresh.length);
  if (others > 0) list.push({ kind: "warn", title: `${plural(others, "more group")} of new dead letters`, text: "All are in the inbox.", href: "#/inbox", link: "Inbox" });
  if (node && !node.mem_alarm && node.mem_limit > 0 && node.mem_used > .85 * node.mem_limit) list.push({ kind: "warn", title: "Memory is nearly at its limit", text: `${bytes(node.mem_used)} of ${bytes(node.mem_limit)}. At the limit publishers are blocked.` });
  if (node && !node.disk_free_alarm && node.disk_free_limit > 0 && node.disk_free < 2 * node.disk_free_limit) list.push({ kind: "warn", title: "Disk is nearly full", text: `${bytes(node.disk_free)} are free; below ${bytes(node.disk_free_limit)} publishers are blocked.` });
  return list;
}
