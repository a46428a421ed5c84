import { useState } from "preact/hooks";
import { p, send } from "../../api";
import { count, plural } from "../../format";
import { to } from "../../router";
import { useApp, usePoll, useTitle } from "../../state";
import type { Permission, TopicPermission, User } from "../../types";
import { Dialog, useConfirm } from "../../ui/dialog";
import { Check, Select, Text, whole } from "../../ui/form";
import { Card, Empty, Facts, Failed, Loading, Note, PageHead, Tag } from "../../ui/parts";
import { Small, Table, useListState, useLocalList, useServerList, type Column } from "../../ui/table";
import { say } from "../../ui/toast";

const roles: [string, string][] = [
  ["administrator", "Everything: users, permissions, virtual hosts"], ["monitoring", "See all virtual hosts, connections and the node"], ["policymaker", "Set policies and parameters in their virtual hosts"],
  ["management", "Use the console in their virtual hosts"], ["reveal", "See masked values of letters, by asking; the audit records it"], ["impersonator", "Publish with another's user ID"],
];

const columns: Column<User>[] = [
  { key: "name", title: "Name", sort: "name", name: true, cell: (u) => <a href={to(["users", u.name])}>{u.name}</a> },
  { key: "tags", title: "Tags", cell: (u) => u.tags.length ? u.tags.map((t) => <Tag key={t} kind={t === "administrator" ? "warn" : ""}>{t}</Tag>) : <span class="muted">none: clients only</span> },
  { key: "password", title: "Password", cell: (u) => u.password_hash ? "set" : <span class="muted">none: cannot log in with one</span> },
  { key: "limits", title: "Limits", cell: (u) => Object.entries(u.limits).map(([k, n]) => <Tag key={k}>{k}: {count(n)}</Tag>) },
];

export function UsersPage() {
  useTitle("Users");
  const list = useListState();
  const source = useServerList<User>("users", list);
  const [adding, setAdding] = useState(false);
  return <>
    <PageHead title="Users" lead="Who may log in, by AMQP and here."><button class="primary" onClick={() => setAdding(true)}>Add a user</button></PageHead>
    <Table label="Users" what="users" server source={source} list={list} columns={columns} rowKey={(u) => u.name} href={(u) => to(["users", u.name])} empty={<Empty title="There are no users" />} />
    {adding && <Edit close={() => setAdding(false)} done={(name, go) => { source.reload(); go(to(["users", name])); }} />}
  </>;
}

function Edit(props: { user?: User; close(): void; done(name: string, go: (hash: string) => void): void }) {
  const { user } = props;
  const [name, setName] = useState(user?.name ?? ""), [password, setPassword] = useState(""), [again, setAgain] = useState(""), [tags, setTags] = useState(user?.tags ?? []), [other, setOther] = useState((user?.tags ?? []).filter((t) => !roles.some(([r]) => r === t)).join(", "));
  return <Dialog title={user ? `Change ${user.name}` : "Add a user"} label={user ? "Save" : "Add user"} close={props.close} action={async (go) => {
    if (name === "") throw new Error("The user needs a name.");
    if (password !== again) throw new Error("The two passwords are not the same.");
    if (!user && password === "") throw new Error("Enter a password.");
    const all = [...tags.filter((t) => roles.some(([r]) => r === t)), ...other.split(",").map((t) => t.trim()).filter(Boolean)];
    await send("PUT", p`users/${name}`, { tags: all.join(","), ...(password ? { password } : { password_hash: user!.password_hash }) });
    say(`The user ${name} is ${user ? "changed" : "there"}.`); props.close(); props.done(name, go);
  }}>
    <div class="fields">
      {!user && <Text label="Name" value={name} set={setName} autofocus required />}
      <Text label={user ? "New password" : "Password"} type="password" value={password} set={setPassword} autocomplete="new-password" help={user ? "Empty: it stays. A change ends the user's sessions." : undefined} />
      <Text label="The same again" type="password" value={again} set={setAgain} autocomplete="new-password" error={again !== "" && again !== password ? "It is not the same." : undefined} />
    </div>
    <fieldset><legend>Tags</legend><div class="stack tight">{roles.map(([r, help]) => <Check key={r} label={r} help={help} value={tags.includes(r)} set={(on) => setTags(on ? [...tags, r] : tags.filter((t) => t !== r))} />)}</div></fieldset>
    <Text label="Other tags" value={other} set={setOther} help="With commas between them" />
  </Dialog>;
}

export function UserPage(props: { name: string }) {
  const { session } = useApp();
  const path = p`users/${props.name}`;
  useTitle(`User ${props.name}`);
  const user = usePoll<User>(path);
  const permissions = usePoll<Permission[]>(user.data ? path + "/permissions" : null), topics = usePoll<TopicPermission[]>(user.data ? path + "/topic-permissions" : null);
  const [editing, setEditing] = useState(false), [permitting, setPermitting] = useState<Permission | "new" | null>(null), [topic, setTopic] = useState(false), [limiting, setLimiting] = useState(false);
  const [confirm, ask] = useConfirm();
  const u = user.data, title = <>User <span class="name">{props.name}</span></>;
  if (!u) return <><PageHead title={title} />{user.error?.status === 404 ? <Empty title="This user does not exist"><p><a href="#/users">Go to the users</a>.</p></Empty> : <Failed error={user.error} what="the user" retry={user.reload} />}{user.loading && <Loading what="the user" />}</>;
  const self = u.name === session.name;
  return <div class="stack">
    <PageHead title={title} lead={self ? "This is you." : undefined}>
      <button onClick={() => setEditing(true)}>Change password or tags</button><button onClick={() => setLimiting(true)}>Limits</button>
      <button class="danger" disabled={self} onClick={() => ask({ title: "Delete the user", label: "Delete user", danger: true, text: <p><b class="name">{u.name}</b> and {plural(permissions.data?.length ?? 0, "permission")} go. Its connections and sessions are closed.</p>, action: async (go) => { await send("DELETE", path); say(`The user ${u.name} is deleted.`); go("#/users"); } })}>Delete</button>
    </PageHead>
    <Card title="Details"><Facts of={[["Tags", u.tags.length ? u.tags.map((t) => <Tag key={t}>{t}</Tag>) : <span class="muted">none: clients only</span>], ["Password", u.password_hash ? "set" : "none"], ["Limits", Object.entries(u.limits).map(([k, n]) => `${k}: ${count(n)}`).join(", ") || <span class="muted">none</span>]]} /></Card>
    {permissions.data?.length === 0 && <Note kind="warn">{u.name} has no permissions, and so cannot use any virtual host.</Note>}
    <Card title="Permissions" side={<button onClick={() => setPermitting("new")}>Set permission</button>} bare>
      <Small label="Permissions" head={["Virtual host", "Configure", "Write", "Read", ""]} rows={(permissions.data ?? []).map((x) => [<span class="name">{x.vhost}</span>, <code>{x.configure || "(nothing)"}</code>, <code>{x.write || "(nothing)"}</code>, <code>{x.read || "(nothing)"}</code>, <div class="row nowrap">
        <button onClick={() => setPermitting(x)}>Change</button><button class="danger" onClick={() => ask({ title: "Take the permission away", label: "Clear", danger: true, text: <p><b class="name">{u.name}</b> can no longer use the virtual host <b class="name">{x.vhost}</b>.</p>, action: async () => { await send("DELETE", p`permissions/${x.vhost}/${u.name}`); permissions.reload(); } })}>Clear</button></div>])} />
    </Card>
    <Card title="Topic permissions" side={<button onClick={() => setTopic(true)}>Set topic permission</button>} bare>
      <Small label="Topic permissions" empty="None: routing keys are not restricted." head={["Virtual host", "Exchange", "Write", "Read", ""]} rows={(topics.data ?? []).map((x) => [<span class="name">{x.vhost}</span>, <span class="name">{x.exchange || "(default exchange)"}</span>, <code>{x.write}</code>, <code>{x.read}</code>, <button class="danger" onClick={() => ask({ title: "Take the topic permission away", label: "Clear", danger: true, text: <p>Routing keys on <b class="name">{x.exchange}</b> are no longer restricted for <b class="name">{u.name}</b>.</p>, action: async () => { await send("DELETE", p`topic-permissions/${x.vhost}/${u.name}/${x.exchange || "amq.default"}`); topics.reload(); } })}>Clear</button>])} />
    </Card>
    {editing && <Edit user={u} close={() => setEditing(false)} done={user.reload} />}
    {permitting && <Permit user={u.name} now={permitting === "new" ? undefined : permitting} close={() => setPermitting(null)} done={permissions.reload} />}
    {topic && <PermitTopic user={u.name} close={() => setTopic(false)} done={topics.reload} />}
    {limiting && <Limits title={`Limits of ${u.name}`} path={p`user-limits/${u.name}/`} names={[["max-connections", "Connections"], ["max-channels", "Channels"]]} now={u.limits} close={() => setLimiting(false)} done={user.reload} />}
    {confirm}
  </div>;
}

function pattern(text: string): string | undefined { try { new RegExp(text); return undefined; } catch (e) { return (e as Error).message; } }

function Permit(props: { user: string; now?: Permission; close(): void; done(): void }) {
  const { session } = useApp();
  const [vhost, setVHost] = useState(props.now?.vhost ?? session.vhosts[0] ?? "/"), [configure, setConfigure] = useState(props.now?.configure ?? ".*"), [write, setWrite] = useState(props.now?.write ?? ".*"), [read, setRead] = useState(props.now?.read ?? ".*");
  return <Dialog title={`Permission of ${props.user}`} close={props.close} action={async () => { await send("PUT", p`permissions/${vhost}/${props.user}`, { configure, write, read }); say("The permission is set."); props.done(); props.close(); }}>
    <p class="muted">Regular expressions on the names of queues and exchanges. Empty: none.</p>
    <div class="fields"><Select label="Virtual host" value={vhost} set={setVHost} disabled={!!props.now} of={session.vhosts.map((v) => [v, v] as const)} />
      <Text label="Configure" value={configure} set={setConfigure} error={pattern(configure)} help="declare and delete" /><Text label="Write" value={write} set={setWrite} error={pattern(write)} help="publish, bind a queue" /><Text label="Read" value={read} set={setRead} error={pattern(read)} help="consume, get, purge" /></div>
  </Dialog>;
}

function PermitTopic(props: { user: string; close(): void; done(): void }) {
  const { session } = useApp();
  const [vhost, setVHost] = useState(session.vhosts[0] ?? "/"), [exchange, setExchange] = useState("amq.topic"), [write, setWrite] = useState(".*"), [read, setRead] = useState(".*");
  return <Dialog title={`Topic permission of ${props.user}`} close={props.close} action={async () => { await send("PUT", p`topic-permissions/${vhost}/${props.user}`, { exchange, write, read }); say("The topic permission is set."); props.done(); props.close(); }}>
    <p class="muted">Regular expressions on the routing keys of a topic exchange.</p>
    <div class="fields"><Select label="Virtual host" value={vhost} set={setVHost} of={session.vhosts.map((v) => [v, v] as const)} /><Text label="Exchange" value={exchange} set={setExchange} /><Text label="Write" value={write} set={setWrite} error={pattern(write)} /><Text label="Read" value={read} set={setRead} error={pattern(read)} /></div>
  </Dialog>;
}

export function Limits(props: { title: string; path: string; names: [string, string][]; now: Record<string, number>; close(): void; done(): void }) {
  const [values, set] = useState<Record<string, string>>(Object.fromEntries(props.names.map(([k]) => [k, props.now[k] === undefined ? "" : String(props.now[k])])));
  return <Dialog small title={props.title} close={props.close} action={async () => {
    for (const [k, title] of props.names) {
      const n = whole(values[k]!, title);
      if (n !== undefined) await send("PUT", props.path + k, { value: n }); else if (props.now[k] !== undefined) await send("DELETE", props.path + k);
    }
    say("The limits are set."); props.done(); props.close();
  }}>
    {props.names.map(([k, title]) => <Text key={k} label={title} value={values[k]!} set={(v) => set({ ...values, [k]: v })} help="At most; empty: no limit" />)}
  </Dialog>;
}

const permissionColumns: Column<Permission>[] = [
  { key: "user", title: "User", by: (x) => x.user, name: true, cell: (x) => <a href={to(["users", x.user])}>{x.user}</a> },
  { key: "vhost", title: "Virtual host", by: (x) => x.vhost, cell: (x) => <span class="clip">{x.vhost}</span> },
  ...(["configure", "write", "read"] as const).map((k) => ({ key: k, title: k[0]!.toUpperCase() + k.slice(1), text: true, by: (x: Permission) => x[k], cell: (x: Permission) => <code>{x[k] || "(nothing)"}</code> })),
];

export function PermissionsPage() {
  useTitle("Permissions");
  const { vhost } = useApp();
  const { data, error, reload } = usePoll<Permission[]>("permissions");
  const list = useListState();
  const rows = vhost ? data?.filter((x) => x.vhost === vhost) : data;
  const source = useLocalList(rows, { ...list, columns: permissionColumns, text: (x) => x.user, error, reload });
  return <>
    <PageHead title="Permissions" lead="What users may do in virtual hosts. Open a user to change them." />
    <Table label="Permissions" what="permissions" source={source} list={list} columns={permissionColumns} rowKey={(x) => `${x.user} ${x.vhost}`} href={(x) => to(["users", x.user])} empty={<Empty title="There are no permissions" />} />
  </>;
}
