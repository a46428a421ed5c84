// Definitions, shovels, features and the configuration in force.
import { useState } from "preact/hooks";
import { p, raw, send, words } from "../../api";
import { count } from "../../format";
import { useApp, usePoll, useTitle, may } from "../../state";
import { Dialog, useConfirm } from "../../ui/dialog";
import { Area, Select, Text, whole } from "../../ui/form";
import { Card, Empty, Failed, Fold, Loading, Note, PageHead, Tag } from "../../ui/parts";
import { Table, useListState, useLocalList, type Column } from "../../ui/table";
import { say } from "../../ui/toast";
import { table } from "../arguments";

export function DefinitionsPage() {
  useTitle("Definitions");
  const { session, vhost } = useApp();
  const [file, setFile] = useState<{ name: string; text: string; counts: string[] } | null>(null), [error, setError] = useState(""), [only, setOnly] = useState("");
  const path = vhost ? p`definitions/${vhost}` : "definitions";
  const read = async (f: File | undefined) => {
    setError(""); setFile(null);
    if (!f) return;
    try {
      const text = await f.text(), v = JSON.parse(text) as Record<string, unknown>;
      const counts = Object.entries(v).filter(([, list]) => Array.isArray(list) && list.length > 0).map(([k, list]) => `${count((list as unknown[]).length)} ${k.replaceAll("_", " ")}`);
      if (counts.length === 0) throw new Error("it has no users, virtual hosts, queues or anything else to import.");
      setFile({ name: f.name, text, counts });
    } catch (e) { setError(`${f.name} holds no definitions: ${words(e)}`); }
  };
  return <div class="stack">
    <PageHead title="Definitions" lead="Users, virtual hosts, permissions, queues, exchanges, bindings and policies as one file. Messages are not in it." />
    <div class="grid2">
      <Card title="Download"><div class="stack"><p>{vhost ? <>All that is declared in <b class="name">{vhost}</b>.</> : "All that is declared on the node, with the hashes of passwords."}</p><div class="row"><a class="button" href={"api/" + path} download={`definitions-${session.node.replaceAll("@", "-")}.json`}>Download definitions</a></div></div></Card>
      <Card title="Upload"><div class="stack">
        <p>What is there stays; what has the same name is set anew, if that is possible.</p>
        <div class="field"><label for="definitions-file">File</label><input id="definitions-file" type="file" accept=".json,application/json" onChange={(e) => void read(e.currentTarget.files?.[0])} /></div>
        <Select label="Into" value={only} set={setOnly} of={[["", "the node, as the file says"], ...session.vhosts.map((v) => [v, `virtual host ${v}`] as const)]} help="Export and import of one virtual host go together." />
        {error && <Note kind="bad">{error}</Note>}
        {file && <Note title={file.name}>{file.counts.join(", ")}</Note>}
        <div class="row"><button class="primary" disabled={!file} onClick={async () => {
          setError("");
          try { await raw("POST", only ? p`definitions/${only}` : "definitions", { body: file!.text }); say(`${file!.name} is imported.`); setFile(null); } catch (e) { setError(words(e)); }
        }}>{file ? `Import ${file.counts.join(", ")}` : "Import"}</button></div>
      </div></Card>
    </div>
  </div>;
}

interface Shovel { name: string; vhost: string; type: string; state: string; reason?: string; blocked_status?: string; forwarded?: number; remaining?: number | string; src_queue?: string; src_exchange?: string; dest_queue?: string; dest_exchange?: string; src_uri?: string; dest_uri?: string; }

const shovelColumns: Column<Shovel>[] = [
  { key: "name", title: "Name", by: (s) => s.name, name: true, cell: (s) => <span>{s.name}</span> },
  { key: "vhost", title: "Virtual host", by: (s) => s.vhost, cell: (s) => s.vhost },
  { key: "state", title: "State", by: (s) => s.state, cell: (s) => <Tag kind={s.state === "running" ? s.blocked_status && s.blocked_status !== "running" ? "warn" : "good" : s.state === "starting" ? "" : "bad"} title={s.reason}>{s.state === "running" && s.blocked_status && s.blocked_status !== "running" ? s.blocked_status : s.state}</Tag> },
  { key: "from", title: "From", text: true, cell: (s) => s.src_queue ?? s.src_exchange ?? "" },
  { key: "to", title: "To", text: true, cell: (s) => s.dest_queue ?? s.dest_exchange ?? "" },
  { key: "forwarded", title: "Moved", num: true, by: (s) => s.forwarded ?? 0, cell: (s) => count(s.forwarded) },
  { key: "reason", title: "Reason", text: true, cell: (s) => s.reason ?? "" },
];

export function ShovelsPage() {
  useTitle("Shovels");
  const { session, vhost } = useApp();
  const { data, error, reload } = usePoll<Shovel[]>(vhost ? p`shovels/${vhost}` : "shovels");
  const list = useListState();
  const [adding, setAdding] = useState(false);
  const [confirm, ask] = useConfirm();
  const allowed = may(session, "policymaker");
  const columns: Column<Shovel>[] = allowed ? [...shovelColumns, { key: "actions", title: "Actions", cell: (s) => <span class="row nowrap">
    <button class="quiet" onClick={async () => { await send("DELETE", p`shovels/vhost/${s.vhost}/${s.name}/restart`); say("The shovel starts anew."); reload(); }}>Restart</button>
    <button class="quiet danger" onClick={() => ask({ title: "Delete the shovel", label: "Delete shovel", danger: true, text: <p><b class="name">{s.name}</b> stops. What it has taken and not delivered goes back to its source.</p>, action: async () => { await send("DELETE", p`parameters/shovel/${s.vhost}/${s.name}`); reload(); } })}>Delete</button></span> }] : shovelColumns;
  const source = useLocalList(data, { ...list, columns, text: (s) => s.name, error, reload });
  return <>
    <PageHead title="Shovels" lead="They move messages from a queue or an exchange to another, here or on another broker.">{allowed && <button class="primary" onClick={() => setAdding(true)}>Add a shovel</button>}</PageHead>
    <Table label="Shovels" what="shovels" source={source} list={list} columns={columns} rowKey={(s) => `${s.vhost}/${s.name}`} empty={<Empty title="There are no shovels" />} />
    {adding && <AddShovel close={() => setAdding(false)} done={reload} />}
    {confirm}
  </>;
}

function AddShovel(props: { close(): void; done(): void }) {
  const { session, vhost: here } = useApp();
  const [vhost, setVHost] = useState(here || session.vhosts[0] || "/"), [name, setName] = useState(""), [from, setFrom] = useState("amqp://"), [source, setSource] = useState(""), [to, setTo] = useState("amqp://"), [target, setTarget] = useState(""), [ack, setAck] = useState("on-confirm"), [prefetch, setPrefetch] = useState(""), [after, setAfter] = useState("never"), [more, setMore] = useState("");
  return <Dialog title="Add a shovel" label="Add shovel" close={props.close} action={async () => {
    if (name === "" || source === "" || target === "") throw new Error("Name, source queue and target queue are needed.");
    const n = whole(prefetch, "Unconfirmed at most");
    await send("PUT", p`parameters/shovel/${vhost}/${name}`, { value: { "src-uri": from, "src-queue": source, "dest-uri": to, "dest-queue": target, "ack-mode": ack, "src-delete-after": after, ...(n !== undefined ? { "src-prefetch-count": n } : {}), ...table(more, "Other keys") } });
    say(`The shovel ${name} is there.`); props.done(); props.close();
  }}>
    <div class="fields">
      <Select label="Virtual host" value={vhost} set={setVHost} of={session.vhosts.map((v) => [v, v] as const)} /><Text label="Name" value={name} set={setName} autofocus />
      <Text label="From the broker" value={from} set={setFrom} help="amqp:// is this node" /><Text label="Source queue" value={source} set={setSource} /><Text label="To the broker" value={to} set={setTo} help="amqp://user:password@host/vhost" /><Text label="Target queue" value={target} set={setTarget} />
      <Select label="Acknowledge" value={ack} set={setAck} of={[["on-confirm", "when the target confirms"], ["on-publish", "when it is sent"], ["no-ack", "never: may lose messages"]]} />
      <Select label="It ends" value={after} set={setAfter} of={[["never", "never"], ["queue-length", "when what is there now is moved"]]} /><Text label="Unconfirmed at most" value={prefetch} set={setPrefetch} help="Empty: 1,000" />
    </div>
    <Fold title="Other keys"><Area label="As JSON" value={more} set={setMore} /></Fold>
  </Dialog>;
}

interface Flag { name: string; desc: string; state: string; stability: string; provided_by: string; }
interface Deprecated { name: string; deprecation_phase: string; state: string; doc_url: string; }

const flagColumns: Column<Flag>[] = [
  { key: "name", title: "Name", by: (f) => f.name, name: true, cell: (f) => <span>{f.name}</span> }, { key: "state", title: "State", by: (f) => f.state, cell: (f) => <Tag kind="good">{f.state}</Tag> },
  { key: "stability", title: "Stability", by: (f) => f.stability, cell: (f) => f.stability }, { key: "desc", title: "Description", cell: (f) => f.desc },
];
const deprecatedColumns: Column<Deprecated>[] = [
  { key: "name", title: "Name", by: (f) => f.name, name: true, cell: (f) => <span>{f.name}</span> }, { key: "state", title: "State", by: (f) => f.state, cell: (f) => <Tag kind={f.state === "permitted" ? "warn" : ""}>{f.state}</Tag> },
  { key: "phase", title: "Phase", by: (f) => f.deprecation_phase, cell: (f) => f.deprecation_phase.replaceAll("_", " ") }, { key: "used", title: "Used", cell: () => "" },
];

export function FeaturesPage() {
  useTitle("Features");
  const flags = usePoll<Flag[]>("feature-flags", 0), deprecated = usePoll<Deprecated[]>("deprecated-features", 0), used = usePoll<Deprecated[]>("deprecated-features/used", 0);
  const one = useListState({ desc: false }, "f-"), two = useListState({ desc: false }, "d-");
  const columns = deprecatedColumns.map((c) => c.key === "used" ? { ...c, cell: (f: Deprecated) => used.data?.some((u) => u.name === f.name) ? <Tag kind="warn">now</Tag> : <span class="muted">no</span> } : c);
  return <div class="stack">
    <PageHead title="Features" lead="As tools for RabbitMQ ask for them. All flags are on from the start." />
    <section class="stack tight"><h2>Deprecated features</h2><Table label="Deprecated features" what="deprecated features" noFilter source={useLocalList(deprecated.data, { ...two, columns, text: (f) => f.name, error: deprecated.error })} list={two} columns={columns} rowKey={(f) => f.name} empty={<Empty title="None" />} /></section>
    <section class="stack tight"><h2>Feature flags</h2><Table label="Feature flags" what="feature flags" noFilter source={useLocalList(flags.data, { ...one, columns: flagColumns, text: (f) => f.name, error: flags.error })} list={one} columns={flagColumns} rowKey={(f) => f.name} empty={<Empty title="None" />} /></section>
  </div>;
}

export function ConfigurationPage() {
  useTitle("Configuration");
  const { data, error, loading } = usePoll<string>("config/effective", 0, async (path, signal) => (await raw("GET", path, { signal })).text());
  const [filter, setFilter] = useState("");
  const lines = (data ?? "").trimEnd().split("\n").filter((l) => l.toLowerCase().includes(filter.toLowerCase()));
  return <div class="stack">
    <PageHead title="Configuration" lead="What is in force now, as lines of a configuration file. Secrets are masked." />
    <Failed error={error} what="the configuration" />
    {loading && <Loading />}
    {data !== undefined && <><div class="table-tools"><input class="filter" type="search" aria-label="Filter settings" placeholder="Filter settings" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} /><span class="total">{count(lines.length)} lines</span></div><pre class="code" tabIndex={0} style={{ maxHeight: "none" }}>{lines.join("\n") || "No line matches."}</pre></>}
  </div>;
}
