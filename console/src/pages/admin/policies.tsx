import { useEffect, useMemo, useState } from "preact/hooks";
import { p, query, send } from "../../api";
import { argument, count, plural } from "../../format";
import { useRoute, setParams } from "../../router";
import { may, useApp, usePoll, useTitle } from "../../state";
import type { Page, Policy, Queue } from "../../types";
import { Dialog, useConfirm } from "../../ui/dialog";
import { Select, Text } from "../../ui/form";
import { Choices, Empty, Note, PageHead, Tag } from "../../ui/parts";
import { Table, useListState, useLocalList, type Column } from "../../ui/table";
import { say } from "../../ui/toast";
import { ArgumentFields, build, split } from "../arguments";

const targets: [string, string][] = [["queues", "Queues"], ["classic_queues", "Classic queues"], ["quorum_queues", "Quorum queues"], ["exchanges", "Exchanges"], ["all", "Queues and exchanges"]];

export function PoliciesPage() {
  useTitle("Policies");
  const { session, vhost } = useApp();
  const { params } = useRoute();
  const operator = params.get("kind") === "operator", asked = params.get("edit");
  const kind = operator ? "operator-policies" : "policies", allowed = may(session, operator ? "administrator" : "policymaker");
  const { data, error, reload } = usePoll<Policy[]>(vhost ? `${kind}/${encodeURIComponent(vhost)}` : kind);
  const [editing, setEditing] = useState<Policy | "new" | null>(null);
  const [confirm, ask] = useConfirm();
  const list = useListState();
  // A link may ask for the form of one policy.
  useEffect(() => {
    const found = asked === null ? undefined : data?.find((x) => x.name === asked && x.vhost === (params.get("of") ?? x.vhost));
    if (found) { setEditing(found); setParams({ edit: undefined, of: undefined }); }
  }, [asked, data]);
  const columns = useMemo<Column<Policy>[]>(() => [
    { key: "name", title: "Name", by: (x) => x.name, name: true, cell: (x) => <a href="#" onClick={(e) => { e.preventDefault(); setEditing(x); }}>{x.name}</a> },
    { key: "vhost", title: "Virtual host", by: (x) => x.vhost, cell: (x) => <span class="clip">{x.vhost}</span> },
    { key: "pattern", title: "Pattern", by: (x) => x.pattern, text: true, cell: (x) => <code>{x.pattern}</code> },
    { key: "to", title: "Applies to", by: (x) => x["apply-to"], cell: (x) => x["apply-to"] },
    { key: "definition", title: "Definition", text: true, cell: (x) => Object.entries(x.definition).map(([k, v]) => <Tag key={k} title={`${k}: ${JSON.stringify(v)}`}>{k}: {argument(v)}</Tag>) },
    { key: "priority", title: "Priority", num: true, by: (x) => x.priority, cell: (x) => count(x.priority) },
    ...(allowed ? [{ key: "delete", title: "Delete", cell: (x: Policy) => <button class="danger quiet" aria-label={`Delete ${x.name}`} onClick={() => ask({ title: "Delete the policy", label: "Delete policy", danger: true, text: <p>Queues and exchanges that <b class="name">{x.name}</b> applies to follow the policy with the next priority, or none. Dead-letter exchanges and limits that it sets end at once.</p>, action: async () => { await send("DELETE", `${kind}/` + p`${x.vhost}/${x.name}`); say(`The policy ${x.name} is deleted.`); reload(); } })}>Delete</button> }] : []),
  ], [allowed, kind]);
  const source = useLocalList(data, { ...list, columns, text: (x) => `${x.name} ${x.pattern}`, error, reload });
  return <>
    <PageHead title="Policies" lead={operator ? "Limits by the operator, on top of what users declare. The stricter one wins." : "Settings for all queues and exchanges whose names match a pattern. One policy applies at a time: the one with the highest priority."}>
      <Choices label="Kind" value={operator ? "operator" : "user"} of={[["user", "Policies"], ["operator", "Operator policies"]]} set={(k) => setParams({ kind: k === "user" ? undefined : k })} />
      {allowed && <button class="primary" onClick={() => setEditing("new")}>Add a policy</button>}
    </PageHead>
    <Table label="Policies" what="policies" source={source} list={list} columns={columns} rowKey={(x) => `${x.vhost}/${x.name}`} open={(x) => setEditing(x)} empty={<Empty title={operator ? "There are no operator policies" : "There are no policies"}><p>{operator ? "An operator policy limits length or time to live of queues, whatever their users declare." : "With a policy queues get a dead-letter exchange, a limit or a time to live without being declared anew."}</p></Empty>} />
    {editing && <Edit policy={editing === "new" ? undefined : editing} kind={kind} close={() => setEditing(null)} done={reload} />}
    {confirm}
  </>;
}

function Edit(props: { policy?: Policy; kind: string; close(): void; done(): void }) {
  const { session, vhost: here } = useApp();
  const { policy } = props;
  const begin = useMemo(() => split(policy?.definition ?? {}, "policy"), []);
  const [vhost, setVHost] = useState(policy?.vhost ?? (here || session.vhosts[0] || "/")), [name, setName] = useState(policy?.name ?? ""), [pattern, setPattern] = useState(policy?.pattern ?? ""), [target, setTarget] = useState(policy?.["apply-to"] ?? "queues"), [priority, setPriority] = useState(String(policy?.priority ?? 0)), [values, setValues] = useState(begin.values), [more, setMore] = useState(begin.more);
  let re: RegExp | undefined, bad: string | undefined;
  try { re = new RegExp(pattern); } catch (e) { bad = (e as Error).message; }
  const ofQueues = target !== "exchanges";
  // The node filters without regard to case; a policy's pattern heeds it.
  const matched = usePoll<Page<Queue>>(!ofQueues || bad || pattern === "" ? null : p`queues/${vhost}` + query({ page: 1, page_size: 500, name: pattern, use_regex: true, columns: "name,type,policy", disable_stats: true }), 0);
  const shown = (matched.data?.items ?? []).filter((q) => re?.test(q.name) && (target === "queues" || target === "all" || target === `${q.type}_queues`));
  const others = shown.filter((q) => q.policy && q.policy !== name && props.kind === "policies");
  return <Dialog title={policy ? `Policy ${policy.name}` : props.kind === "policies" ? "Add a policy" : "Add an operator policy"} label={ofQueues && matched.data ? `Save for ${plural(shown.length, "queue")}` : "Save"} close={props.close} action={async () => {
    if (name === "") throw new Error("The policy needs a name.");
    if (bad) throw new Error(`The pattern is no regular expression: ${bad}`);
    if (!/^-?\d+$/.test(priority)) throw new Error(`The priority must be a whole number, not “${priority}”.`);
    const definition = build(values, more, "policy");
    if (Object.keys(definition).length === 0) throw new Error("The policy must set something.");
    await send("PUT", `${props.kind}/` + p`${vhost}/${name}`, { pattern, definition, priority: Number(priority), "apply-to": target });
    say(`The policy ${name} is set.`); props.done(); props.close();
  }}>
    <div class="fields">
      <Select label="Virtual host" value={vhost} set={setVHost} disabled={!!policy} of={session.vhosts.map((v) => [v, v] as const)} />
      <Text label="Name" value={name} set={setName} disabled={!!policy} autofocus={!policy} required /><Text label="Pattern" value={pattern} set={setPattern} error={bad} help={<>Regular expression on names, such as <code>^orders\.</code></>} />
      <Select label="Applies to" value={target} set={setTarget} of={targets} /><Text label="Priority" value={priority} set={setPriority} help="The highest that matches wins" />
    </div>
    {ofQueues && pattern !== "" && matched.data && <section aria-live="polite" class="stack tight"><h3>It matches {matched.data.filtered_count > 500 ? "at least " : ""}{plural(shown.length, "queue")}</h3>
      {shown.length > 0 && <p>{shown.slice(0, 20).map((q) => <Tag key={q.name}>{q.name}</Tag>)}{shown.length > 20 && <span class="muted"> and {count(shown.length - 20)} more</span>}</p>}
      {others.length > 0 && <Note kind="warn">{plural(others.length, "queue follows", "queues follow")} another policy now: {others.slice(0, 5).map((q) => `${q.name} (${q.policy})`).join(", ")}. The one with the higher priority wins.</Note>}
    </section>}
    <ArgumentFields form="policy" values={values} set={setValues} more={more} setMore={setMore} />
  </Dialog>;
}
