// The audit: who did what in the office, when, why, and on how many.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { query } from "../api";
import { count, exact, plural } from "../format";
import { setParams, to, useRoute } from "../router";
import { useApp, useTitle } from "../state";
import type { Act, Paged } from "../types";
import { Dialog } from "../ui/dialog";
import { Select, Text } from "../ui/form";
import { Empty, Facts, PageHead, Tag, When } from "../ui/parts";
import { usePaged } from "../ui/paged";
import { Table, useListState, useLocalList, useVHostColumn, type Column } from "../ui/table";
import { officeError } from "./office";

const kinds: Record<string, string> = { job: "jobs", letter: "letters", group: "groups", rule: "rules", mask: "masks", webhook: "webhooks", queue: "queues", vhost: "virtual hosts", breaker: "breakers", definition: "definitions", drop: "drops" };

/** kind is what an act is about, one word for both numbers: rule.set and rules.set. */
const kind = (what: string) => what.split(".")[0]!.replace(/s$/, "");

/** page is where the object of an act is seen, if it has a page. */
function page(a: Act): string | undefined {
  if (a.object === "") return undefined;
  switch (a.what.split(".")[0]) {
    case "job": return to(["jobs", a.object]);
    case "rule": case "rules": return to(["rules", a.vhost]);
    case "queue": case "breaker": return to(["queues", a.vhost, a.object]);
    case "group": return to(["letters", a.vhost], { group: a.object });
    case "mask": case "masks": return to(["masks", a.vhost]);
    case "webhook": return to(["webhooks"]);
    case "vhost": return to(["vhosts", a.object]);
    default: return undefined;
  }
}
const who = (a: Act) => a.who || "the node";

/** why is the reason of an act. What the node did to a job has its own; the one of who began the job is the job's. */
function why(a: Act): { own: string; job?: string } {
  if (a.who !== "" || !a.what.startsWith("job.")) return { own: a.why };
  let own = "";
  try { const d = JSON.parse(a.detail) as { state_why?: unknown }; if (typeof d.state_why === "string") own = d.state_why; } catch { /* of another version */ }
  return { own, job: a.why };
}

const columns = (open: (a: Act) => void): Column<Act>[] => [
  { key: "time", title: "When", by: (a) => a.time_ms, cell: (a) => <When at={a.time_ms} /> },
  { key: "who", title: "Who", by: who, cell: (a) => a.who ? <b class="clip" title={a.who}>{a.who}</b> : <span class="muted">the node</span> },
  { key: "what", title: "What", name: true, by: (a) => a.what, cell: (a) => <a href="#" onClick={(e) => { e.preventDefault(); open(a); }}>{a.what}</a> },
  { key: "object", title: "Object", by: (a) => a.object, cell: (a) => { const at = page(a); return at ? <a class="clip" href={at} title={a.object}>{a.object}</a> : <span class="clip" title={a.object}>{a.object}</span>; } },
  { key: "count", title: "On", num: true, help: "how many letters, or other things", by: (a) => a.count, cell: (a) => a.count ? count(a.count) : "" },
  { key: "why", title: "Why", text: true, by: (a) => why(a).own, cell: (a) => { const w = why(a); return w.own ? <span title={w.own}>{w.own}</span> : w.job ? <span class="muted" title={w.job}>begun because: {w.job}</span> : ""; } },
  { key: "detail", title: "Detail", hide: true, text: true, by: (a) => a.detail, cell: (a) => <span title={a.detail}>{a.detail}</span> },
  { key: "peer", title: "From", hide: true, by: (a) => a.peer, cell: (a) => <code>{a.peer}</code> },
  { key: "vhost", title: "Virtual host", by: (a) => a.vhost, cell: (a) => <span class="clip">{a.vhost}</span> },
];

export function AuditPage() {
  const { vhost } = useApp();
  const { params } = useRoute();
  useTitle("Audit");
  const by = params.get("who") ?? "", what = params.get("what") ?? "";
  const acts = usePaged<Act, Paged<Act>>("office/audit" + query({ vhost, who: by, what, limit: 200 }));
  const [shown, show] = useState<Act | null>(null), [name, setName] = useState(by);
  const list = useListState();
  const all = useVHostColumn(columns(show));
  const source = useLocalList(acts.items, { ...list, columns: all, text: (a) => a.what, error: officeError(acts.error), reload: acts.reload });
  const seen = new Set([...Object.keys(kinds), ...(acts.items ?? []).map((a) => kind(a.what))]);
  const choices = [...seen].map((k) => [`${k}*`, kinds[k] ?? k] as const);
  const filtered = by !== "" || what !== "";
  return <div>
    <PageHead title="Audit" lead="Who did what to dead letters, rules and what stands around them, and why. The last 10,000 acts are kept." />
    <Table label="Audit" what="acts" choose="audit" noFilter source={source} list={list} columns={all} rowKey={(a) => String(a.id)} open={(a) => show(a)}
      tools={<form class="row drop-filter" onSubmit={(e) => { e.preventDefault(); setParams({ who: name.trim() }); }}>
        <Select label="What" value={what} set={(v) => setParams({ what: v })} of={[["", "everything"], ...(what !== "" && !choices.some(([k]) => k === what) ? [[what, what] as const] : []), ...choices]} />
        <Text label="Who" value={name} set={setName} placeholder="everybody" />
        <button type="submit">Show</button>
        {filtered && <button type="button" class="quiet" onClick={() => { setName(""); setParams({ who: undefined, what: undefined }); }}>Clear</button>}
      </form>}
      empty={filtered ? <Empty title="No act matches"><p>Nothing of that kind was done {by && <>by <b class="name">{by}</b></>}{vhost && <> in <b class="name">{vhost}</b></>}.</p></Empty>
        : <Empty title="Nothing was done yet"><p>Each job, edit, rule, mask and what people say of a group stands here, with who did it, why, and on how many letters.</p></Empty>} />
    {acts.next && <div class="row more"><button onClick={() => void acts.more()} disabled={acts.busy}>{acts.busy ? "Reading…" : "Show more"}</button><span class="muted">{plural(acts.items?.length ?? 0, "act")} are shown.</span></div>}
    {shown && <Dialog title={shown.what} close={() => show(null)}><Facts of={[
      ["Who", <>{shown.who ? <b class="name">{shown.who}</b> : "the node"}{shown.peer && <span class="muted"> from <code class="name">{shown.peer}</code></span>}</>],
      ["When", <>{exact(shown.time_ms)}{(shown.times ?? 1) > 1 && <> <Tag>{count(shown.times)} times, last <When at={shown.last_ms} clock /></Tag></>}</>],
      ["Object", page(shown) ? <a class="name" href={page(shown)} onClick={() => show(null)}>{shown.object}</a> : <span class="name">{shown.object || "–"}</span>],
      ["Virtual host", <span class="name">{shown.vhost || "–"}</span>], ["On", shown.count ? count(shown.count) : "–"], ...(why(shown).job === undefined ? [["Why", <span class="name">{shown.why || "no reason was given"}</span>] as [string, ComponentChildren]]
        : [["Why", <span class="name">{why(shown).own || "–"}</span>], ["The job’s reason", <span class="name">{shown.why || "no reason was given"}</span>]] as [string, ComponentChildren][]),
    ]} />{shown.detail && <><h3>Detail</h3><pre class="code" tabIndex={0} aria-label="Detail">{shown.detail}</pre></>}</Dialog>}
  </div>;
}
