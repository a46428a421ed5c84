// Search: the letters of a queue that match a filter, or of a group.
import { useMemo, useState } from "preact/hooks";
import { p } from "../api";
import { bytes, count, plural, reason } from "../format";
import { go, to, useRoute } from "../router";
import { useApp, usePoll, useTitle } from "../state";
import type { Filter, Job, OfficeQueue, Row } from "../types";
import { Area, Select, Text } from "../ui/form";
import { Bar, Card, Empty, Facts, Failed, Fold, Loading, PageHead, Spark, Tag, When } from "../ui/parts";
import { Table, useListState, useLocalList, useVHostColumn, type Column } from "../ui/table";
import { Actions, cause, filterKeys, filterQuery, GroupEditor, groupSelection, jobsOf, officeError, parked, reasonTag, stateTag, useGroup, useLetters } from "./office";
import { Transfer } from "./transfer";
import { Reveal } from "./who";
import { filterLabels, verbs } from "./words";

/** short is the last part of a class: the whole of it is on the letter's page. */
const short = (name: string) => /[^.]+$/.exec(name)?.[0] ?? name;

const columns: Column<Row>[] = [
  { key: "died", title: "Died", by: (r) => r.died_ms, cell: (r) => <When at={r.died_ms} /> },
  { key: "cause", title: "Cause", name: true, grow: true, by: cause, cell: (r) => <a href={to(["letters", r.vhost, r.queue, r.id])} title={cause(r)}>{r.error_class || r.error ? <>{r.error_class && <code>{short(r.error_class)}</code>} {r.error}</> : <span>{r.source ? reason(r.reason) : "parked by a consumer"}</span>}</a> },
  { key: "id", title: "Message ID", text: true, by: (r) => r.message_id, cell: (r) => r.message_id ? <code>{r.message_id}</code> : <span class="muted">none</span> },
  { key: "preview", title: "Body", text: true, cell: (r) => <span class="mono muted">{r.preview}</span> },
  { key: "source", title: "Died in", by: (r) => r.source, cell: (r) => r.source ? <span class="clip" title={r.source}>{r.source}</span> : <span class="muted" title={parked}>no queue</span> },
  { key: "reason", title: "Reason", by: (r) => r.reason, cell: (r) => reasonTag(r.reason, r.source) },
  { key: "times", title: "Times", num: true, by: (r) => r.times_died, help: "how often it died", cell: (r) => count(r.times_died) },
  { key: "size", title: "Size", num: true, by: (r) => r.size, cell: (r) => bytes(r.size) },
  { key: "state", title: "State", by: (r) => r.state, cell: (r) => r.state === "ready" ? <span class="muted">ready</span> : <Tag kind="warn">{r.state === "out" ? "with a consumer" : r.state}</Tag> },
  { key: "origin", title: "Origin", hide: true, text: true, by: (r) => r.exchange, cell: (r) => `${r.exchange || "(default exchange)"} ${(r.routing_keys ?? []).join(", ")}` },
  { key: "type", title: "Type", hide: true, by: (r) => r.type, cell: (r) => <span class="clip">{r.type}</span> },
  { key: "replays", title: "Sent back", hide: true, num: true, by: (r) => r.replays, cell: (r) => count(r.replays) },
];

/** ofGroup are the columns of letters of one cause: what all have in common stands above, so that there is room for what differs. */
const ofGroup = columns.map((c): Column<Row> => c.key === "cause" ? { ...c, grow: false, title: "Error", cell: (r) => <a href={to(["letters", r.vhost, r.queue, r.id])} title={cause(r)}>{r.error || (r.error_class ? <code>{short(r.error_class)}</code> : r.source ? reason(r.reason) : "parked by a consumer")}</a> }
  : c.key === "preview" ? { ...c, grow: true } : c.key === "source" || c.key === "reason" ? { ...c, hide: true } : c);

function filterOf(params: URLSearchParams): Filter {
  const f: Filter = {};
  for (const k of filterKeys) { const v = params.get(k); if (v) f[k] = v; }
  const where = params.getAll("where").filter(Boolean);
  if (where.length) f.where = where;
  return f;
}

export function LettersPage(props: { vhost?: string }) {
  const { params } = useRoute();
  const app = useApp();
  const vhost = props.vhost ?? (app.vhost || undefined);
  const queue = params.get("queue") ?? "";
  const filter = filterOf(params), order = params.get("order") ?? "newest";
  useTitle(filter.group ? "Group" : "Search");
  const queues = usePoll<OfficeQueue[]>(vhost === undefined ? "office/queues" : p`office/queues/${vhost}`, 10000);
  const [revealed, reveal] = useState(false);
  const { group, known: groupKnown, reload } = useGroup(vhost ?? "/", filter.group, revealed);
  const [editing, setEditing] = useState(false);
  const text = filterQuery(filter);
  const found = useLetters(vhost ?? "", vhost === undefined ? "" : queue, text, order, revealed);
  const list = useListState();
  const one = filter.group !== undefined;
  const shown = useMemo(() => (one ? ofGroup : columns).map((c) => ({ ...c, sort: undefined })), [one]);
  const loaded = useLocalList(found.rows, { ...list, columns: shown, text: (r) => [cause(r), r.message_id, r.preview, r.type, r.source].join(" ") });
  // Of a group the node knows how many letters there are; of other searches it knows when it has looked at all.
  const known = group && Object.keys(filter).length === 1 ? group.queues.find((q) => q.name === queue)?.letters : undefined;
  const source = { ...loaded, all: Math.max(loaded.all, known ?? 0), more: known === undefined && !!found.next };
  const [picked, setPicked] = useState(new Map<string, Row>());
  if (vhost === undefined || queue === "" && !group) return <>
    <PageHead title="Search" lead="Choose the queue whose letters you look for." />
    <Failed error={officeError(queues.error)} what="the queues" retry={queues.reload} />
    {queues.loading && <Loading what="the queues" />}
    {queues.data && <QueueChoice of={queues.data} />}
  </>;
  const at = queue || group!.queues[0]?.name || "";
  const here = (changes: Record<string, string | undefined>) => {
    const q = new URLSearchParams(params);
    for (const [k, v] of Object.entries(changes)) if (v) q.set(k, v); else q.delete(k);
    go(to(["letters", vhost]) + "?" + q);
  };
  if (queue === "" && at) { here({ queue: at }); return <Loading />; }
  const all = { vhost, queues: [at], filter, reveal: revealed, name: text === "" ? `all letters of ${at}` : `the letters of ${at} that match` };
  const chips = [...Object.entries(filter).flatMap(([k, v]) => k === "where" ? (v as string[]).map((w) => [k, w] as const) : [[k, v as string] as const])].filter(([k]) => k !== "group" || !group);
  return <div class="stack">
    <PageHead title={group ? <span class="cause">{group.error_class && <code>{group.error_class} </code>}{group.error || (group.error_class ? "" : <span class="plain-cause" style={{ display: "inline-block" }}>{reason(group.reason)}, no cause given</span>)}</span> : <>Letters in <span class="name">{at}</span></>} lead={group ? <>{plural(group.letters, "letter")}{group.source ? <> that died in <b class="name">{group.source}</b>: {reason(group.reason)}</> : ", parked by a consumer"}</> : <>in virtual host <b class="name">{vhost}</b></>}>
      <Actions of={[group && chips.length === 0 ? { ...groupSelection(group), reveal: revealed } : all]} done={found.again} />
      <Transfer vhost={vhost} queue={at} others={group?.queues.map((q) => q.name).filter((q) => q !== at)} filter={filter} queues={queues.data ?? []} done={found.again} />
      {group && <button onClick={() => setEditing(true)}>Note…</button>}
    </PageHead>
    <Reveal on={revealed} set={reveal} />
    {group && <Card title="Group" side={<Spark counts={group.arrivals?.counts} label="Arrivals" />}><div class="grid3">
      <Facts of={[["Letters", count(group.letters)], ["First", <When at={group.first_ms} clock />], ["Last", <When at={group.last_ms} clock />]]} />
      <Facts of={[["Message type", group.type || <span class="muted">none</span>], ["Are in", <ul class="plain">{group.queues.map((q) => <li key={q.name}><a href={to(["letters", vhost], { queue: q.name, group: group.id })} aria-current={q.name === at ? "true" : undefined} class="name">{q.name}</a> ({count(q.letters)})</li>)}</ul>]]} />
      <Facts of={[["State", stateTag(group.state)], ["Owner", group.owner || <span class="muted">nobody</span>], ["Note", group.note ? <span class="name">{group.note}</span> : <span class="muted">none</span>]]} />
    </div></Card>}
    <SearchForm key={text + at + order} vhost={vhost} queue={at} queues={queues.data ?? []} filter={filter} order={order} open={!filter.group || Object.keys(filter).some((k) => k !== "group")} />
    {chips.length > 0 && <div class="row"><span class="muted">Filter:</span>{chips.map(([k, v]) => <span key={k + v} class="tag ink">{k === "where" ? "" : `${filterLabels[k]}: `}{v}</span>)}<button class="quiet" onClick={() => go(to(["letters", vhost], { queue: at, group: group?.id }))}>Clear</button></div>}
    {found.busy && <div class="note" role="status"><div class="row apart"><span>Looking: {plural(found.rows.length, "letter")} found in {count(found.examined)}{found.total > 0 && ` of ${count(found.total)}`} messages</span><button onClick={found.stop}>Stop</button></div><Bar label="Messages examined" part={found.total ? found.examined / found.total : 0} /></div>}
    <Failed error={officeError(found.error)} what="the letters" retry={found.again} />
    {(!found.busy || found.rows.length > 0) && !found.error && <Table key={one ? "group" : "letters"} label="Letters" what="letters" choose={one ? "group" : "letters"} noFilter source={source} list={list} columns={shown} rowKey={(r) => r.id} href={(r) => to(["letters", r.vhost, r.queue, r.id])} picked={picked} setPicked={setPicked}
      tools={<div class="row"><button onClick={() => here({ order: order === "newest" ? "oldest" : undefined })}>{order === "newest" ? "Newest first" : "Oldest first"}</button><button class="quiet" onClick={found.again}>Search again</button></div>}
      empty={one && !group && groupKnown ? <Gone vhost={vhost} queue={at} group={filter.group!} /> : <Empty title={text ? "No letter matches" : "No letters in this queue"}><p>{count(found.examined)} messages were looked at. {text ? "Take a part of the filter away, or look in another queue." : ""}</p></Empty>} />}
    {!found.busy && (found.next || found.stopped) && <div class="row"><button onClick={found.more} disabled={!found.next}>Show more</button><span class="muted">{found.stopped === "bytes" || found.stopped === "time" ? `The search stopped after ${count(found.examined)} messages, so that it does not burden the node.` : `${count(found.rows.length)} are shown.`}</span></div>}
    {picked.size > 0 && <div class="selection" role="region" aria-label="Selected letters"><b>{plural(picked.size, "letter")}</b><Actions of={[{ vhost, queues: [at], ids: [...picked.keys()], reveal: revealed, name: plural(picked.size, "letter") }]} done={() => { setPicked(new Map()); found.again(); }} /><button class="quiet" onClick={() => setPicked(new Map())}>Clear</button></div>}
    {editing && group && <GroupEditor groups={[group]} close={() => setEditing(false)} done={reload} />}
  </div>;
}

/** Gone says what became of a group whose letters have left. */
function Gone(props: { vhost: string; queue: string; group: string }) {
  const { data } = usePoll<Job[] | { items: Job[] }>("office/jobs", 0);
  const jobs = jobsOf(data)?.filter((j) => j.vhost === props.vhost && [j.filter?.["group"]].flat().includes(props.group)) ?? [];
  return <Empty title="No letter of this group is left">
    {jobs.length > 0 ? <ul class="plain">{jobs.slice(0, 5).map((j) => <li key={j.id}>{plural(j.moved, "letter")}: <a href={to(["jobs", String(j.id)])}>job {j.id}</a>, {verbs[j.action]?.toLowerCase() ?? j.action}, begun by <b class="name">{j.by}</b></li>)}</ul>
      : <p>No job has taken all of them as a group: they were sent one by one or by queue, consumed, purged, or edited. The <a href="#/jobs">jobs</a> and the audit say what was done.</p>}
    <a class="button" href={to(["letters", props.vhost], { queue: props.queue })}>Letters in {props.queue}</a>
  </Empty>;
}

function SearchForm(props: { vhost: string; queue: string; queues: OfficeQueue[]; filter: Filter; order: string; open: boolean }) {
  const [f, set] = useState<Filter>(props.filter), [queue, setQueue] = useState(props.queue), [where, setWhere] = useState((props.filter.where ?? []).join("\n")), [order, setOrder] = useState(props.order);
  const field = (key: (typeof filterKeys)[number], label: string, help?: string) => <Text key={key} label={label} help={help} value={f[key] ?? ""} set={(v) => set({ ...f, [key]: v })} />;
  const names = props.queues.map((q) => q.name);
  return <Fold title="Search" open={props.open}><form class="stack" onSubmit={(e) => {
    e.preventDefault();
    const q = new URLSearchParams(filterQuery({ ...f, where: where.split("\n").map((w) => w.trim()).filter(Boolean) }));
    q.set("queue", queue);
    if (order !== "newest") q.set("order", order);
    go(to(["letters", props.vhost]) + "?" + q);
  }}>
    <div class="fields">
      <Select label="In queue" value={queue} set={setQueue} of={(names.includes(queue) ? names : [queue, ...names]).map((n) => [n, n] as const)} />
      {field("class", "Error class")}{field("error", "Error text", "Regular expression")}{field("body", "Body contains")}
      <Select label="Reason" value={f.reason ?? ""} set={(v) => set({ ...f, reason: v })} of={[["", "any"], ["rejected", "rejected"], ["expired", "expired"], ["maxlen", "queue was full"], ["delivery_limit", "failed too often"]]} />
      {field("newer_than", "Died in the last", "90s, 1h, 2d")}{field("older_than", "Died longer ago than", "90s, 1h, 2d")}{field("message_id", "Message ID")}
    </div>
    <Fold title="More" open={!!(f.source || f.exchange || f.key || f.type || f.died || f.size || f.job || where)}><div class="fields">
      {field("source", "Died in queue")}{field("exchange", "Origin exchange")}{field("key", "Origin key")}{field("type", "Message type")}{field("died", "Times died", ">=3")}{field("size", "Size in bytes", ">=1024")}{field("job", "Sent back by job")}
      <Select label="Order" value={order} set={setOrder} of={[["newest", "newest first"], ["oldest", "oldest first"]]} />
      <Area label="Headers and properties" rows={3} value={where} set={setWhere} wide help={<>One condition a line: <code>header.tenant=north</code>, <code>header.attempt&gt;=3</code>, <code>property.app_id~^shop</code>, or the name alone: it exists</>} />
    </div></Fold>
    <div class="row"><button type="submit" class="primary">Search</button></div>
  </form></Fold>;
}

/** diedIn are the queues in which the letters of a queue died; those that died in none were parked. */
const diedIn = (q: OfficeQueue) => [...(q.sources ?? []).filter(Boolean), ...(q.sources?.includes("") ? ["parked"] : [])].join(", ");

const queueColumns: Column<OfficeQueue>[] = [
  { key: "name", title: "Queue", name: true, by: (q) => q.name, cell: (q) => <a href={to(["letters", q.vhost], { queue: q.name })}>{q.name}</a> },
  { key: "vhost", title: "Virtual host", by: (q) => q.vhost, cell: (q) => <span class="clip" title={q.vhost}>{q.vhost}</span> },
  { key: "letters", title: "Letters", num: true, by: (q) => q.letters, cell: (q) => <b>{count(q.letters)}</b> },
  { key: "sources", title: "Died in", text: true, by: diedIn, cell: (q) => <span title={diedIn(q)}>{diedIn(q)}</span> },
  { key: "hour", title: "In the last hour", num: true, by: (q) => q.arrived?.["1h"] ?? 0, cell: (q) => count(q.arrived?.["1h"]) },
  { key: "day", title: "24 hours", num: true, by: (q) => q.arrived?.["24h"] ?? 0, cell: (q) => count(q.arrived?.["24h"]) },
  { key: "oldest", title: "Oldest", num: true, by: (q) => q.oldest_ms ?? 0, cell: (q) => <When at={q.oldest_ms} /> },
  { key: "consumers", title: "Consumers", num: true, by: (q) => q.consumers, cell: (q) => count(q.consumers) },
  { key: "others", title: "Other messages", num: true, by: (q) => q.others, cell: (q) => count(q.others) },
];

function QueueChoice(props: { of: OfficeQueue[] }) {
  const list = useListState({ sort: "letters", desc: true });
  const all = useVHostColumn(queueColumns);
  const source = useLocalList(props.of, { ...list, columns: all, text: (q) => q.name });
  return <Table label="Queues with letters" what="queues" source={source} list={list} columns={all} rowKey={(q) => `${q.vhost}/${q.name}`} href={(q) => to(["letters", q.vhost], { queue: q.name })} empty={<Empty title="No queue holds dead letters"><p>Queues appear here when a dead-letter exchange leads to them, or when they hold messages that died. To see how it works, run <code>bartleby demo --keep</code>.</p></Empty>} />;
}
