import { p, send } from "../api";
import { count, plural } from "../format";
import { to } from "../router";
import { usePoll, useTitle } from "../state";
import type { Job } from "../types";
import { useConfirm } from "../ui/dialog";
import { Arguments, Bar, Card, Empty, Facts, Failed, Loading, Note, PageHead, QueueLink, When } from "../ui/parts";
import { Small, Table, useListState, useLocalList, type Column } from "../ui/table";
import { complain, say } from "../ui/toast";
import { jobsOf, officeError, stateTag } from "./office";

const verbs: Record<string, string> = { replay: "Replay", move: "Move", discard: "Discard" };
const title = (j: Job) => `${verbs[j.action] ?? j.action} from ${(j.queues ?? []).join(", ")}`;
const handled = (j: Job) => j.moved + j.unroutable + j.refused + j.no_origin + j.too_often + j.gone;
const ended = (j: Job) => ["done", "cancelled", "failed"].includes(j.state);

const columns: Column<Job>[] = [
  { key: "id", title: "Job", num: true, by: (j) => j.made_ms, cell: (j) => <a href={to(["jobs", String(j.id)])}>{j.id}</a> },
  { key: "what", title: "What", name: true, by: title, cell: (j) => <a href={to(["jobs", String(j.id)])} title={title(j)}>{title(j)}</a> },
  { key: "state", title: "State", by: (j) => j.state, cell: (j) => stateTag(j.state) },
  { key: "progress", title: "Progress", cell: (j) => <div class="row nowrap"><div style={{ width: "80px" }}><Bar label={`Progress of job ${j.id}`} part={j.planned ? handled(j) / j.planned : ended(j) ? 1 : 0} /></div><span class="small">{count(handled(j))} of {count(j.planned)}</span></div> },
  { key: "moved", title: "Moved", num: true, by: (j) => j.moved, cell: (j) => count(j.moved) },
  { key: "again", title: "Died again", num: true, by: (j) => j.outcomes?.died_again ?? 0, cell: (j) => count(j.outcomes?.died_again) },
  { key: "by", title: "By", by: (j) => j.by, cell: (j) => <span class="clip">{j.by}</span> },
  { key: "reason", title: "Reason", text: true, by: (j) => j.reason, cell: (j) => j.reason },
  { key: "made", title: "Made", num: true, by: (j) => j.made_ms, cell: (j) => <When at={j.made_ms} /> },
];

export function JobsPage() {
  useTitle("Jobs");
  const { data, error, reload } = usePoll<Job[] | { items: Job[] }>("office/jobs", 2000);
  const list = useListState({ sort: "made", desc: true });
  const source = useLocalList(jobsOf(data), { ...list, columns, text: (j) => `${title(j)} ${j.by} ${j.reason} ${j.state}`, error: officeError(error), reload });
  return <>
    <PageHead title="Jobs" lead="Letters that are sent back, moved or discarded. A job goes on after a restart of the node." />
    <Table label="Jobs" what="jobs" choose="jobs" source={source} list={list} columns={columns} rowKey={(j) => String(j.id)} href={(j) => to(["jobs", String(j.id)])} empty={<Empty title="There are no jobs"><p>A job begins with letters: choose a group in the <a href="#/inbox">inbox</a>, or letters in the <a href="#/letters">search</a>, and say what shall happen to them.</p></Empty>} />
  </>;
}

export function JobPage(props: { id: string }) {
  const path = p`office/jobs/${props.id}`;
  useTitle(`Job ${props.id}`);
  const { data: j, error, loading, reload } = usePoll<Job>(path, 1000);
  const [confirm, ask] = useConfirm();
  if (!j) return <><PageHead title={`Job ${props.id}`} />{error?.status === 404 ? <Empty title="There is no such job"><p>The node keeps the last thousand. <a href="#/jobs">Go to the jobs</a>.</p></Empty> : <Failed error={error} what="the job" retry={reload} />}{loading && <Loading what="the job" />}</>;
  const act = async (what: string) => { try { await send("POST", `${path}/${what}`); say(what === "pause" ? "The job pauses." : what === "resume" ? "The job goes on." : "The job is cancelled."); reload(); } catch (e) { complain(`The job cannot ${what}`, e); } };
  const o = j.outcomes, left = Math.max(0, j.planned - handled(j));
  return <div class="stack">
    <PageHead title={<>Job {j.id}: {title(j)}</>} lead={<>{stateTag(j.state)} by <b class="name">{j.by}</b>{j.reason && <>: “<span class="name">{j.reason}</span>”</>}</>}>
      {j.state === "running" && <button onClick={() => act("pause")}>Pause</button>}
      {(j.state === "paused" || j.state === "halted") && <button class="primary" onClick={() => act("resume")}>Resume</button>}
      {!ended(j) && <button class="danger" onClick={() => ask({ title: "Cancel the job", label: "Cancel the job", danger: true, text: <p>{plural(j.moved, "letter")} have been handled and stay where they are now. {plural(left, "letter")} stay in {j.queues.join(", ")}. A cancelled job cannot go on.</p>, action: async () => { await send("POST", path + "/cancel"); reload(); } })}>Cancel</button>}
    </PageHead>
    <Failed error={error} what="the job" stale retry={reload} />
    {j.why && <Note kind={j.state === "halted" || j.state === "failed" ? "bad" : "warn"} title={`The job is ${j.state}`}>{j.why}{j.state === "halted" && " Resume it when the cause is mended, or cancel it."}</Note>}
    <Card title="Progress" side={<span class="muted small">{count(handled(j))} of {count(j.planned)}</span>}><Bar label="Progress" part={j.planned ? handled(j) / j.planned : ended(j) ? 1 : 0} kind={j.state === "halted" || j.state === "failed" ? "bad" : undefined} /></Card>
    <div class="grid2">
      <Card title={j.action === "discard" ? "Discarded" : "What was sent"} bare><Small label="Letters" head={["Letters", ["Count", "num"]]} rows={[
        [j.action === "discard" ? "moved to bartleby.archive" : "moved", count(j.moved)], ...([["unroutable: no queue takes them", j.unroutable], ["refused by the target", j.refused], ["without a known origin", j.no_origin], ["sent back too often", j.too_often], ["gone before", j.gone]] as [string, number][]).filter(([, n]) => n > 0).map(([t, n]) => [t, count(n)]), ["left to do", count(ended(j) ? 0 : left)],
      ]} /></Card>
      {o && j.action !== "discard" && <Card title="What became of them" bare><Small label="Outcomes" head={["Outcome", ["Letters", "num"]]} rows={[
        ["acknowledged by a consumer", count(o.acknowledged)], ["died again", o.died_again ? <a href={to(["letters", j.vhost], { queue: j.queues[0], job: String(j.id) })}>{count(o.died_again)}</a> : "0"], ["still waiting", count(o.waiting)], ["expired", count(o.expired)], ["dropped", count(o.dropped)], ["purged or deleted", count(o.removed)],
      ]} /></Card>}
    </div>
    <div class="grid2">
      <Card title="Selection"><Facts of={[["Virtual host", <span class="name">{j.vhost}</span>], ["Queues", <ul class="plain">{(j.queues ?? []).map((q) => <li key={q}><QueueLink vhost={j.vhost} name={q} /></li>)}</ul>], ["Filter", <Arguments of={j.filter as Record<string, unknown>} />], ["Options", <Arguments of={j.options} />]]} /></Card>
      <Card title="Times"><Facts of={[["Made", <When at={j.made_ms} clock />], ["Began", <When at={j.began_ms} clock />], ["Ended", <When at={j.ended_ms} clock />]]} /></Card>
    </div>
    {confirm}
  </div>;
}
