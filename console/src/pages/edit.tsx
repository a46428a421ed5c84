// One letter is edited: its body, properties and headers. What differs is shown before it is done; the original stays in the archive.
import { useEffect, useState } from "preact/hooks";
import { p, query, raw, send, words } from "../api";
import { bytes, count } from "../format";
import { to } from "../router";
import { useApp } from "../state";
import type { Args, Change, DryRun, Job, Letter, LetterEdit } from "../types";
import { Dialog } from "../ui/dialog";
import { Area, Select, Text } from "../ui/form";
import { Fold, IconButton, Note } from "../ui/parts";
import { say } from "../ui/toast";

const first = ["content_type", "type", "message_id", "correlation_id", "reply_to"] as const, rest = ["app_id", "user_id", "content_encoding", "cluster_id", "delivery_mode", "priority", "timestamp"] as const;
const numbers: readonly string[] = ["delivery_mode", "priority", "timestamp"];
const helps: Record<string, string> = { content_type: "Such as application/json", reply_to: "Where an answer is expected", delivery_mode: "2: kept on disk; 1: not", priority: "0 to 255", timestamp: "Seconds since 1970" };
/** fixed headers tell of deaths; nobody may change them. */
const fixed = /^x-(death|opt-deaths|(first|last)-death-.*|delivery-count|acquired-count)$/i;
const largest = 4 << 20;

interface Header { id: number; name: string; text: string; kind: "text" | "json"; was?: string; gone?: boolean; }
let ids = 0;
const shown = (v: unknown): Pick<Header, "text" | "kind"> => typeof v === "string" ? { text: v, kind: "text" } : { text: JSON.stringify(v), kind: "json" };

/** edited is what differs from the letter; it throws what is wrong. body is undefined while it is not loaded whole. */
export function edited(l: { properties: Args; headers: Args }, body: { now: string; was: string; base64: boolean } | undefined, properties: Record<string, string>, headers: Header[]): LetterEdit {
  const e: LetterEdit = {};
  if (body && body.now !== body.was) {
    if (body.base64) { try { atob(body.now.replace(/\s/g, "")); } catch { throw new Error("The body is no base64."); } }
    e.body = body.base64 ? body.now.replace(/\s/g, "") : body.now;
    e.body_encoding = body.base64 ? "base64" : "text";
  }
  for (const [k, v] of Object.entries(properties)) {
    const was = l.properties[k];
    if (v === (was === undefined || was === null ? "" : String(was))) continue;
    if (v !== "" && numbers.includes(k) && !/^\d+$/.test(v)) throw new Error(`${k} must be a whole number, not “${v}”.`);
    (e.properties ??= {})[k] = v === "" ? null : numbers.includes(k) ? Number(v) : v;
  }
  const seen = new Set<string>();
  for (const h of headers) {
    if (h.gone) { if (h.was !== undefined) (e.headers ??= {})[h.was] ??= null; continue; }
    if (h.name === "") { if (h.text === "") continue; throw new Error(`A header has the value “${h.text}” and no name.`); }
    if (seen.has(h.name)) throw new Error(`There are two headers with the name ${h.name}.`);
    seen.add(h.name);
    let v: unknown = h.text;
    if (h.kind === "json") try { v = JSON.parse(h.text); } catch { throw new Error(`The header ${h.name} must be JSON, such as 3, true or ["a"], not “${h.text}”. Choose text for a text.`); }
    if (v === null) throw new Error(`The header ${h.name} cannot be null: take it out instead.`);
    if (h.was !== undefined && h.was !== h.name) (e.headers ??= {})[h.was] ??= null;
    if (h.was !== h.name || JSON.stringify(l.headers[h.name]) !== JSON.stringify(v)) (e.headers ??= {})[h.name] = v;
  }
  return e;
}

/** EditLetter is the form. What is masked would come back as the mask itself, so a letter with hidden values is not edited. */
export function EditLetter(props: { letter: Letter; revealed: boolean; close(): void }) {
  return props.letter.masked ? <Dialog small title="Edit the letter" close={props.close}><Note kind="warn">Some values of this letter are hidden from you, and an edit would put ••• in their place. Reveal them first, on the page of the letter.</Note></Dialog> : <Form {...props} />;
}

function Form(props: { letter: Letter; revealed: boolean; close(): void }) {
  const { letter: l } = props;
  const { session } = useApp();
  const whole = !l.body.cut;
  const [body, setBody] = useState<{ now: string; was: string; base64: boolean } | undefined>(whole ? { now: l.body.text, was: l.body.text, base64: l.body.encoding === "base64" } : undefined), [loading, setLoading] = useState("");
  const [properties, setProperties] = useState<Record<string, string>>(() => Object.fromEntries([...first, ...rest].map((k) => [k, l.properties[k] === undefined || l.properties[k] === null ? "" : String(l.properties[k])])));
  const [headers, setHeaders] = useState<Header[]>(() => Object.entries(l.headers).filter(([k]) => !fixed.test(k)).map(([k, v]) => ({ id: ids++, name: k, was: k, ...shown(v) })));
  const [then, setThen] = useState("replay"), [why, setWhy] = useState(""), [missing, setMissing] = useState(false);
  const [plan, setPlan] = useState<DryRun | null>(null), [problem, setProblem] = useState("");
  let edit: LetterEdit = {}, wrong = "";
  try { edit = edited(l, body, properties, headers); } catch (e) { wrong = words(e); }
  const nothing = wrong === "" && Object.keys(edit).length === 0;
  const request = { action: "edit", vhost: l.vhost, queues: [l.queue], ids: [l.id], edit, then };
  const key = wrong || nothing ? null : JSON.stringify(request);
  useEffect(() => {
    setPlan(null); setProblem("");
    if (key === null) return;
    let ended = false;
    const t = setTimeout(() => { send<DryRun>("POST", "office/jobs" + query({ dry_run: true, reveal: props.revealed }), JSON.parse(key)).then((v) => { if (!ended) setPlan(v); }, (e) => { if (!ended) setProblem(words(e)); }); }, 350);
    return () => { ended = true; clearTimeout(t); };
  }, [key]);
  const load = async () => {
    setLoading("Loading…");
    try {
      const data = new Uint8Array(await (await raw("GET", p`office/letters/${l.vhost}/${l.queue}/${l.id}/body` + query({ reveal: props.revealed }))).arrayBuffer());
      let text: string, base64 = false;
      try { text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data); } catch { base64 = true; text = ""; for (let i = 0; i < data.length; i += 0x8000) text += String.fromCharCode(...data.subarray(i, i + 0x8000)); text = btoa(text); }
      setBody({ now: text, was: text, base64 }); setLoading("");
    } catch (e) { setLoading(words(e)); }
  };
  const json = body && !body.base64 && /^\s*[{[]/.test(body.was) ? (() => { try { JSON.parse(body.now); return "yes"; } catch (e) { return (e as Error).message; } })() : "";
  const set = (id: number, change: Partial<Header>) => setHeaders(headers.map((h) => h.id === id ? { ...h, ...change } : h));
  const field = (k: string) => <Text key={k} label={k[0]!.toUpperCase() + k.slice(1).replaceAll("_", " ")} help={helps[k]} value={properties[k]!} set={(v) => setProperties({ ...properties, [k]: v })} />;
  const nowhere = plan && plan.count === 0;
  return <Dialog title="Edit the letter" close={props.close} busyLabel="Beginning…" label={then === "replay" ? "Edit and replay 1 letter" : "Edit 1 letter"} disabled={!plan || plan.count === 0}
    action={async (go) => {
      if (why.trim() === "") { setMissing(true); throw new Error("Say why: the reason stands in the audit log with your name."); }
      const job = await send<Job>("POST", "office/jobs" + query({ reveal: props.revealed }), { ...request, reason: why.trim(), token: plan!.token, count: plan!.count });
      say("The letter is edited."); props.close(); go(to(["jobs", String(job.id)]));
    }}>
    <p class="muted">A copy of the letter with your changes takes its place. The original goes to <b>bartleby.archive</b> and can be restored from there for 7 days.</p>
    {body ? <div class="stack tight">
      <Area label={body.base64 ? "Body, as base64" : "Body"} rows={10} value={body.now} set={(now) => setBody({ ...body, now })} help={body.base64 ? "The body is no text." : undefined} />
      {json !== "" && <div class="row small">{json === "yes" ? <span class="muted">This is JSON.</span> : <span class="edit-warn">This is no JSON any more: {json}</span>}{json === "yes" && <button type="button" class="quiet" onClick={() => setBody({ ...body, now: JSON.stringify(JSON.parse(body.now), null, 2) })}>Lay out</button>}{body.now !== body.was && <button type="button" class="quiet" onClick={() => setBody({ ...body, now: body.was })}>Undo</button>}</div>}
    </div> : <Note>{l.body.bytes > largest ? <>The body has {bytes(l.body.bytes)}; here bodies of at most {bytes(largest)} are edited. Properties and headers can be changed.</> : <div class="row apart"><span>The body has {bytes(l.body.bytes)}, of which the page shows the first part.</span><button type="button" disabled={loading === "Loading…"} onClick={() => void load()}>{loading === "Loading…" ? loading : "Load the whole body"}</button></div>}{loading !== "" && loading !== "Loading…" && <p>{loading}</p>}</Note>}
    <fieldset><legend>Headers</legend><div class="stack tight">
      {headers.filter((h) => !h.gone).map((h) => <div key={h.id} class="edit-header">
        <input aria-label="Name of the header" value={h.name} placeholder="name" spellcheck={false} onInput={(e) => set(h.id, { name: e.currentTarget.value })} />
        <input aria-label={`Value of ${h.name || "the new header"}`} value={h.text} placeholder="value" spellcheck={false} onInput={(e) => set(h.id, { text: e.currentTarget.value })} />
        <select aria-label={`Kind of ${h.name || "the new header"}`} value={h.kind} onChange={(e) => set(h.id, { kind: e.currentTarget.value as "text" })}><option value="text">text</option><option value="json">JSON</option></select>
        <IconButton name="close" label={`Take ${h.name || "the new header"} out`} onClick={() => set(h.id, { gone: true })} />
      </div>)}
      <div class="row"><button type="button" onClick={() => setHeaders([...headers, { id: ids++, name: "", text: "", kind: "text" }])}>Add a header</button>{Object.keys(l.headers).some((k) => fixed.test(k)) && <span class="muted small">Headers that tell of deaths stay as they are.</span>}</div>
    </div></fieldset>
    <fieldset><legend>Properties</legend><div class="fields">{first.map(field)}</div></fieldset>
    <Fold title="More properties" open={rest.some((k) => properties[k] !== "" && k !== "delivery_mode")}><div class="fields">{rest.map(field)}</div></Fold>
    <div class="fields">
      <Select label="Then" value={then} set={setThen} of={[["replay", "send it where it was first published"], ["stay", "leave it in this queue, edited"]]} />
      <Text label="Reason" value={why} set={setWhy} required error={missing && why.trim() === "" ? "Say why." : undefined} help={`It stands in the audit log, with your name (${session.name}).`} />
    </div>
    <section aria-live="polite" class="stack tight"><h3>What would change</h3>
      {wrong !== "" ? <Note kind="bad">{wrong}</Note> : nothing ? <p class="muted">Nothing yet.</p> : problem ? <Note kind="bad">{problem}</Note> : !plan ? <p class="muted">Looking…</p> : <>
        {(plan.diff ?? []).map((c) => <Diff key={c.what} of={c} />)}
        {then === "replay" && plan.routes.map((r) => <p key={r.exchange + r.routing_key} class="small">It goes through <b class="name">{r.exchange || "the default exchange"}</b> with <code class="name">{r.routing_key || "(empty)"}</code> into <b class="name">{r.queues.join(", ") || "no queue"}</b>.</p>)}
        {nowhere && <Note kind="warn" title="It would go nowhere">{plan.unroutable.map((u) => u.why).join("; ") || (plan.no_origin ? "Where it was first published is not known." : plan.too_often ? "It was sent back too often." : "The letter has left the queue.")} Leave it in this queue, edited.</Note>}
      </>}
    </section>
  </Dialog>;
}

/** lines compares texts line by line: what is the same at both ends is left out but for two lines. */
export function lines(before: string, after: string): { kind: "same" | "out" | "in" | "gap"; text: string }[] {
  const a = before.split("\n"), b = after.split("\n");
  let from = 0, end = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  while (end < a.length - from && end < b.length - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const x = a.slice(from, a.length - end), y = b.slice(from, b.length - end), out: { kind: "same" | "out" | "in" | "gap"; text: string }[] = [];
  const context = 2;
  if (from > context) out.push({ kind: "gap", text: `… ${count(from - context)} lines` });
  for (const t of a.slice(Math.max(0, from - context), from)) out.push({ kind: "same", text: t });
  if (x.length * y.length > 250000) { for (const t of x) out.push({ kind: "out", text: t }); for (const t of y) out.push({ kind: "in", text: t }); } else {
    const most: number[][] = Array.from({ length: x.length + 1 }, () => Array<number>(y.length + 1).fill(0));
    for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) most[i]![j] = x[i] === y[j] ? most[i + 1]![j + 1]! + 1 : Math.max(most[i + 1]![j]!, most[i]![j + 1]!);
    for (let i = 0, j = 0; i < x.length || j < y.length;) {
      if (i < x.length && j < y.length && x[i] === y[j]) { out.push({ kind: "same", text: x[i]! }); i++; j++; } else if (i < x.length && (j >= y.length || most[i + 1]![j]! >= most[i]![j + 1]!)) out.push({ kind: "out", text: x[i++]! }); else out.push({ kind: "in", text: y[j++]! });
    }
  }
  const after_ = a.slice(a.length - end, a.length - end + context);
  for (const t of after_) out.push({ kind: "same", text: t });
  if (end > context) out.push({ kind: "gap", text: `… ${count(end - context)} lines` });
  return out;
}

function Diff(props: { of: Change }) {
  const { of: c } = props;
  const pretty = (v: unknown) => { if (typeof v !== "string") return JSON.stringify(v, null, 2); if (c.what === "body") try { const x: unknown = JSON.parse(v); if (typeof x === "object" && x !== null) return JSON.stringify(x, null, 2); } catch { /* as it is */ } return v; };
  const before = c.before === null || c.before === undefined ? undefined : pretty(c.before), after = c.after === null || c.after === undefined ? undefined : pretty(c.after);
  const what = c.what === "body" ? "Body" : c.what.startsWith("header.") ? `Header ${c.what.slice(7)}` : `Property ${c.what.slice(9).replaceAll("_", " ")}`;
  let list = before === undefined ? after!.split("\n").map((text) => ({ kind: "in" as const, text })) : after === undefined ? before.split("\n").map((text) => ({ kind: "out" as const, text })) : lines(before, after);
  const same = before !== undefined && before === after; // only the layout of JSON differs
  if (same) list = [{ kind: "same", text: "Only white space differs." }] as typeof list;
  return <div><h4 class="name">{what}{before === undefined ? ": new" : after === undefined ? ": taken out" : ""}</h4>
    <pre class="code diff" tabIndex={0} aria-label={`Change of ${what}`}>{list.slice(0, 400).map((d, i) => <span key={i} class={d.kind}><span class="visually-hidden">{d.kind === "in" ? "added: " : d.kind === "out" ? "taken out: " : ""}</span><span aria-hidden="true">{d.kind === "in" ? "+ " : d.kind === "out" ? "− " : "  "}</span>{d.text}{"\n"}</span>)}{list.length > 400 && `… ${count(list.length - 400)} lines more`}</pre>
    {c.cut && <p class="muted small">The first 64 KiB are shown.</p>}</div>;
}
