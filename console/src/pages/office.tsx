// What the pages of the Dead Letter Office share.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { p, query, raw, Refusal, send, words } from "../api";
import { duration } from "../duration";
import { count, plural, span } from "../format";
import { to } from "../router";
import { may, useApp, usePoll } from "../state";
import type { DryRun, Filter, Group, Groups, Job, JobRequest, Letters, Queue, Row } from "../types";
import { Dialog } from "../ui/dialog";
import { Check, Select, Text, whole } from "../ui/form";
import { Fold, Note, Tag } from "../ui/parts";
import { Small } from "../ui/table";
import { say } from "../ui/toast";

/** parked explains letters that died in no queue. */
export const parked = "A consumer put it there itself, with its cause in the headers";
/** reasonTag is why a letter died in a queue, its source; what has none was parked. */
export const reasonTag = (r: string, source: string) => source === "" ? <Tag kind="bad" title={parked}>parked</Tag> : <Tag kind={r === "rejected" || r === "delivery_limit" ? "bad" : "warn"}>{r}</Tag>;
export const stateKinds: Record<string, "good" | "warn" | "bad" | "ink" | ""> = {
  new: "warn", triaged: "ink", replaying: "ink", resolved: "good", archived: "", planned: "", running: "ink", canary: "ink", paused: "warn", halted: "bad", cancelled: "", done: "good", failed: "bad",
};
export const stateTag = (s: string) => <Tag kind={stateKinds[s]}>{s === "canary" ? "waits for its first" : s}</Tag>;
export function cause(g: { error_class?: string; error?: string; reason: string }): string {
  return [g.error_class, g.error].filter(Boolean).join(": ") || "no cause given";
}
export const actions = { restore: "Restore", replay: "Replay", move: "Move", discard: "Discard" } as const;
export type Action = keyof typeof actions;

/** archive is where discarded letters and the originals of edited ones lie; from there they are restored. */
export const archive = "bartleby.archive";
/** lostAndFound is where dead letters lie that led nowhere. */
export const lostAndFound = "bartleby.lost-and-found";

/** orders in which a job takes letters. */
const orders = { oldest: "oldest first", newest: "newest first", lowest: "by a header, lowest first", highest: "by a header, highest first" } as const;
function actionsFor(of: { queues: string[] }[]): Action[] { return of.every((s) => s.queues.every((q) => q === archive)) ? ["restore", "replay", "move"] : ["replay", "move", "discard"]; }

/** Missing explains the office on a node that has none. */
export function officeError(error: Refusal | undefined): Refusal | undefined {
  return error?.status === 404 && error.kind === "Object Not Found" ? new Refusal(404, "", "There is no such virtual host, or you may not see it. A node that is older than its console has no Dead Letter Office.") : error;
}

export const filterKeys = ["group", "reason", "source", "exchange", "key", "class", "error", "older_than", "newer_than", "died", "size", "job", "message_id", "type", "body"] as const;

export function filterQuery(f: Filter): string {
  const q = new URLSearchParams();
  for (const k of filterKeys) if (f[k]) q.set(k, f[k]!);
  for (const w of f.where ?? []) q.append("where", w);
  return q.toString();
}

export interface Found { rows: Row[]; next: string | null; examined: number; total: number; stopped: string | null; busy: boolean; error?: Refusal; }

/** useLetters searches a queue, and shows what it finds while it looks. */
export function useLetters(vhost: string, queue: string, filter: string, order: string, reveal = false): Found & { more(): void; stop(): void; again(): void } {
  const [found, set] = useState<Found>({ rows: [], next: null, examined: 0, total: 0, stopped: null, busy: false });
  const [asked, setAsked] = useState<{ cursor: string | null; n: number }>({ cursor: null, n: 0 });
  const [stopper, setStopper] = useState<AbortController | null>(null);
  const key = `${vhost}\0${queue}\0${filter}\0${order}\0${reveal}`;
  useEffect(() => { setAsked((a) => ({ cursor: null, n: a.n + 1 })); }, [key]);
  useEffect(() => {
    if (asked.n === 0 || queue === "") { set({ rows: [], next: null, examined: 0, total: 0, stopped: null, busy: false }); return; }
    const mine = new AbortController();
    setStopper(mine);
    const first = asked.cursor === null;
    set((f) => first ? { rows: [], next: null, examined: 0, total: 0, stopped: null, busy: true } : { ...f, busy: true, error: undefined });
    const examinedBefore = first ? 0 : found.examined;
    void (async () => {
      try {
        const q = new URLSearchParams(filter);
        q.set("order", order); q.set("limit", "200");
        if (asked.cursor) q.set("cursor", asked.cursor);
        if (reveal) q.set("reveal", "true");
        const answer = await raw("GET", p`office/letters/${vhost}/${queue}` + "?" + q, { signal: mine.signal, headers: { Accept: "application/x-ndjson" } });
        if (!answer.headers.get("Content-Type")?.includes("ndjson") || !answer.body) {
          const l = await answer.json() as Letters;
          set((f) => ({ rows: [...f.rows, ...l.items], next: l.next, examined: examinedBefore + l.examined, total: 0, stopped: l.stopped, busy: false }));
          return;
        }
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { value, done } = await reader.read();
          const lines = (rest + (value ?? "")).split("\n");
          rest = done ? "" : lines.pop()!;
          const rows: Row[] = [];
          let change: Partial<Found> = {};
          for (const line of lines) {
            if (line.trim() === "") continue;
            const v = JSON.parse(line) as { letter?: Row; progress?: { examined: number; total: number }; end?: { next?: string | null; examined?: number; stopped?: string | null }; error?: string; reason?: string };
            if (v.letter) rows.push(v.letter);
            if (v.progress) change = { ...change, examined: examinedBefore + v.progress.examined, total: v.progress.total };
            if (v.end) change = { ...change, next: v.end.next ?? null, stopped: v.end.stopped ?? null, ...(v.end.examined !== undefined ? { examined: examinedBefore + v.end.examined } : {}) };
            if (v.error) change = { ...change, error: new Refusal(500, v.error, v.reason ?? v.error) };
          }
          if (rows.length || Object.keys(change).length) set((f) => ({ ...f, ...change, rows: [...f.rows, ...rows] }));
          if (done) break;
        }
        set((f) => ({ ...f, busy: false }));
      } catch (e) {
        if (mine.signal.aborted) { set((f) => ({ ...f, busy: false })); return; }
        set((f) => ({ ...f, busy: false, error: e instanceof Refusal ? e : new Refusal(0, "", words(e)) }));
      }
    })();
    return () => mine.abort();
  }, [asked]);
  return { ...found, more: () => setAsked((a) => ({ cursor: found.next, n: a.n + 1 })), stop: () => stopper?.abort(), again: () => setAsked((a) => ({ cursor: null, n: a.n + 1 })) };
}

/** useGroup is one group of a virtual host. */
export function useGroup(vhost: string, id: string | undefined, reveal = false): { group: Group | undefined; known: boolean; reload(): void } {
  const { data, reload } = usePoll<Groups>(id ? p`office/groups/${vhost}` + query({ limit: 500, reveal }) : null, reveal ? 0 : undefined);
  return { group: data?.items.find((g) => g.id === id), known: data !== undefined && !data.reading, reload };
}

/** jobsOf reads a list of jobs. */
export function jobsOf(data: Job[] | { items: Job[] } | undefined): Job[] | undefined { return Array.isArray(data) ? data : data?.items; }

export interface Selection { vhost: string; queues: string[]; filter?: Filter; ids?: string[]; name: string; letters?: number; /** with what masks hide */ reveal?: boolean; }

/** groupSelection is all letters of a group. */
export function groupSelection(g: Group): Selection { return { vhost: g.vhost, queues: g.queues.map((q) => q.name), filter: { group: g.id }, name: g.source ? `${g.source}: ${cause(g)}` : cause(g), letters: g.letters }; }

/**
 * JobDialog plans and begins a job for each selection. It asks the node for the count and the routes while the user fills it in, and
 * its button names the count.
 */
export function JobDialog(props: { action: Action; of: Selection[]; close(): void; done(): void }) {
  const { session } = useApp();
  const [action, setAction] = useState<Action>(props.action);
  const vhost = props.of[0]!.vhost;
  const [where, setWhere] = useState<"origin" | "queue" | "exchange">("origin"), [queue, setQueue] = useState(""), [exchange, setExchange] = useState(""), [key, setKey] = useState("");
  const [order, setOrder] = useState<keyof typeof orders>("oldest"), [header, setHeader] = useState("");
  const [apart, setApart] = useState(""), [at, setAt] = useState("");
  const [rate, setRate] = useState(""), [limit, setLimit] = useState(""), [replays, setReplays] = useState("3");
  const [canary, setCanary] = useState(props.of.reduce((n, s) => n + (s.letters ?? s.ids?.length ?? 0), 0) > 100 && props.action === "replay"), [first, setFirst] = useState("10"), [wait, setWait] = useState("30"), [percent, setPercent] = useState("20");
  const [why, setWhy] = useState(""), [growth, setGrowth] = useState(false), [missing, setMissing] = useState(false);
  const [plans, setPlans] = useState<DryRun[] | null>(null), [problem, setProblem] = useState("");
  const queues = usePoll<Queue[]>(p`queues/${vhost}` + "?columns=name&disable_stats=true", 0);

  const byHeader = order === "lowest" || order === "highest";
  const requests = (): JobRequest[] => props.of.map((s) => {
    const r: JobRequest = { action, vhost: s.vhost, queues: s.queues };
    if (s.ids) r.ids = s.ids; else r.filter = s.filter ?? {};
    if (action === "move" || action === "restore" && queue !== "") r.to_queue = queue;
    if (action === "replay" && where === "queue") r.to_queue = queue;
    if (action === "replay" && where === "exchange") { r.to_exchange = exchange; if (key) r.routing_key = key; }
    const n = (text: string, what: string, put: (n: number) => void) => { const v = whole(text, what); if (v !== undefined) put(v); };
    if (action !== "discard") n(rate, "The rate", (v) => { r.rate = v; });
    n(limit, "The limit", (v) => { r.limit = v; });
    r.order = order === "newest" || order === "highest" ? "newest" : "oldest";
    if (byHeader) {
      if (header.trim() === "") throw new Error("Enter the header whose value says the order.");
      r.order_by = `header.${header.trim()}`;
    }
    const stagger = duration(apart, "The time between two letters");
    if (stagger && action !== "discard") {
      if (r.rate) throw new Error("A job has either a rate or a time between letters to one place.");
      r.stagger_ms = stagger;
    }
    if (at !== "") {
      const begin = Date.parse(at); // in the reader's zone
      if (!(begin > Date.now())) throw new Error("The job must begin in the future; without a time it begins at once.");
      r.schedule_ms = begin;
    }
    if (action === "replay") {
      n(replays, "Times sent back", (v) => { r.max_replays = v; });
      if (canary) r.canary = { first: whole(first, "The first letters") ?? 10, wait_ms: 1000 * (whole(wait, "The wait") ?? 30), percent: whole(percent, "The share") ?? 20 };
    }
    return r;
  });

  // What would happen now, for what is entered now: a dry run holds for one request, with all of its options.
  const entered = JSON.stringify([action, where, queue, exchange, key, rate, limit, replays, order, byHeader && header, apart, at, canary && [first, wait, percent]]);
  useEffect(() => {
    setPlans(null); setProblem("");
    if ((action === "move" || action === "replay" && where === "queue") && queue === "") return;
    let ended = false;
    const t = setTimeout(() => void (async () => {
      try {
        const made: DryRun[] = [];
        for (const [i, r] of requests().entries()) made.push(await send<DryRun>("POST", "office/jobs" + query({ dry_run: true, reveal: props.of[i]!.reveal }), r));
        if (!ended) setPlans(made);
      } catch (e) { if (!ended) setProblem(words(e)); }
    })(), 250);
    return () => { ended = true; clearTimeout(t); };
  }, [entered]);

  const total = plans?.reduce((n, p) => n + p.count, 0);
  const unroutable = plans?.flatMap((p) => p.unroutable ?? []) ?? [], routes = plans?.flatMap((p) => p.routes ?? []) ?? [];
  const waits = [...new Map(plans?.flatMap((p) => p.waits ?? []).map((w) => [w.queue, w])).values()];
  const noOrigin = plans?.reduce((n, p) => n + p.no_origin, 0) ?? 0, tooOften = plans?.reduce((n, p) => n + p.too_often, 0) ?? 0;
  const begin = async (go: (hash: string) => void) => {
    if (why.trim() === "") { setMissing(true); throw new Error("Say why: the reason stands in the audit log with your name."); }
    if (!plans) throw new Error("The letters are still being counted.");
    const jobs: Job[] = [];
    const all = requests();
    for (let i = 0; i < all.length; i++) {
      if (plans[i]!.count === 0) continue;
      jobs.push(await send<Job>("POST", "office/jobs" + query({ reveal: props.of[i]!.reveal }), { ...all[i], reason: why.trim(), token: plans[i]!.token, count: plans[i]!.count, ...(growth ? { allow_growth: true } : {}) }));
    }
    say(`${plural(jobs.length, "job")} ${at ? "will begin" : "began"}: ${actions[action].toLowerCase()} ${plural(total ?? 0, "letter")}.`);
    props.close(); props.done();
    go(jobs.length === 1 ? to(["jobs", String(jobs[0]!.id)]) : "#/jobs");
  };
  return <Dialog title={`${actions[action]} letters`} danger={action === "discard"} close={props.close} action={begin} busyLabel="Beginning…"
    label={total === undefined ? actions[action] : `${actions[action]} ${plural(total, "letter")}`} disabled={!plans || total === 0}>
    <div class="row">{actionsFor(props.of).map((a) => <label key={a} class="check"><input type="radio" name="action" checked={action === a} onChange={() => setAction(a)} /> {actions[a]}</label>)}</div>
    <ul class="plain">{props.of.map((s) => <li key={s.name} class="name"><b>{s.ids ? plural(s.ids.length, "selected letter") : s.name}</b> <span class="muted">in {s.queues.join(", ")}</span></li>)}</ul>
    {action === "replay" && <div class="fields">
      <Select label="Send them to" value={where} set={(v) => setWhere(v as "origin")} of={[["origin", "where they were first published"], ["queue", "a queue"], ["exchange", "an exchange"]]} help="The headers of their deaths are removed. The page of a letter still shows where it died before." />
      {where === "exchange" && <><Text label="Exchange" value={exchange} set={setExchange} /><Text label="Routing key" value={key} set={setKey} help="Empty: as first published" /></>}
    </div>}
    {(action === "move" || action === "replay" && where === "queue") && <Text label="To the queue" value={queue} set={setQueue} list="job-queues" autofocus help="An existing queue of the same virtual host" />}
    {action === "restore" && <Text label="To the queue" value={queue} set={setQueue} list="job-queues" help="Empty: each to the queue from which it was discarded" />}
    <datalist id="job-queues">{(queues.data ?? []).map((q) => <option key={q.name} value={q.name} />)}</datalist>
    {action === "discard" && <Note kind="warn">Discarded letters go to the queue bartleby.archive, which keeps them for 7 days. Until then they can be restored from there.</Note>}
    <Text label="Reason (needed)" value={why} set={setWhy} autofocus={props.action !== "move"} error={missing && why.trim() === "" ? "Say why." : undefined} help={`Why you do it. It stands in the audit log, with your name (${session.name}).`} required />
    {action !== "discard" && <div class="fields">
      <Text label="Rate" value={rate} set={setRate} help="Letters a second that the service bears; empty: as fast as possible" />
      {action === "replay" && <Text label="Sent back at most" value={replays} set={setReplays} help="times. A letter that came back so often stays." />}
    </div>}
    {action === "replay" && <div class="stack tight">
      <Check label="Try a few first" help="On for more than 100 letters. After the wait the job stops if too many of the first have died again, or if none was consumed." value={canary} set={setCanary} />
      {canary && <div class="fields"><Text label="First letters" value={first} set={setFirst} /><Text label="Wait, in seconds" value={wait} set={setWait} /><Text label="Stop if more than this % die again" value={percent} set={setPercent} /></div>}
    </div>}
    <Fold title="Order, limit and time"><div class="fields">
      <Select label="Order" value={order} set={(v) => setOrder(v as keyof typeof orders)} of={Object.entries(orders)} />
      {byHeader && <Text label="Header" value={header} set={setHeader} help="Numbers before texts; letters without it go last" required />}
      <Text label="At most" value={limit} set={setLimit} help="letters; empty: all" />
      {action !== "discard" && <Text label="Apart" value={apart} set={setApart} help="Time between two letters to one place, such as 200ms; not with a rate" />}
      <Text label="Begin at" type="datetime-local" value={at} set={setAt} help="In your time zone; empty: at once" />
      <Check label="Letters that arrive meanwhile too" help="Otherwise the job is refused if there are more than counted." value={growth} set={setGrowth} />
    </div></Fold>
    <section aria-live="polite" class="stack tight">
      <h3>What would happen now</h3>
      {problem && <Note kind="bad">{problem}</Note>}
      {!problem && !plans && <p class="muted">{(action === "move" || where === "queue") && queue === "" && action !== "discard" ? "Enter the queue that gets them." : "Counting…"}</p>}
      {plans && total === 0 && <Note kind="warn">No letter would be touched.</Note>}
      {plans && total! > 0 && <p><b>{plural(total!, "letter")}</b> {action === "discard" ? "would be discarded" : action === "move" ? "would be moved" : action === "restore" ? "would be restored" : "would be sent"}{whole0(rate) && action !== "discard" ? `, in about ${span(1000 * total! / whole0(rate)!)}` : ""}.</p>}
      {routes.length > 0 && action !== "discard" && <Small label="Routes" head={["Exchange", "Routing key", "Queues", ["Letters", "num"]]} rows={routes.slice(0, 20).map((r) => [r.exchange === "" ? "(default exchange)" : r.exchange, <code>{r.routing_key}</code>, r.queues.join(", ") || "none", count(r.letters)])} />}
      {waits.length > 0 && <Note kind="warn" title="Letters would wait"><ul>{waits.map((w) => <li key={w.queue}>
        <b class="name">{w.queue}</b>{w.consumers === 0 && " has no consumer"}{w.consumers === 0 && w.breaker && ", and"}{w.breaker === "open" ? <> has an open breaker: the job stops before it sends there</> : w.breaker ? " has a breaker that tries: it delivers one message at a time" : ""}.
      </li>)}</ul>{canary && waits.some((w) => w.consumers === 0) && "If none of the first letters is consumed within the wait, the job stops."}</Note>}
      {unroutable.length > 0 && <Note kind="warn" title={`${plural(unroutable.reduce((n, u) => n + u.letters, 0), "letter")} would stay`}><ul>{unroutable.map((u) => <li key={u.why}>{count(u.letters)}: {u.why}</li>)}</ul></Note>}
      {noOrigin > 0 && <Note kind="warn">{plural(noOrigin, "letter")} would stay: where they came from is not known. Send them to a queue.</Note>}
      {tooOften > 0 && <Note kind="warn">{plural(tooOften, "letter")} would stay: they were sent back too often.</Note>}
    </section>
  </Dialog>;
}

function whole0(text: string): number | undefined { const n = Number(text); return text !== "" && Number.isFinite(n) && n > 0 ? n : undefined; }

/** Actions are the buttons for letters. */
export function Actions(props: { of: Selection[]; done(): void; small?: ComponentChildren }) {
  const [action, set] = useState<Action | null>(null);
  return <>
    {actionsFor(props.of).map((a, i) => <button key={a} class={i === 0 ? "primary" : a === "discard" ? "danger" : undefined} onClick={() => set(a)}>{actions[a]}…</button>)}
    {action && <JobDialog action={action} of={props.of} close={() => set(null)} done={props.done} />}
  </>;
}

/** GroupEditor says what people know of a group. */
export function GroupEditor(props: { groups: Group[]; close(): void; done(): void }) {
  const { session } = useApp();
  const only = props.groups.length === 1 ? props.groups[0] : undefined;
  const [state, setState] = useState(only?.state ?? "triaged"), [owner, setOwner] = useState(only?.owner ?? session.name), [note, setNote] = useState(only?.note ?? "");
  return <Dialog small title={only ? "About this group" : `About ${props.groups.length} groups`} close={props.close} action={async () => {
    for (const g of props.groups) await send("PUT", p`office/groups/${g.vhost}/${g.id}`, { state, owner, ...(note || only ? { note } : {}) });
    say("Noted."); props.done(); props.close();
  }}>
    {!may(session, "policymaker") && <Note kind="warn">You need the tag policymaker to change this.</Note>}
    <Select label="State" value={state} set={(v) => setState(v as "new")} of={[["new", "New: nobody has looked"], ["triaged", "Triaged: the cause is known"], ["replaying", "Replaying"], ["resolved", "Resolved"], ["archived", "Archived: out of the way"]]} />
    <Text label="Owner" value={owner} set={setOwner} /><Text label="Note" value={note} set={setNote} help="A ticket, or what was found out" />
  </Dialog>;
}
