// Lint: declarations that lose dead letters, or do not do what was meant; the worst first, each with its mend.
import { useMemo, useState } from "preact/hooks";
import { count, plural } from "../format";
import { setParams, to, useRoute } from "../router";
import { useApp, usePoll, useTitle } from "../state";
import type { Finding, Severity } from "../types";
import { Choices, Empty, Failed, Fold, Loading, PageHead, Tag } from "../ui/parts";
import { officeError } from "./office";

const severities: [Severity, string, "bad" | "warn" | ""][] = [["error", "Errors", "bad"], ["warning", "Warnings", "warn"], ["hint", "Hints", ""]];
const meanings: Record<Severity, string> = { error: "Dead letters have no place: they go to the lost and found, or are dropped.", warning: "Dead letters may be lost, or come late.", hint: "It may be meant so." };

const rules: Record<string, string> = {
  "dlx-missing": "A queue's dead-letter exchange is not declared.",
  "dlx-unbound": "A dead-letter exchange is bound to nothing.",
  "dlx-no-route": "A dead-letter exchange routes the keys that come to no queue.",
  "loop": "Dead letters come round to a queue that they died in, without a reject on the way.",
  "target-not-durable": "Where dead letters go may end before their source: it is not durable, or deletes itself.",
  "target-shorter": "Where dead letters go holds fewer messages than their source.",
  "at-least-once-falls-back": "The strategy at-least-once is asked for and is not in force.",
  "shared-target": "Many queues share a target, so one that dies often hides the others.",
  "ttl-unseen": "What expires vanishes, and nobody sees which.",
  "priority-unused": "A queue has priorities, and nobody publishes with one.",
  "delivery-limit-discards": "What fails too often vanishes.",
  "policy-matches-nothing": "A policy is in force nowhere.",
  "incomplete": "There is more than lint looks at, or shows.",
};

/** form is where the object of a finding is changed. */
function form(f: Finding): [string, string] {
  switch (f.kind) {
    case "queue": {
      const policy = / in the policy '([^']+)'/.exec(f.mend)?.[1]; // it is not the queue that must change
      if (policy) return [to(["policies"], { edit: policy, of: f.vhost }), "Change the policy"];
      return [to(["queues", f.vhost, f.name], { change: "1" }), "Change the queue"];
    }
    case "policy": return [to(["policies"], { edit: f.name, of: f.vhost }), "Change the policy"];
    case "exchange": return [to(["exchanges", f.vhost, f.name]), "Open the exchange"];
    default: return [to(["vhosts", f.vhost]), "Open the virtual host"];
  }
}
const sentence = (t: string) => t === "" ? "" : t[0]!.toUpperCase() + t.slice(1) + (/[.!?]$/.test(t) ? "" : ".");
const first = 100;

export function LintPage() {
  const { vhost, session } = useApp();
  const { params } = useRoute();
  useTitle("Lint");
  const { data, error, loading, reload } = usePoll<Finding[]>("office/lint" + (vhost ? "/" + encodeURIComponent(vhost) : ""), 30000);
  const show = params.get("show") ?? "all", text = params.get("name") ?? "";
  const [limit, setLimit] = useState(first);
  const of = useMemo(() => Object.fromEntries(severities.map(([s]) => [s, (data ?? []).filter((f) => f.severity === s).length])) as Record<Severity, number>, [data]);
  const shown = useMemo(() => (data ?? []).filter((f) => (show === "all" || f.severity === show) && (text === "" || `${f.name} ${f.rule} ${f.text} ${f.vhost}`.toLowerCase().includes(text.toLowerCase()))), [data, show, text]);
  const cut = shown.slice(0, limit);
  return <div class="stack">
    <PageHead title="Lint" lead="Declarations that lose dead letters, or do not do what was meant.">
      {data && data.length > 0 && <Choices label="Findings shown" value={show} of={[["all", `All ${count(data.length)}`], ...severities.map(([s, title]) => [s, `${title} ${count(of[s])}`] as [string, string])]} set={(s) => { setLimit(first); setParams({ show: s === "all" ? undefined : s }); }} />}
      <button onClick={reload}>Look again</button>
    </PageHead>
    <Failed error={officeError(error)} what="the findings" stale={!!data} retry={reload} />
    {loading && !data && <Loading what="the findings" />}
    {data?.length === 0 && <div class="card"><Empty title="Nothing to mend"><p>All dead-letter exchanges exist and lead to queues, without loops; limits, policies and priorities do what they say.</p></Empty></div>}
    {data && data.length > 0 && <>
      <div class="table-tools"><input class="filter" type="search" aria-label="Filter findings" placeholder="Filter findings" value={text} onInput={(e) => { setLimit(first); setParams({ name: e.currentTarget.value }); }} spellcheck={false} /><span class="total" role="status">{shown.length === data.length ? count(data.length) : `${count(shown.length)} of ${count(data.length)}`} {data.length === 1 ? "finding" : "findings"}</span></div>
      {shown.length === 0 && <div class="card"><Empty title="No finding matches"><button onClick={() => setParams({ name: undefined, show: undefined })}>Show all</button></Empty></div>}
      {severities.map(([s, title, kind]) => {
        const list = cut.filter((f) => f.severity === s);
        return list.length > 0 && <section key={s} class="card"><header><h2>{title} ({count(shown.filter((f) => f.severity === s).length)})</h2><span class="muted small">{meanings[s]}</span></header>
          <ul class="findings">{list.map((f) => {
            const [href, label] = form(f);
            return <li key={`${f.vhost}/${f.kind}/${f.name}/${f.rule}/${f.text}`}>
              <div><h3><span class="muted">{f.kind === "vhost" ? "virtual host" : f.kind}</span> <span class="name">{f.name || "(default exchange)"}</span>{vhost === "" && session.vhosts.length > 1 && f.kind !== "vhost" && <span class="muted"> in <span class="name">{f.vhost}</span></span>} <Tag kind={kind} title={rules[f.rule]}>{f.rule}</Tag></h3>
                <p class="name">{sentence(f.text)}</p>{f.mend && <p class="name muted"><b>Mend:</b> {sentence(f.mend)}</p>}</div>
              <a class="button" href={href} aria-label={`${label} ${f.name}`}>{label}</a>
            </li>;
          })}</ul></section>;
      })}
      {shown.length > limit && <div class="row"><button onClick={() => setLimit(limit + 10 * first)}>Show more</button><span class="muted">{count(limit)} of {plural(shown.length, "finding")} are shown.</span></div>}
    </>}
    {data && <Fold title="What is looked for"><dl class="facts">{Object.entries(rules).filter(([r]) => r !== "incomplete").map(([r, what]) => <><dt><code>{r}</code></dt><dd>{what}</dd></>)}</dl></Fold>}
  </div>;
}
