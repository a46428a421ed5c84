import { useState } from "preact/hooks";
import { p, raw, send } from "../../api";
import { count, plural } from "../../format";
import { go, to } from "../../router";
import { useApp, usePoll, useTitle } from "../../state";
import type { Permission, VHost } from "../../types";
import { Dialog, useConfirm } from "../../ui/dialog";
import { Check, Select, Text } from "../../ui/form";
import { Card, Empty, Facts, Failed, Loading, Note, PageHead, Tag, Zero } from "../../ui/parts";
import { Small, Table, useListState, useServerList, type Column } from "../../ui/table";
import { complain, say } from "../../ui/toast";
import { DefaultDeadLetter } from "./deadletter";
import { Limits } from "./users";

const profiles: [string, string][] = [["rabbitmq", "RabbitMQ"], ["apsaramq", "ApsaraMQ for RabbitMQ"]];

const columns: Column<VHost>[] = [
  { key: "name", title: "Name", sort: "name", name: true, cell: (v) => <a href={to(["vhosts", v.name])}>{v.name}</a> },
  { key: "description", title: "Description", sort: "description", text: true, cell: (v) => v.description },
  { key: "profile", title: "Profile", sort: "profile", cell: (v) => profiles.find(([k]) => k === v.profile)?.[1] ?? v.profile ?? "" },
  { key: "type", title: "Default queue type", sort: "default_queue_type", cell: (v) => v.default_queue_type },
  { key: "ready", title: "Ready", sort: "messages_ready", num: true, cell: (v) => <Zero n={v.messages_ready} text={count(v.messages_ready)} /> },
  { key: "unacked", title: "Unacked", sort: "messages_unacknowledged", num: true, cell: (v) => <Zero n={v.messages_unacknowledged} text={count(v.messages_unacknowledged)} /> },
  { key: "protected", title: "Protected", cell: (v) => v.protected_from_deletion ? <Tag kind="good">yes</Tag> : "" },
];

export function VHostsPage() {
  useTitle("Virtual hosts");
  const { reloadSession } = useApp();
  const list = useListState();
  const source = useServerList<VHost>("vhosts", list);
  const [adding, setAdding] = useState(false);
  return <>
    <PageHead title="Virtual hosts" lead="Each has queues, exchanges and permissions of its own."><button class="primary" onClick={() => setAdding(true)}>Add a virtual host</button></PageHead>
    <Table label="Virtual hosts" what="virtual hosts" server source={source} list={list} columns={columns} rowKey={(v) => v.name} href={(v) => to(["vhosts", v.name])} empty={<Empty title="There are no virtual hosts" />} />
    {adding && <Edit close={() => setAdding(false)} done={(name, go) => { source.reload(); void reloadSession(); go(to(["vhosts", name])); }} />}
  </>;
}

function Edit(props: { vhost?: VHost; close(): void; done(name: string, go: (hash: string) => void): void }) {
  const { vhost } = props;
  const [name, setName] = useState(vhost?.name ?? ""), [description, setDescription] = useState(vhost?.description ?? ""), [type, setType] = useState(vhost?.default_queue_type ?? "classic"), [profile, setProfile] = useState(vhost?.profile ?? "rabbitmq"), [tags, setTags] = useState((vhost?.tags ?? []).join(", ")), [tracing, setTracing] = useState(vhost?.tracing ?? false), [dead, setDead] = useState(vhost?.default_dead_letter ?? ""), [lenient, setLenient] = useState(vhost?.lenient_declarations ?? false);
  return <Dialog title={vhost ? `Change ${vhost.name}` : "Add a virtual host"} label={vhost ? "Save" : "Add virtual host"} close={props.close} action={async (go) => {
    if (name === "") throw new Error("The virtual host needs a name.");
    await send("PUT", p`vhosts/${name}`, { description, default_queue_type: type, profile, tags: tags.split(",").map((t) => t.trim()).filter(Boolean).join(","), tracing, ...(dead !== (vhost?.default_dead_letter ?? "") ? { default_dead_letter: dead } : {}), ...(lenient !== (vhost?.lenient_declarations ?? false) ? { lenient_declarations: lenient } : {}) });
    say(`The virtual host ${name} is ${vhost ? "changed" : "there"}.`); props.close(); props.done(name, go);
  }}>
    <div class="fields">
      {!vhost && <Text label="Name" value={name} set={setName} autofocus required />}
      <Text label="Description" value={description} set={setDescription} /><Text label="Tags" value={tags} set={setTags} help="With commas between them" />
      <Select label="Default queue type" value={type} set={setType} of={[["classic", "Classic"], ["quorum", "Quorum"]]} />
      <Select label="Profile" value={profile} set={setProfile} of={profiles} help="Whose rules apply where the products differ" />
    </div>
    {vhost && profile !== vhost.profile && <Note kind="warn">Queues that are there follow the rules of the new profile from now on.</Note>}
    <DefaultDeadLetter vhost={vhost} value={dead} set={setDead} />
    <Check label="Lenient declarations" help="A client may declare a queue with the arguments that it had before they were changed here. It is logged once. Off: such a declaration is refused (406)." value={lenient} set={setLenient} />
    <Check label="Tracing" help="Copies of all messages go to amq.rabbitmq.trace. It costs speed, and ends with the node." value={tracing} set={setTracing} />
  </Dialog>;
}

export function VHostPage(props: { name: string }) {
  const { reloadSession, setVHost } = useApp();
  const path = p`vhosts/${props.name}`;
  useTitle(`Virtual host ${props.name}`);
  const { data: v, error, loading, reload } = usePoll<VHost>(path);
  const permissions = usePoll<Permission[]>(v ? path + "/permissions" : null);
  const limits = usePoll<{ value: Record<string, number> }[]>(v ? p`vhost-limits/${props.name}` : null);
  const settings = usePoll<string>(v?.profile === "apsaramq" ? "config/effective" : null, 60000, async (path, signal) => (await raw("GET", path, { signal })).text());
  const [editing, setEditing] = useState(false), [limiting, setLimiting] = useState(false);
  const [confirm, ask] = useConfirm();
  const title = <>Virtual host <span class="name">{props.name}</span></>;
  if (!v) return <><PageHead title={title} />{error?.status === 404 ? <Empty title="This virtual host does not exist"><p><a href="#/vhosts">Go to the virtual hosts</a>.</p></Empty> : <Failed error={error} what="the virtual host" retry={reload} />}{loading && <Loading what="the virtual host" />}</>;
  const now = limits.data?.[0]?.value ?? {};
  const deadTTL = /^apsaramq\.dlq_ttl\s*=\s*true/m.test(settings.data ?? "");
  const protect = async (on: boolean) => { try { await send(on ? "POST" : "DELETE", path + "/deletion/protection"); say(on ? "It is protected from deletion." : "It may be deleted."); reload(); } catch (e) { complain("The protection was not changed", e); } };
  return <div class="stack">
    <PageHead title={title} lead={v.description || undefined}>
      <button onClick={() => { setVHost(v.name); go("#/queues"); }}>Show its queues</button><button onClick={() => setEditing(true)}>Change</button><button onClick={() => setLimiting(true)}>Limits</button><a class="button" href={to(["masks", v.name])}>Masks</a>
      <button class="danger" disabled={v.protected_from_deletion} title={v.protected_from_deletion ? "It is protected from deletion" : undefined} onClick={() => ask({ title: "Delete the virtual host", label: `Delete with ${plural(v.messages ?? 0, "message")}`, danger: true, text: <p>All of <b class="name">{v.name}</b> goes: its queues with <b>{plural(v.messages ?? 0, "message")}</b>, exchanges, policies and {plural(permissions.data?.length ?? 0, "permission")}. Its connections are closed.</p>, action: async (go) => { await send("DELETE", path); setVHost(""); await reloadSession(); say(`The virtual host ${v.name} is deleted.`); go("#/vhosts"); } })}>Delete</button>
    </PageHead>
    <div class="grid2">
      <Card title="Details"><Facts of={[["Profile", profiles.find(([k]) => k === v.profile)?.[1] ?? "RabbitMQ"], ["Default queue type", v.default_queue_type], ["Tags", v.tags.join(", ") || <span class="muted">none</span>], ["Tracing", v.tracing ? <Tag kind="warn">on</Tag> : "off"], ["Messages", count(v.messages)], ["Default dead-letter queue", v.default_dead_letter ? <code class="name">{v.default_dead_letter}</code> : <span class="muted">none: what dies in a queue without a dead-letter exchange is dropped</span>], ["Lenient declarations", v.lenient_declarations ? <Tag kind="warn">on</Tag> : "off"], ["Limits", Object.entries(now).map(([k, n]) => `${k}: ${count(n)}`).join(", ") || <span class="muted">none</span>]]} /></Card>
      <Card title="Deletion"><Check label="Protected from deletion" help="It cannot be deleted until this is off." value={v.protected_from_deletion} set={protect} /></Card>
      {v.profile === "apsaramq" && <Card title="ApsaraMQ"><div class="stack tight">
        <Check label="TTL in dead-letter queues" help={<>“TTL Feature Supported” of the instance: dead letters expire too. It holds for the node, and stands in its configuration: set <code>apsaramq.dlq_ttl = {deadTTL ? "false" : "true"}</code> there to turn it {deadTTL ? "off" : "on"}.</>} value={deadTTL} set={() => complain("This is set in the configuration file", new Error(`apsaramq.dlq_ttl = ${deadTTL ? "false" : "true"}`))} />
      </div></Card>}
    </div>
    <Card title="Who may use it" bare><Small label="Permissions" empty="Nobody but administrators sees it, and nobody can use it. Set a permission on the page of a user." head={["User", "Configure", "Write", "Read"]} rows={(permissions.data ?? []).map((x) => [<a class="name" href={to(["users", x.user])}>{x.user}</a>, <code>{x.configure || "(nothing)"}</code>, <code>{x.write || "(nothing)"}</code>, <code>{x.read || "(nothing)"}</code>])} /></Card>
    {editing && <Edit vhost={v} close={() => setEditing(false)} done={reload} />}
    {limiting && <Limits title={`Limits of ${v.name}`} path={p`vhost-limits/${v.name}/`} names={[["max-connections", "Connections"], ["max-queues", "Queues"]]} now={now} close={() => setLimiting(false)} done={limits.reload} />}
    {confirm}
  </div>;
}
