// Webhooks: addresses that are told what happens to dead letters.
import { useState } from "preact/hooks";
import { p, send } from "../../api";
import { count, plural } from "../../format";
import { useApp, usePoll, useTitle } from "../../state";
import type { Webhook } from "../../types";
import { Dialog, useConfirm } from "../../ui/dialog";
import { Check, Select, Text } from "../../ui/form";
import { Empty, Note, PageHead, Tag, When } from "../../ui/parts";
import { Table, useListState, useLocalList, type Column } from "../../ui/table";
import { complain, say } from "../../ui/toast";
import { officeError } from "../office";

/** what can be told, as the node names it. */
const events: [string, string, string][] = [
  ["letter.group.created", "A new group of dead letters", "Something fails that has not failed like this before."],
  ["letter.threshold", "A queue passes a threshold", "It holds more dead letters than the virtual host allows for."],
  ["job.*", "Jobs", "One began, was paused, halted or cancelled, is done, or failed."],
  ["drop.recorded", "Drops", "A message was let go of and is gone."],
];

const columns = (allowed: { edit(w: Webhook): void; test(w: Webhook): void; remove(w: Webhook): void; busy: string | null }): Column<Webhook>[] => [
  { key: "name", title: "Name", name: true, by: (w) => w.name, cell: (w) => <a href="#" onClick={(e) => { e.preventDefault(); allowed.edit(w); }}>{w.name}</a> },
  { key: "on", title: "State", by: (w) => w.on ? 0 : 1, cell: (w) => !w.on ? <Tag>off</Tag> : w.last_error ? <Tag kind="bad" title={w.last_error}>failing</Tag> : <Tag kind="good">on</Tag> },
  { key: "url", title: "Address", text: true, by: (w) => w.url, cell: (w) => <code title={w.url}>{w.url}</code> },
  { key: "events", title: "Events", cell: (w) => (w.events ?? []).map((e) => <Tag key={e}>{e}</Tag>).concat((w.events ?? []).length ? [] : [<span class="muted">rules only</span>]) },
  { key: "vhost", title: "Virtual host", by: (w) => w.vhost ?? "", cell: (w) => w.vhost ? <span class="clip">{w.vhost}</span> : <span class="muted">all</span> },
  { key: "delivered", title: "Delivered", num: true, by: (w) => w.delivered ?? 0, cell: (w) => count(w.delivered ?? 0) },
  { key: "waiting", title: "Waiting", num: true, by: (w) => w.waiting ?? 0, cell: (w) => count(w.waiting ?? 0) },
  { key: "failed", title: "Given up", num: true, help: "eight tries failed", by: (w) => w.failed ?? 0, cell: (w) => w.failed ? <Tag kind="bad">{count(w.failed)}</Tag> : "0" },
  { key: "error", title: "Last error", text: true, by: (w) => w.last_error ?? "", cell: (w) => <span title={w.last_error}>{w.last_error}{w.last_error_ms ? <> <When at={w.last_error_ms} /></> : null}</span> },
  { key: "actions", title: "Actions", cell: (w) => <span class="row nowrap"><button class="quiet" aria-label={`Test ${w.name}`} disabled={allowed.busy === w.name} onClick={() => allowed.test(w)}>{allowed.busy === w.name ? "Testing…" : "Test"}</button><button class="quiet danger" aria-label={`Delete ${w.name}`} onClick={() => allowed.remove(w)}>Delete</button></span> },
];

export function WebhooksPage() {
  useTitle("Webhooks");
  const { data, error, reload } = usePoll<Webhook[] | { items: Webhook[] }>("office/webhooks");
  const hooks = Array.isArray(data) ? data : data?.items;
  const [editing, edit] = useState<Webhook | "new" | null>(null), [busy, setBusy] = useState<string | null>(null);
  const [confirm, ask] = useConfirm();
  const list = useListState();
  const test = async (w: Webhook) => {
    setBusy(w.name);
    try { await send("POST", p`office/webhooks/${w.name}/test`); say(`${w.name} has answered the test.`); } catch (e) { complain(`The test of ${w.name} failed`, e); }
    setBusy(null); reload();
  };
  const remove = (w: Webhook) => ask({ title: "Delete the webhook", label: w.waiting ? `Delete with ${plural(w.waiting, "event")}` : "Delete webhook", danger: true, action: async () => { await send("DELETE", p`office/webhooks/${w.name}`); say(`The webhook ${w.name} is deleted.`); reload(); },
    text: <p><b class="name">{w.name}</b> is told nothing any more{w.waiting ? <>; {plural(w.waiting, "event that waits is", "events that wait are")} not delivered</> : ""}. A rule that calls it does nothing until it names another.</p> });
  const all = columns({ edit, test: (w) => void test(w), remove, busy });
  const source = useLocalList(hooks, { ...list, columns: all, text: (w) => `${w.name} ${w.url} ${(w.events ?? []).join(" ")}`, error: officeError(error), reload });
  return <>
    <PageHead title="Webhooks" lead="Addresses that are told what happens to dead letters, by POST with a signature. What fails is tried eight times."><button class="primary" onClick={() => edit("new")}>Add a webhook</button></PageHead>
    <Table label="Webhooks" what="webhooks" source={source} list={list} columns={all} rowKey={(w) => w.name} open={(w) => edit(w)}
      empty={<Empty title="There are no webhooks"><p>A webhook tells a chat, a pager or a program of yours of new groups of dead letters, of jobs that halt, and of drops. Each group is told at most once a minute.</p><button onClick={() => edit("new")}>Add a webhook</button></Empty>} />
    {editing && <Edit hook={editing === "new" ? undefined : editing} others={(hooks ?? []).map((w) => w.name)} close={() => edit(null)} done={reload} />}
    {confirm}
  </>;
}

function Edit(props: { hook?: Webhook; others: string[]; close(): void; done(): void }) {
  const { session } = useApp();
  const { hook } = props;
  const known = (e: string) => events.some(([k]) => k === e);
  const [name, setName] = useState(hook?.name ?? ""), [url, setURL] = useState(hook?.url ?? ""), [chosen, choose] = useState<string[]>(hook ? hook.events.filter(known) : ["letter.group.created", "job.*"]), [other, setOther] = useState((hook?.events ?? []).filter((e) => !known(e)).join(", "));
  const [vhost, setVHost] = useState(hook?.vhost ?? ""), [secret, setSecret] = useState(""), [made, setMade] = useState(false), [on, setOn] = useState(hook?.on ?? true), [pressed, press] = useState(false);
  let bad: string | undefined, plain = false;
  if (url !== "") try { const u = new URL(url); plain = u.protocol === "http:"; if (u.protocol !== "http:" && u.protocol !== "https:") bad = "The address must begin with https:// or http://."; else if (u.username || u.password) bad = "The address must have no user and password: the signature says who calls."; } catch { bad = `“${url}” is no address; it must be like https://example.com/hook.`; }
  const taken = !hook && props.others.includes(name.trim());
  const bytes = new TextEncoder().encode(secret).length;
  const badSecret = secret === "" ? hook ? undefined : "The webhook needs a secret." : bytes < 16 || bytes > 256 ? `A secret has 16 to 256 bytes; this one has ${bytes}.` : undefined;
  const all = [...chosen, ...other.split(",").map((e) => e.trim()).filter(Boolean)];
  return <Dialog title={hook ? `Webhook ${hook.name}` : "Add a webhook"} label={hook ? "Save" : "Add webhook"} close={props.close} action={async () => {
    press(true);
    if (name.trim() === "") throw new Error("The webhook needs a name.");
    if (taken) throw new Error(`There is another webhook with the name ${name}.`);
    if (url === "") throw new Error("Enter the address that is called.");
    if (bad) throw new Error(bad);
    if (badSecret) throw new Error(badSecret);
    await send("PUT", p`office/webhooks/${name.trim()}`, { url, events: all, on, vhost, ...(secret !== "" ? { secret } : {}) });
    say(`The webhook ${name} is ${on ? "on" : "saved, and off"}.`); props.done(); props.close();
  }}>
    <div class="fields">
      <Text label="Name" value={name} set={setName} disabled={!!hook} autofocus={!hook} required error={taken ? `There is another webhook with this name.` : pressed && name.trim() === "" ? "Enter a name." : undefined} help="Rules and the audit name it by this." />
      <Text label="Address" value={url} set={setURL} placeholder="https://" required error={bad ?? (pressed && url === "" ? "Enter an address." : undefined)} help="Gets a POST with JSON; an answer with a status from 200 to 299 counts as delivered." />
    </div>
    {plain && <Note kind="warn">With http:// anybody on the way can read what is told: names of queues and texts of errors.</Note>}
    <fieldset><legend>Events</legend><div class="stack tight">{events.map(([k, title, help]) => <Check key={k} label={title} help={<>{help} <code>{k}</code></>} value={chosen.includes(k)} set={(yes) => choose(yes ? [...chosen, k] : chosen.filter((c) => c !== k))} />)}</div></fieldset>
    <div class="fields">
      <Text label="Other events" value={other} set={setOther} help={<>With commas between them, such as <code>job.halted, job.failed</code>. None at all: only rules tell it something.</>} />
      <Select label="Of virtual host" value={vhost} set={setVHost} of={[["", "all"], ...session.vhosts.map((v) => [v, v] as const)]} />
      <Text label="Secret" type={made ? "text" : "password"} value={secret} set={(v) => { setSecret(v); setMade(false); }} autocomplete="new-password" required={!hook} error={pressed || secret !== "" ? badSecret : undefined} help={<>Signs each call in the header <code>Bartleby-Signature</code>. {hook ? "16 to 256 bytes. It is never shown; empty: it stays." : "16 to 256 bytes, and needed."}</>} />
    </div>
    <div class="row"><button type="button" onClick={() => { setSecret([...crypto.getRandomValues(new Uint8Array(24))].map((b) => b.toString(16).padStart(2, "0")).join("")); setMade(true); }}>Make a secret</button>{made && <span class="muted">Copy it to who receives the calls: it is not shown again.</span>}</div>
    <Check label="On" value={on} set={setOn} help="Off: events that happen meanwhile are not told later." />
  </Dialog>;
}

