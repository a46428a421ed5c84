import { p, send } from "../api";
import { count, plural, span } from "../format";
import { to } from "../router";
import { useEvents, useNow, usePoll, useTitle } from "../state";
import type { Job } from "../types";
import { useConfirm } from "../ui/dialog";
import { Bar, Card, Empty, Facts, Failed, Loading, Note, PageHead, QueueLink, When } from "../ui/parts";
import { Small, Table, useListState, useLocalList, useVHostColumn, type Column } from "../ui/table";
import { complain, say } from "../ui/toast";
import { cause, jobsOf, officeError, stateTag, useGroup } from "./office";
import { FilterWords, optionWords, verbs } from "./words";

const title = (j: Job) => j.rule ? `${verbs[j.action] ?? j.action} by the rule ${j.rule}` : `${verbs[j.action] ?? j.action} from ${(j.queues ?? []).join(", ")}`;
const handled = (j: Job) => j.moved + j.unroutable + j.refused + j.no_origin + j.too_often + j.gone;
const ended = (j: Job) => ["done", "cancelled", "failed"].includes(j.state);
const part = (j: Job) => j.planned ? handled(j) / j.planned : ended(j) ? 1 : 0;

const columns: Column<Job>[] = [
  { key: "id", title: "Job", num: true, by: (j) => j.made_ms, cell: (j) => <a href={to(["jobs", String(j.id)])}>{j.id}</a> },
  {
    key: "what", title: "What, who and why", name: true, grow: true, by: title,
    cell: (j) => <a class="two" href={to(["jobs", String(j.id)])} title={[title(j), j.reason].filter(Boolean).join(": ")}><span>{title(j)}</span><span>{[j.by, j.reason].filter(Boolean).join(": ")}</span></a>,
  },
  { key: "vhost", title: "Virtual host", by: (j) => j.vhost, cell: (j) => <span class="clip" title={j.vhost}>{j.vhost}</span> },
  { key: "state", title: "State", by: (j) => j.state, cell: (j) => stateTag(j.canary_until_ms ? "canary" : j.state) },
  {
    key: "progress", title: "Progress",
    cell: (j) => j.rule ? <span class="small">{j.counts_hidden ? "not shown" : `${count(j.moved)} so far`}</span> : <div class="progress">
      <Bar label={`Progress of job ${j.id}`} part={part(j)} /><span class="small">{count(handled(j))} of {count(j.planned)}</span>
    </div>,
  },
  { key: "moved", title: "Moved", num: true, hide: true, by: (j) => j.moved, cell: (j) => count(j.moved) },
  {
    key: "acknowledged", title: "Acknowledged", num: true, by: (j) => j.outcomes?.acknowledged ?? 0,
    cell: (j) => count(j.outcomes?.acknowledged),
  },
  {
    key: "again", title: "Died again", num: true, by: (j) => j.outcomes?.died_again ?? 0, cell: (j) => count(j.outcomes?.died_again),
  },
  { key: "by", title: "By", hide: true, by: (j) => j.by, cell: (j) => <span class="clip">{j.by}</span> },
  { key: "made", title: "Made", num: true, by: (j) => j.made_ms, cell: (j) => <When at={j.made_ms} /> },
];

export function JobsPage() {
  useTitle("Jobs");
  const { data, error, reload } = usePoll<Job[] | { items: Job[] }>("office/jobs", 2000);
  const list = useListState({ sort: "made", desc: true });
  const all = useVHostColumn(columns);
  const source = useLocalList(jobsOf(data), {
    ...list, columns: all, text: (j) => `${title(j)} ${j.by} ${j.reason} ${j.state}`, error: officeError(error), reload,
  });
  return <>
    <PageHead title="Jobs" lead="Letters that are sent back, moved or discarded. A job goes on after a restart of the node." />
    <Table tall label="Jobs" what="jobs" choose="jobs" source={source} list={list} columns={all}
      rowKey={(j) => String(j.id)} href={(j) => to(["jobs", String(j.id)])}
      empty={<Empty title="There are no jobs">
        <p>A job begins with letters: choose a group in the <a href="#/inbox">inbox</a>, or letters in the <a href="#/letters">search</a>,
          and say what shall happen to them.</p>
      </Empty>} />
  </>;
}

const done: Record<string, string> = { pause: "The job pauses.", resume: "The job goes on.", cancel: "The job is cancelled." };

export function JobPage(props: { id: string }) {
  const path = p`office/jobs/${props.id}`;
  useTitle(`Job ${props.id}`);
  const { data: j, error, loading, reload } = useEvents<Job>(path, "job");
  const [confirm, ask] = useConfirm();
  if (!j) {
    return <>
      <PageHead title={`Job ${props.id}`} />
      {error?.status === 404
        ? <Empty title="There is no such job"><p>The node keeps the last thousand. <a href="#/jobs">Go to the jobs</a>.</p></Empty>
        : <Failed error={error} what="the job" retry={reload} />}
      {loading && <Loading what="the job" />}
    </>;
  }
  const act = async (what: string) => {
    try { await send("POST", `${path}/${what}`); say(done[what]!); reload(); } catch (e) { complain(`The job cannot ${what}`, e); }
  };
  const left = Math.max(0, j.planned - handled(j));
  const cancel = () => ask({
    title: "Cancel the job", label: "Cancel the job", danger: true, action: async () => { await send("POST", path + "/cancel"); reload(); },
    text: <p>{plural(j.moved, "letter")} have been handled and stay where they are now. {plural(left, "letter")} stay
      in {j.queues.join(", ")}. A cancelled job cannot go on.</p>,
  });
  const stopped = j.state === "halted" || j.state === "failed";
  return <div class="stack">
    <PageHead title={<>Job {j.id}: {title(j)}</>}
      lead={<>{stateTag(j.state)} {j.rule ? "with the rights of" : "begun by"} <b class="name">{j.by}</b>{j.reason && <>, because “<span class="name">{j.reason}</span>”</>}</>}>
      {j.rule && <a class="button" href={to(["rules", j.vhost])}>To the rules</a>}
      {!j.rule && j.state === "running" && <button onClick={() => act("pause")}>Pause</button>}
      {!j.rule && (j.state === "paused" || j.state === "halted") && <button class="primary" onClick={() => act("resume")}>Resume</button>}
      {!j.rule && !ended(j) && <button class="danger" onClick={cancel}>Cancel</button>}
    </PageHead>
    <Failed error={error} what="the job" stale retry={reload} />
    {j.why && <Note kind={stopped ? "bad" : "warn"} title={`The job is ${j.state}`}>
      {sentence(j.why)}{!j.rule && j.state === "halted" && !/\bResume\b/.test(j.why) && " Resume it when the cause is mended, or cancel it."}
    </Note>}
    {j.canary_until_ms ? <Waits job={j} until={j.canary_until_ms} /> : null}
    {!j.rule && <Card title="Progress" side={<span class="muted small">{count(handled(j))} of {count(j.planned)}</span>}>
      <Bar label="Progress" part={part(j)} kind={stopped ? "bad" : undefined} />
    </Card>}
    <div class="grid2">
      <Card title={j.action === "discard" ? "Discarded" : "What was sent"} bare><Sent job={j} left={ended(j) ? 0 : left} /></Card>
      {j.outcomes && j.action !== "discard" && <Card title="What became of them" bare><Outcomes job={j} /></Card>}
    </div>
    <div class="grid2">
      <Card title="Which letters, and how"><Which job={j} /></Card>
      <Card title="Times"><Facts of={[
        ["Made", <When at={j.made_ms} clock />], ["Began", <When at={j.began_ms} clock />], ["Ended", <When at={j.ended_ms} clock />],
      ]} /></Card>
    </div>
    {confirm}
  </div>;
}

/** sentence ends a text as a sentence. */
const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** Waits says that a job waits for what becomes of its first letters. */
function Waits(props: { job: Job; until: number }) {
  const now = useNow(1000), { job } = props;
  const canary = job.options?.["canary"] as { percent: number } | undefined;
  return <Note title="It waits for its first letters">
    {plural(job.moved, "letter")} went first, {count(job.outcomes?.died_again ?? 0)} of them died again. It goes on
    in {span(1000 * Math.max(0, Math.ceil((props.until - now) / 1000)))}{canary && <>, unless more than {canary.percent} % have died again, or none was consumed, by then</>}.
  </Note>;
}

function Sent(props: { job: Job; left: number }) {
  const { job } = props;
  const stayed: [string, number][] = [
    ["unroutable: no queue takes them", job.unroutable], ["refused by the target", job.refused], ["without a known origin", job.no_origin],
    ["sent back too often", job.too_often], ["gone before", job.gone],
  ];
  return <Small label="Letters" head={["Letters", ["Count", "num"]]} rows={[
    [job.action === "discard" ? "moved to bartleby.archive" : "moved", count(job.moved)],
    ...stayed.filter(([, n]) => n > 0).map(([text, n]) => [text, count(n)]),
    ...(job.rule ? [] : [["left to do", count(props.left)] as [string, string]]),
  ]} />;
}

function Outcomes(props: { job: Job }) {
  const { job } = props, o = job.outcomes!;
  const again = <a href={to(["letters", job.vhost], { queue: job.queues[0], job: String(job.id) })}>{count(o.died_again)}</a>;
  return <Small label="Outcomes" head={["Outcome", ["Letters", "num"]]} rows={[
    ["acknowledged by a consumer", count(o.acknowledged)], ["died again", o.died_again ? again : "0"],
    [job.action === "move" ? "lie where they were moved to" : "still waiting", count(o.waiting)], ["expired", count(o.expired)],
    ["dropped", count(o.dropped)], ["purged or deleted", count(o.removed)],
  ]} />;
}

function Which(props: { job: Job }) {
  const { job } = props;
  const id = [job.filter?.group].flat()[0];
  const { group } = useGroup(job.vhost, id);
  const link = to(["letters", job.vhost], { group: id, queue: job.queues[0] });
  const of = group && <>they are of the group <a href={link}>{cause(group)}</a></>;
  return <Facts of={[
    ["Letters", <FilterWords job={job} group={of} />],
    ["In", <ul class="plain">{(job.queues ?? []).map((q) => <li key={q}><QueueLink vhost={job.vhost} name={q} /></li>)}</ul>],
    ["Virtual host", <span class="name">{job.vhost}</span>],
    ["How", <ul class="plain">{optionWords(job).map((w, i) => <li key={i}>{w}</li>)}</ul>],
  ]} />;
}
