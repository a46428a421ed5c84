import { useMemo, useState } from "preact/hooks";
import { p, query } from "../api";
import { count, plural, reason } from "../format";
import { setParams, to, useRoute } from "../router";
import { useApp, usePoll, useTitle } from "../state";
import type { Group, Groups, OfficeQueue } from "../types";
import { Dialog } from "../ui/dialog";
import { Bar, Choices, Empty, PageHead, Spark, When } from "../ui/parts";
import { Table, useListState, useLocalList, type Column } from "../ui/table";
import { Actions, archive, cause, lostAndFound, GroupEditor, groupSelection, officeError, parked, reasonTag, stateTag } from "./office";
import { Reveal } from "./who";

const link = (g: Group) => to(["letters", g.vhost], { group: g.id, queue: g.queues[0]?.name });

/** columnsFor names the virtual host of each group where there are several. */
const columnsFor = (several: boolean): Column<Group>[] => [
  { key: "cause", title: "Cause", by: cause, name: true, grow: true, cell: (g) => <a href={link(g)} title={cause(g)} class="two">{g.error_class || g.error ? <>{g.error_class ? <code>{g.error_class}</code> : <span>{g.error}</span>}<span>{g.error_class ? g.error || reason(g.reason) : reason(g.reason)}</span></> : <><span class="plain-cause">{reason(g.reason)}</span><span>no cause was given</span></>}</a> },
  { key: "letters", title: "Letters", num: true, by: (g) => g.letters, cell: (g) => <b>{count(g.letters)}</b> },
  { key: "source", title: "Died in", by: (g) => g.source, cell: (g) => <span class="two clip">{g.source ? <span title={g.source}>{g.source}</span> : <span class="muted" title={parked}>no queue</span>}{several && <span title={`Virtual host ${g.vhost}`}>{g.vhost}</span>}</span> },
  { key: "reason", title: "Reason", by: (g) => g.reason, cell: (g) => g.queues.some((q) => q.name === lostAndFound) ? <span class="two"><span>{reasonTag(g.reason, g.source)}</span><span title="Nothing takes these letters: their dead-letter exchange does not exist or leads nowhere. A letter’s page says which.">lost and found</span></span> : reasonTag(g.reason, g.source) },
  { key: "arrivals", title: "Arrivals", cell: (g) => <Spark counts={g.arrivals?.counts} label={`Arrivals: ${plural((g.arrivals?.counts ?? []).reduce((a, b) => a + b, 0), "letter")} in the time shown`} /> },
  { key: "last", title: "Last seen", num: true, by: (g) => g.last_ms, cell: (g) => <span class="two"><span><When at={g.last_ms} /></span><span>first <When at={g.first_ms} /></span></span> },
  { key: "first", title: "First seen", hide: true, num: true, by: (g) => g.first_ms, cell: (g) => <When at={g.first_ms} /> },
  { key: "state", title: "State", by: (g) => g.state, cell: (g) => <span class="two" title={g.note}><span>{stateTag(g.state)}</span>{g.owner && <span>{g.owner}</span>}</span> },
  { key: "type", title: "Message type", hide: true, by: (g) => g.type, cell: (g) => <span class="clip">{g.type}</span> },
  { key: "queues", title: "Are in", hide: true, by: (g) => g.queues.map((q) => q.name).join(), cell: (g) => <span class="clip">{g.queues.map((q) => q.name).join(", ")}</span> },
  { key: "vhost", title: "Virtual host", hide: true, by: (g) => g.vhost, cell: (g) => g.vhost },
];

export function InboxPage() {
  const { session, vhost } = useApp();
  const several = vhost === "" && session.vhosts.length > 1, columns = useMemo(() => columnsFor(several), [several]);
  const { params } = useRoute();
  useTitle("Inbox");
  const show = params.get("show") ?? "open";
  const [revealed, reveal] = useState(false);
  const path = "office/groups" + (vhost ? "/" + encodeURIComponent(vhost) : "") + query({ limit: 500, state: show === "open" || show === "all" ? undefined : show, reveal: revealed });
  const groups = usePoll<Groups>(path, revealed ? 0 : undefined); // each question with it stands in the audit
  const queues = usePoll<OfficeQueue[]>(groups.data?.items.length === 0 ? (vhost ? p`office/queues/${vhost}` : "office/queues") : null);
  const list = useListState({ sort: "letters", desc: true });
  const [picked, setPicked] = useState(new Map<string, Group>()), [editing, setEditing] = useState<Group[] | null>(null), [help, setHelp] = useState(false);
  const items = groups.data && (show === "open" ? groups.data.items.filter((g) => g.state !== "archived" && g.state !== "resolved") : groups.data.items);
  const source = useLocalList(items, { ...list, columns, text: (g) => [cause(g), g.source, several ? g.vhost : "", g.type, g.owner, g.note].join(" "), error: officeError(groups.error), reload: groups.reload });
  const g = groups.data, chosen = [...picked.values()];
  return <div>
    <PageHead title="Inbox" lead={g ? <>{plural(g.letters, "dead letter")}, grouped by what went wrong</> : "Dead letters, grouped by what went wrong"}>
      <Choices label="Groups shown" value={show} of={[["open", "Open"], ["resolved", "Resolved"], ["archived", "Archived"], ["all", "All"]]} set={(v) => setParams({ show: v === "open" ? undefined : v })} />
      <button onClick={() => setHelp(true)}>Keys <kbd>?</kbd></button>
    </PageHead>
    <Reveal on={revealed} set={reveal} again={groups.reload} />
    {g?.reading && <div class="note" role="status"><p>Reading dead letters: {count(g.read)} of {count(g.entries)}. The groups below are what is known so far.</p><Bar label="Letters read" part={g.entries ? g.read / g.entries : 0} /></div>}
    <Table tall label="Groups of dead letters" what="groups" choose="inbox" source={source} list={list} columns={columns} rowKey={(g) => g.id} href={link} picked={picked} setPicked={setPicked} help={() => setHelp(true)}
      empty={show !== "open" && show !== "all" ? <Empty title={`No group is ${show}`}><p>Say what you know of a group with “Note…”: then it appears here.</p>{show === "archived" && <p>Letters that were discarded are something else: the queue {archive} of their virtual host keeps them for 7 days, and <a href="#/letters">Search</a> shows it.</p>}</Empty> : <Welcome queues={queues.data} />} />
    {chosen.length > 0 && <div class="selection" role="region" aria-label="Selected groups">
      <b>{plural(chosen.length, "group")}, {plural(chosen.reduce((n, g) => n + g.letters, 0), "letter")}</b>
      <Actions of={chosen.map((g) => ({ ...groupSelection(g), reveal: revealed }))} done={() => { setPicked(new Map()); groups.reload(); }} />
      <button onClick={() => setEditing(chosen)}>Note…</button><button class="quiet" onClick={() => setPicked(new Map())}>Clear</button>
    </div>}
    {editing && <GroupEditor groups={editing} close={() => setEditing(null)} done={() => { setPicked(new Map()); groups.reload(); }} />}
    {help && <Dialog small title="Keys" close={() => setHelp(false)}><dl class="facts">{([["j", "next row"], ["k", "previous row"], ["x", "select the row"], ["Enter", "open the row"], ["/", "filter"], ["Esc", "leave the filter, close a dialog"], ["?", "this list"]] as const).map(([k, text]) => <><dt><kbd>{k}</kbd></dt><dd>{text}</dd></>)}</dl></Dialog>}
  </div>;
}

function Welcome(props: { queues: OfficeQueue[] | undefined }) {
  const targets = (props.queues ?? []).filter((q) => q.name !== archive); // nothing goes there by dying
  return <Empty title="No dead letters">
    <p>A message that a consumer rejects, that expires or that finds no room becomes a dead letter, if its queue has a dead-letter exchange. Here you see such letters by their cause, and send them back when it is mended.</p>
    {targets.length > 0 ? <p>Dead letters would go to {targets.slice(0, 5).map((q) => q.name).join(", ")}{targets.length > 5 && ` and ${targets.length - 5} more`}.</p> : <p>No queue has a dead-letter exchange yet. Give one to a queue when you <a href="#/queues">add it</a>, or with a policy.</p>}
    <p>To see how it works, run <code>bartleby demo --keep</code> on a command line: hundreds of its orders, payments and mails fail, and stay here.</p>
  </Empty>;
}
