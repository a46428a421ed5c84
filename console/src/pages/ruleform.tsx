// The form of a rule. While it is filled in it shows what the rule would do with the letters that are there.
import { useEffect, useState } from "preact/hooks";
import { p, send, words } from "../api";
import { count, plural, span } from "../format";
import { to } from "../router";
import { pattern } from "../regexp";
import { may, useApp, usePoll } from "../state";
import type { Exchange, OfficeQueue, Queue, Rule, RuleAction, RuleTry, Webhook } from "../types";
import { Dialog } from "../ui/dialog";
import { Area, Check, Select, Text } from "../ui/form";
import { Fold, Note, Tag } from "../ui/parts";
import { Small } from "../ui/table";
import { cause } from "./office";
import { defaultTimes, enter, leads, read, ruleActions, ruleFilters, waits, type Entered } from "./rule";

export function RuleForm(props: { vhost: string; rule?: Rule; others: string[]; close(): void; save(r: Rule): Promise<void> }) {
  const { session } = useApp();
  const { vhost } = props;
  const [e, set] = useState<Entered>(() => enter(props.rule)), [pressed, press] = useState(false);
  const [tried, setTried] = useState<RuleTry | null>(null), [problem, setProblem] = useState("");
  const queues = usePoll<OfficeQueue[]>(p`office/queues/${vhost}`, 0), all = usePoll<Queue[]>(p`queues/${vhost}` + "?columns=name&disable_stats=true", 0), exchanges = usePoll<Exchange[]>(p`exchanges/${vhost}` + "?columns=name", 0);
  const hooks = usePoll<Webhook[]>(may(session, "administrator") ? "office/webhooks" : null, 0);
  const { rule, problems, missing } = read(e, props.others);
  const error = (key: string) => problems[key] ?? (pressed ? missing[key] : undefined);
  const put = (change: Partial<Entered>) => set({ ...e, ...change });
  const wrong = Object.keys(problems).length > 0;
  // What the rule would do depends on all of it but its name and whether it is on.
  const key = wrong || missing["after"] || missing["queue"] || missing["key"] || missing["webhook"] ? null : JSON.stringify({ ...rule, name: "", on: false });
  useEffect(() => {
    setTried(null); setProblem("");
    if (key === null) return;
    let ended = false;
    const t = setTimeout(() => { send<RuleTry>("POST", p`office/rules/${vhost}/try`, { ...rule, name: rule.name || "untitled", on: true }).then((v) => { if (!ended) setTried(v); }, (x) => { if (!ended) setProblem(words(x)); }); }, 400);
    return () => { ended = true; clearTimeout(t); };
  }, [key]);
  const field = (f: (typeof ruleFilters)[number]) => <Text key={f.key} label={f.label} help={f.help} value={e.match[f.key] ?? ""} set={(v) => put({ match: { ...e.match, [f.key]: v } })} error={error(f.key)} />;
  const held = (queues.data ?? []).map((q) => q.name);
  const like = problems["queues"] || e.queues === "" ? [] : held.filter((n) => pattern(e.queues).test(n));
  const plan = e.action === "retry" && !problems["after"] && !problems["factor"] && !problems["max"] && !problems["times"] && rule.after_ms !== undefined ? waits(rule) : undefined;
  const rare = ruleFilters.filter((f) => !f.first);
  return <Dialog title={props.rule ? `Rule ${props.rule.name}` : "Add a rule"} close={props.close} danger={e.on && e.action === "discard"}
    label={!e.on ? "Save, off" : tried ? `Save, on for ${plural(tried.matched, "letter")}` : "Save, on"} disabled={e.on && !tried}
    action={async () => {
      press(true);
      const first = Object.values(problems)[0] ?? Object.values(missing)[0];
      if (first) throw new Error(first);
      await props.save(rule);
    }}>
    <div class="fields">
      <Text label="Name" value={e.name} set={(name) => put({ name })} error={error("name")} autofocus={!props.rule} required help="Jobs and the audit name the rule by it." />
      <Text label="Queues with letters" value={e.queues} set={(v) => put({ queues: v })} error={error("queues")} help={<>Regular expression on their names, such as <code>^orders\.dead$</code>. Empty: all.</>} />
    </div>
    {like.length > 0 && <p class="small">Now: {like.slice(0, 8).map((n) => <Tag key={n}>{n}</Tag>)}{like.length > 8 && <span class="muted"> and {count(like.length - 8)} more</span>}</p>}
    {queues.data && e.queues !== "" && !problems["queues"] && like.length === 0 && <Note kind="warn">No queue that holds letters has such a name now.</Note>}
    <fieldset><legend>Which letters</legend><div class="fields">
      <Select label="Reason" value={e.reason} set={(v) => put({ reason: v })} of={[["", "any"], ["rejected", "rejected"], ["expired", "expired"], ["maxlen", "queue was full"], ["delivery_limit", "failed too often"]]} help="Why it died. All conditions must hold; empty ones do not count." />
      {ruleFilters.filter((f) => f.first).map(field)}
    </div></fieldset>
    <Fold title="More conditions" open={rare.some((f) => e.match[f.key]) || e.where !== ""}><div class="fields">{rare.map(field)}
      <Area label="Headers and properties" rows={2} wide value={e.where} set={(v) => put({ where: v })} error={error("where")} help={<>One condition a line: <code>header.tenant=north</code>, <code>header.attempt&gt;=3</code>, <code>property.app_id~^shop</code>, or the name alone: it exists</>} />
    </div></Fold>
    <fieldset><legend>What becomes of them</legend><div class="stack">
      <Select label="Action" value={e.action} set={(v) => put({ action: v as RuleAction })} of={ruleActions.map(([a, title]) => [a, title] as const)} help={ruleActions.find(([a]) => a === e.action)?.[2]} />
      {e.action === "retry" && <div class="fields">
        <Text label="First wait" value={e.after} set={(v) => put({ after: v })} error={error("after")} help="From the last death on: 30s, 5m, 1h" />
        <Text label="Factor" value={e.factor} set={(v) => put({ factor: v })} error={error("factor")} help="Each wait is so many times the one before; 1: always the same" />
        <Text label="Longest wait" value={e.max} set={(v) => put({ max: v })} error={error("max")} help="No wait is longer; empty: no bound" />
        <Text label="Chance in %" value={e.jitter} set={(v) => put({ jitter: v })} error={error("jitter")} help="Waits differ by so much, so that not all come at once" />
        <Text label="Times at most" value={e.times} set={(v) => put({ times: v })} error={error("times")} help={`A letter that was sent so often is left to the next rule, or stays; empty: ${defaultTimes.retry}`} />
      </div>}
      {plan && <p class="small" aria-live="polite">It waits {plan.first.map((w) => span(w)).join(", ")}{plan.times > plan.first.length ? ` … ${plural(plan.times, "time")} in all` : ""}.</p>}
      {e.action === "send" && <div class="fields">
        <Select label="Send to" value={e.target} set={(v) => put({ target: v as "queue" })} of={[["queue", "a queue"], ["exchange", "an exchange"]]} />
        {e.target === "queue" ? <Text label="Queue" value={e.queue} set={(v) => put({ queue: v })} error={error("queue")} list="rule-queues" help="An existing queue of this virtual host" />
          : <><Text label="Exchange" value={e.exchange} set={(v) => put({ exchange: v })} list="rule-exchanges" help="Empty: the default exchange" /><Text label="Routing key" value={e.key} set={(v) => put({ key: v })} error={error("key")} help="Empty: as first published" /></>}
        <Text label="Times at most" value={e.sends} set={(sends) => put({ sends })} error={error("sends")} help={`A letter that was sent so often is left to the next rule, or stays; empty: ${defaultTimes.send}`} />
      </div>}
      {leads(rule) && <Check label="Letters that clients have parked or imported, too" help="What they say of where they were first published is the client's word: who may write to these queues could have them published anywhere with your rights." value={e.parked} set={(parked) => put({ parked })} />}
      {e.action === "webhook" && (hooks.data?.length ? <Select label="Webhook" value={e.webhook} set={(v) => put({ webhook: v })} error={error("webhook")} of={[["", "choose one"], ...hooks.data.map((h) => [h.name, h.name] as const)]} /> : <Text label="Webhook" value={e.webhook} set={(v) => put({ webhook: v })} error={error("webhook")} help="The name of a webhook that an administrator has added" />)}
      {e.action === "webhook" && <Check label="The rules after it are not asked" help="Off: the next rule that matches acts as well." value={e.last} set={(last) => put({ last })} />}
    </div></fieldset>
    <datalist id="rule-queues">{(all.data ?? []).map((q) => <option key={q.name} value={q.name} />)}</datalist>
    <datalist id="rule-exchanges">{(exchanges.data ?? []).filter((x) => x.name !== "").map((x) => <option key={x.name} value={x.name} />)}</datalist>
    <section aria-live="polite" class="stack tight"><h3>What it would do now</h3>
      {key === null ? <p class="muted">{wrong ? "Mend what is wrong above." : Object.values(missing).filter((m) => m !== missing["name"])[0]}</p> : problem ? <Note kind="bad" title="It could not be tried">{problem}</Note> : <Tried vhost={vhost} rule={rule} tried={tried} />}
    </section>
    <Check label="On" help="It acts on the letters that are there, and on each that arrives." value={e.on} set={(on) => put({ on })} />
  </Dialog>;
}

const would: Record<RuleAction, string> = { retry: "be sent back when they are due", send: "be sent", discard: "be discarded", hold: "be held where they lie", webhook: "be told to the webhook" };

/** Tried is what a rule would do with the letters there are. */
export function Tried(props: { vhost: string; rule: Rule; tried: RuleTry | null }) {
  const { tried: t } = props;
  if (!t) return <p class="muted">Trying it on the letters that are there…</p>;
  const left = <>
    {t.too_often ? <p class="small muted">{plural(t.too_often, "letter")} more would stay: {t.too_often === 1 ? "it was" : "they were"} sent back too often.</p> : null}
    {t.no_origin ? <p class="small muted">{plural(t.no_origin, "letter")} more would stay: where {t.no_origin === 1 ? "it was" : "they were"} first published is not known.</p> : null}
    {t.parked ? <p class="small muted">{plural(t.parked, "letter")} more would stay: only a client says where {t.parked === 1 ? "it was" : "they were"} first published.</p> : null}
    {t.stopped && <Note kind="warn">There are more messages than were looked at, so the true count may be higher.</Note>}
  </>;
  if (t.matched === 0) return <><Note>Of {plural(t.examined, "message")} that {t.examined === 1 ? "was" : "were"} looked at, none would be touched.</Note>{left}</>;
  return <>
    <p><b>{plural(t.matched, "letter")}</b> of {plural(t.examined, "message")} would {would[props.rule.action]}{props.rule.action === "retry" && t.due ? <>; {count(t.due)} of them {t.due === 1 ? "is" : "are"} due now</> : null}.</p>
    {left}
    {t.by_queue.length > 0 && <Small label="By queue" head={["Queue", ["Letters", "num"]]} rows={t.by_queue.slice(0, 20).map((q) => [<span class="name">{q.queue}</span>, count(q.letters)])} />}
    {t.first.length > 0 && <details><summary>{t.first.length === 1 ? "The letter" : `The first ${count(t.first.length)}`}</summary><Small wrapped label="First letters" head={["Cause", "Died in", ["Times", "num"], ["Size", "num"]]} rows={t.first.slice(0, 20).map((r) => [<a class="name" target="_blank" href={to(["letters", r.vhost, r.queue, r.id])}>{cause(r)}</a>, <span class="name">{r.source || "parked"}</span>, count(r.times_died), count(r.size)])} /></details>}
  </>;
}
