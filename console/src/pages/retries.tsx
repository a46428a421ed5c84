// What waits for a delayed retry: how much, when it is due, and whether it is late.
import { useMemo } from "preact/hooks";
import { p } from "../api";
import { count, exact, plural, span } from "../format";
import { to } from "../router";
import { useApp, useNow, usePoll, useTitle } from "../state";
import type { Curve, Retry } from "../types";
import { Bars } from "../ui/bars";
import { Card, Empty, PageHead, Spark, Tag } from "../ui/parts";
import { Table, useListState, useLocalList, useVHostColumn, type Column } from "../ui/table";
import { officeError } from "./office";

/** Due is a moment to come, as the time that is left. */
export function Due(props: { at: number | null | undefined }) {
  const now = useNow(1000);
  if (!props.at) return <span class="muted">–</span>;
  return <time dateTime={new Date(props.at).toISOString()} title={exact(props.at)}>{props.at <= now ? "now" : `in ${span(props.at - now)}`}</time>;
}

/** together adds curves of different times up to one of sixty steps. */
export function together(curves: Curve[]): Curve | undefined {
  const some = curves.filter((c) => c.counts.some((n) => n > 0));
  if (some.length === 0) return undefined;
  const from = Math.min(...some.map((c) => c.from_ms)), to = Math.max(...some.map((c) => c.from_ms + c.step_ms * c.counts.length)), step = Math.max(1, Math.ceil((to - from) / 60));
  const counts = Array<number>(60).fill(0);
  for (const c of some) c.counts.forEach((n, i) => { counts[Math.min(59, Math.floor((c.from_ms + i * c.step_ms - from) / step))]! += n; });
  return { from_ms: from, step_ms: step, counts };
}

const columns: Column<Retry>[] = [
  { key: "queue", title: "Queue", name: true, by: (r) => r.queue, cell: (r) => <a href={to(["queues", r.vhost, r.queue])}>{r.queue}</a> },
  { key: "waiting", title: "Waiting", num: true, by: (r) => r.waiting, cell: (r) => <b>{count(r.waiting)}</b> },
  { key: "next", title: "Next is due", num: true, by: (r) => r.next_ms ?? Infinity, cell: (r) => <Due at={r.next_ms} /> },
  { key: "late", title: "Late", num: true, help: "how long the one that is due longest has been due", by: (r) => r.late_ms, cell: (r) => r.late_ms > 1000 ? <Tag kind="warn">{span(r.late_ms)}</Tag> : <span class="muted">no</span> },
  { key: "due", title: "Due over time", cell: (r) => r.due ? <span title={`From ${exact(r.due.from_ms)}, for ${span(r.due.step_ms * r.due.counts.length)}`}><Spark counts={r.due.counts} label={`Due: ${plural(r.due.counts.reduce((a, b) => a + b, 0), "message")} within ${span(r.due.step_ms * r.due.counts.length)}`} /></span> : "" },
  { key: "until", title: "Last is due", num: true, by: (r) => end(r) ?? 0, cell: (r) => <Due at={end(r)} /> },
  { key: "vhost", title: "Virtual host", by: (r) => r.vhost, cell: (r) => <span class="clip">{r.vhost}</span> },
];

/** end is when the last of the curve is due, to a step. */
function end(r: Retry): number | undefined {
  if (r.waiting === 1) return r.next_ms ?? undefined; // the first is the last
  const i = r.due?.counts.findLastIndex((n) => n > 0) ?? -1;
  return i < 0 ? undefined : r.due!.from_ms + (i + 1) * r.due!.step_ms;
}

export function RetriesPage() {
  const { vhost } = useApp();
  useTitle("Retries");
  const { data, error, reload } = usePoll<Retry[]>(vhost ? p`office/retries/${vhost}` : "office/retries", 3000);
  const rows = useMemo(() => data?.filter((r) => r.waiting > 0), [data]);
  const list = useListState({ sort: "waiting", desc: true });
  const all = useVHostColumn(columns);
  const source = useLocalList(rows, { ...list, columns: all, text: (r) => r.queue, error: officeError(error), reload });
  const waiting = rows?.reduce((n, r) => n + r.waiting, 0) ?? 0, next = Math.min(...(rows ?? []).map((r) => r.next_ms ?? Infinity)), late = Math.max(0, ...(rows ?? []).map((r) => r.late_ms));
  const curve = together((rows ?? []).flatMap((r) => r.due ? [r.due] : []));
  return <div class="stack">
    <PageHead title="Retries" lead="Messages that failed and wait in their queue until they are delivered again." />
    {rows && rows.length > 0 && <>
      <div class="figures">
        <div><span class="value">{count(waiting)}</span><span class="label">waiting</span></div>
        <div><span class="value">{count(rows.length)}</span><span class="label">{rows.length === 1 ? "queue" : "queues"}</span></div>
        <div><span class="value"><Due at={Number.isFinite(next) ? next : null} /></span><span class="label">next is due</span></div>
        <div><span class="value">{late > 1000 ? span(late) : "0 s"}</span><span class="label">late at most</span></div>
      </div>
      {late > 1000 && <p class="note warn">Messages are due and not delivered yet: their consumers are busy, or none is there. A queue’s page shows its consumers.</p>}
      {curve && <Card title="When they are due" side={<span class="muted small">{span(curve.step_ms)} a bar</span>}><Bars label="Retries that are due" what="messages" from={curve.from_ms} step={curve.step_ms} kinds={[{ key: "due", name: "due", colour: 1, counts: curve.counts }]} /></Card>}
    </>}
    <Table label="Retries" what="queues" source={source} list={list} columns={all} rowKey={(r) => `${r.vhost}/${r.queue}`} href={(r) => to(["queues", r.vhost, r.queue])}
      empty={<Empty title="Nothing waits for a retry"><p>A queue with a delayed retry keeps a failed message for a while, longer each time, and delivers others in the meantime. Give a queue one with “Delay failed messages” when you <a href="#/queues">add it</a>, or with the key <code>delayed-retry-type</code> of a <a href="#/policies">policy</a>.</p><p>Letters that a rule will send back stand with their <a href="#/rules">rule</a>.</p></Empty>} />
  </div>;
}
