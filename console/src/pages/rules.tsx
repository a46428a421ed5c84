// Rules: what becomes of letters by itself. An ordered list, of which the first that matches acts.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { p, Refusal, send, words } from "../api";
import { count, plural } from "../format";
import { to } from "../router";
import { may, useApp, usePoll, useTitle } from "../state";
import type { Rule, Rules, RuleTry } from "../types";
import { Dialog, useConfirm } from "../ui/dialog";
import { NoVHost, useOneVHost } from "../ui/onevhost";
import { Text, whole } from "../ui/form";
import { Empty, Failed, Loading, Note, PageHead, Tag, When } from "../ui/parts";
import { complain, say } from "../ui/toast";
import { officeError } from "./office";
import { condition, deed, settingsOf } from "./rule";
import { RuleForm, Tried } from "./ruleform";

export function RulesPage(props: { vhost?: string }) {
  const { session } = useApp();
  const { vhost, choice } = useOneVHost("rules", props.vhost);
  useTitle("Rules");
  const path = vhost === undefined ? null : p`office/rules/${vhost}`;
  const { data, error, loading, reload } = usePoll<Rules>(path);
  // What is changed is what was seen when the change began: the order that is put, the rule that is edited.
  const [ordered, setOrdered] = useState<{ names: string[]; seen: Rules } | null>(null);
  const [told, tell] = useState(""), [busy, setBusy] = useState(false);
  const [editing, setEditing] = useState<{ rule?: Rule; seen: Rules } | null>(null), [turning, setTurning] = useState<{ rule: Rule; seen: Rules } | null>(null);
  const [dragged, drag] = useState<string | null>(null), [over, setOver] = useState<number | null>(null);
  const [confirm, ask] = useConfirm();
  const list = useRef<HTMLOListElement>(null), focus = useRef<string | null>(null);
  useEffect(() => { setOrdered(null); }, [vhost]);
  // A button that was pressed goes with its rule.
  useLayoutEffect(() => { if (focus.current) list.current?.querySelector<HTMLElement>(focus.current)?.focus(); focus.current = null; });
  if (vhost === undefined) return <><PageHead title="Rules" /><NoVHost /></>;
  const saved = data?.rules ?? [], allowed = may(session, "policymaker");
  const places = ordered ? new Map(ordered.names.map((n, i) => [n, i])) : null;
  const rules = places ? [...saved].sort((a, b) => (places.get(a.name) ?? 1e9) - (places.get(b.name) ?? 1e9)) : saved;
  const moved = rules.some((r, i) => r.name !== saved[i]?.name);

  /** put sends all rules, changed, if nobody else has changed them since they were seen. */
  const put = async (change: (now: Rule[]) => Rule[], seen = data!) => {
    await putRules(path!, seen, { rules: change(seen.rules).map(settingsOf) }, reload);
  };
  const move = (name: string, to: number, button?: string) => {
    const names = rules.map((r) => r.name), from = names.indexOf(name);
    to = Math.max(0, Math.min(names.length - 1, to));
    if (from < 0 || from === to) return;
    names.splice(to, 0, ...names.splice(from, 1));
    if (button) focus.current = `[data-rule="${CSS.escape(name)}"] [data-to="${to === 0 ? "down" : to === names.length - 1 ? "up" : button}"]`;
    setOrdered({ names, seen: ordered?.seen ?? data! });
    tell(`${name} is now number ${to + 1} of ${names.length}.`);
  };
  const saveOrder = async () => {
    setBusy(true);
    const { names, seen } = ordered!;
    try {
      await put((now) => names.map((n) => now.find((r) => r.name === n)!).filter(Boolean), seen);
      say("The order is saved.");
    } catch (e) { complain("The order is not saved", e); }
    setOrdered(null); setBusy(false);
  };
  const off = async (r: Rule) => {
    try { await put((now) => now.map((x) => x.name === r.name ? { ...x, on: false } : x)); say(`The rule ${r.name} is off.${r.waiting ? ` ${plural(r.waiting, "letter")} that waited for it stay where they lie.` : ""}`); } catch (e) { complain(`The rule ${r.name} stays on`, e); }
  };
  return <div class="stack">
    <PageHead title="Rules" lead="What becomes of dead letters by itself. A letter is met when it arrives; of the rules that match it the first one acts.">
      {choice}{allowed && data && <button class="primary" onClick={() => setEditing({ seen: data })}>Add a rule</button>}
    </PageHead>
    <Failed error={officeError(error)} what="the rules" stale={!!data} retry={reload} />
    {loading && !data && <Loading what="the rules" />}
    {data && rules.length === 0 && <div class="card"><Empty title="There are no rules"><p>A rule retries letters after a while, sends them to another queue, discards them, holds them, or tells a webhook. Before it is on, it shows what it would do with the letters that are there.</p>{allowed ? <button onClick={() => setEditing({ seen: data })}>Add a rule</button> : <p>You need the tag policymaker to add one.</p>}</Empty></div>}
    {rules.length > 0 && <ol class="rules" ref={list} aria-label="Rules, the first one first">{rules.map((r, i) => <li key={r.name} data-rule={r.name} class={`card rule ${r.on ? "" : "off"} ${dragged === r.name ? "dragged" : ""} ${over === i && dragged !== null && dragged !== r.name ? rules.findIndex((x) => x.name === dragged) < i ? "below" : "above" : ""}`}
      onDragOver={(e) => { if (dragged !== null) { e.preventDefault(); setOver(i); } }} onDrop={(e) => { e.preventDefault(); if (dragged !== null) move(dragged, i); drag(null); setOver(null); }}>
      <div class="place">
        {allowed && rules.length > 1 && <span class="handle" draggable title="Drag to another place" aria-hidden="true" onDragStart={(e) => { e.dataTransfer?.setData("text/plain", r.name); if (e.dataTransfer) e.dataTransfer.effectAllowed = "move"; drag(r.name); }} onDragEnd={() => { drag(null); setOver(null); }}>⠿</span>}
        <b>{i + 1}</b>
      </div>
      <div class="what">
        <h2><span class="name">{r.name}</span> {!r.on ? <Tag>off</Tag> : r.state === "stopped" ? <Tag kind="bad">stopped</Tag> : <Tag kind="good">on</Tag>}</h2>
        <p>Letters in {r.queues ? <>queues like <code class="name">{r.queues}</code></> : "all queues"}{condition(r) && <>: <span class="name">{condition(r)}</span></>} <span aria-hidden="true">→</span> <b class="name">{deed(r)}</b>{r.action === "webhook" && r.last === false && <>; the next rules are asked too</>}</p>
        {r.on && r.state === "stopped" && r.why && <p class="small edit-warn name">It has stopped: {r.why}. Mend that, then turn it off and on: it goes on with your rights.</p>}
        <p class="muted small">{r.by && <>Set by <b class="name">{r.by}</b>. </>}{r.counts_hidden ? "What it does is shown to those who may read all queues that it is for" : r.acted ? <>It acted on {plural(r.acted, "letter")}{r.last_ms ? <>, last <When at={r.last_ms} /></> : null}</> : "It has not acted yet"}{r.waiting ? <>; {plural(r.waiting, "letter waits", "letters wait")} to be due</> : null}{r.job ? <>. <a href={to(["jobs", String(r.job)])}>What became of them</a></> : "."}</p>
      </div>
      {allowed && <div class="deeds row">
        {rules.length > 1 && <>
          <button class="quiet icon" data-to="up" aria-label={`Move ${r.name} up`} title="Up" disabled={i === 0} onClick={() => move(r.name, i - 1, "up")}>↑</button>
          <button class="quiet icon" data-to="down" aria-label={`Move ${r.name} down`} title="Down" disabled={i === rules.length - 1} onClick={() => move(r.name, i + 1, "down")}>↓</button></>}
        {r.on ? <button onClick={() => void off(r)} aria-label={`Turn off ${r.name}`}>Turn off</button> : <button onClick={() => setTurning({ rule: r, seen: data! })} aria-label={`Turn on… ${r.name}`}>Turn on…</button>}
        <button onClick={() => setEditing({ rule: r, seen: data! })} aria-label={`Edit… ${r.name}`}>Edit…</button>
        <button class="danger quiet" aria-label={`Delete ${r.name}`} onClick={() => ask({ title: "Delete the rule", label: "Delete rule", danger: true, text: <p>The rule <b class="name">{r.name}</b> goes.{r.waiting ? <> {plural(r.waiting, "letter waits", "letters wait")} for it; they stay where they lie, and the rules after it meet them.</> : " No letter waits for it."} What it has moved stays where it is.</p>, action: async () => { await put((now) => now.filter((x) => x.name !== r.name)); say(`The rule ${r.name} is deleted.`); } })}>Delete</button>
      </div>}
    </li>)}</ol>}
    <p class="visually-hidden" role="status">{told}</p>
    {moved && <div class="selection" role="region" aria-label="The order has changed"><b>The order has changed</b><span class="muted">It is not in force yet.</span><button class="primary" disabled={busy} onClick={() => void saveOrder()}>Save the order</button><button class="quiet" onClick={() => { setOrdered(null); tell("The order is as it was."); }}>Undo</button></div>}
    {data && <Threshold key={path} path={path!} now={data} allowed={allowed} reload={reload} />}
    {editing && <RuleForm vhost={vhost} rule={editing.rule} others={editing.seen.rules.map((r) => r.name).filter((n) => n !== editing.rule?.name)} close={() => setEditing(null)}
      save={async (rule) => {
        const old = editing.rule?.name;
        await put((now) => old === undefined ? [...now, rule] : now.map((x) => x.name === old ? rule : x), editing.seen);
        setOrdered(null); say(`The rule ${rule.name} is saved, and ${rule.on ? "on" : "off"}.`); setEditing(null);
      }} />}
    {turning && <TurnOn vhost={vhost} rule={turning.rule} close={() => setTurning(null)} done={async () => {
      await put((now) => now.map((x) => x.name === turning.rule.name ? { ...x, on: true } : x), turning.seen);
      say(`The rule ${turning.rule.name} is on.`); setTurning(null);
    }} />}
    {confirm}
  </div>;
}

/** putRules changes what was seen of rules; the node refuses it if somebody else has changed them since. */
async function putRules(path: string, seen: Rules, change: Partial<Rules>, reload: () => void): Promise<void> {
  try {
    await send("PUT", path, change, seen.revision === undefined ? {} : { "If-Match": JSON.stringify(seen.revision) });
  } catch (e) {
    if (!(e instanceof Refusal && e.status === 412)) throw e;
    reload();
    throw new Error("Somebody else has changed the rules since you looked. They are shown as they are now; make your change again.");
  }
  reload();
}

/** Threshold is from how many messages on an event tells of a queue. */
function Threshold(props: { path: string; now: Rules; allowed: boolean; reload(): void }) {
  const now = props.now.threshold ?? 0;
  const [edited, set] = useState<{ text: string; seen?: Rules } | null>(null), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const text = edited?.text ?? (now === 0 ? "" : String(now));
  return <form class="card" onSubmit={async (e) => {
    e.preventDefault();
    if (!edited || busy) return;
    setBusy(true); setError("");
    try {
      const threshold = whole(text, "The threshold") ?? 0;
      await putRules(props.path, edited.seen ?? props.now, { threshold }, props.reload);
      set(null);
      say(threshold === 0 ? "No event tells of full queues." : `An event tells of a queue from ${plural(threshold, "message")} on.`);
    } catch (x) { setError(words(x)); set({ text }); }
    setBusy(false);
  }}>
    <header><h2>Threshold</h2></header>
    <div class="body stack">
      <p>{now === 0 ? "No event tells that a queue gets full of dead letters." : <>The event <code>letter.threshold</code> tells that a queue for dead letters holds {count(now)} messages, and again when that has doubled.</>}{props.allowed && " Empty: no event tells of it."}</p>
      {props.allowed && <div class="row drop-filter">
        <Text label="Messages" value={text} set={(v) => set({ text: v, seen: edited?.seen ?? props.now })} error={error || undefined} placeholder="none" />
        <button type="submit" disabled={!edited || busy}>Save the threshold</button>
      </div>}
    </div>
  </form>;
}

/** TurnOn shows what a rule would do with the letters there are, before it does. */
function TurnOn(props: { vhost: string; rule: Rule; close(): void; done(): Promise<void> }) {
  const [tried, setTried] = useState<RuleTry | null>(null), [problem, setProblem] = useState("");
  useEffect(() => { send<RuleTry>("POST", p`office/rules/${props.vhost}/try`, settingsOf({ ...props.rule, on: true })).then(setTried, (e) => setProblem(words(e))); }, []);
  return <Dialog title={`Turn ${props.rule.name} on`} label={tried ? `Turn on for ${plural(tried.matched, "letter")}` : "Turn on"} disabled={!tried} close={props.close} action={props.done} danger={props.rule.action === "discard"}>
    <p><b class="name">{deed(props.rule)[0]!.toUpperCase() + deed(props.rule).slice(1)}</b>, for letters in {props.rule.queues ? <>queues like <code class="name">{props.rule.queues}</code></> : "all queues"}{condition(props.rule) && <>: <span class="name">{condition(props.rule)}</span></>}.</p>
    {problem ? <Note kind="bad" title="It could not be tried">{problem}</Note> : <Tried vhost={props.vhost} rule={props.rule} tried={tried} />}
  </Dialog>;
}

