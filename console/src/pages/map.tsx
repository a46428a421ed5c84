// The map of dead letters: which queue's dead letters go through which exchange into which queue, with loops and dead ends marked.
import { useMemo, useRef, useState } from "preact/hooks";
import { p } from "../api";
import { count, plural } from "../format";
import { setParams, to, useRoute } from "../router";
import { usePoll, useTitle } from "../state";
import type { Topology } from "../types";
import { NoVHost, useOneVHost } from "../ui/onevhost";
import { Choices, Empty, ExchangeLink, Failed, Loading, PageHead, QueueLink, Tag } from "../ui/parts";
import { Table, useListState, useLocalList, type Column } from "../ui/table";
import { groups, layout } from "./maplayout";
import { officeError } from "./office";
import "./map.css";

interface Node { id: string; kind: "queue" | "exchange"; name: string; letters: number | null; messages: number | null; missing: boolean; }
interface Edge { from: Node; to: Node; kind: "dead-letter" | "binding"; key: string | null; by: string; loop: boolean; problem: string; }
interface Graph { nodes: Map<string, Node>; edges: Edge[]; }

/** graph joins the edges to nodes. */
export function graph(t: Topology): Graph {
  const nodes = new Map<string, Node>();
  const id = (kind: string, name: string) => `${kind} ${name}`;
  for (const n of t.nodes) nodes.set(id(n.kind, n.name), { id: id(n.kind, n.name), kind: n.kind, name: n.name, letters: n.letters, messages: n.messages, missing: n.missing });
  const edges: Edge[] = [];
  for (const e of t.edges) {
    const from = nodes.get(id(e.from_kind, e.from)), to = nodes.get(id(e.to_kind, e.to));
    if (!from || !to) continue; // it was left out
    edges.push({ from, to, kind: e.kind, key: e.key, by: e.from_policy ? `policy ${e.from_policy}` : e.from_arguments ? "arguments" : e.from_vhost ? "virtual host" : "", loop: e.loop, problem: e.problem });
  }
  return { nodes, edges };
}

const box = { width: 196, height: 46 }, most = 300;

export function MapPage(props: { vhost?: string }) {
  const { vhost, choice } = useOneVHost("map", props.vhost);
  const { params } = useRoute();
  useTitle("Map");
  const { data, error, loading, reload } = usePoll<Topology>(vhost === undefined ? null : p`office/topology/${vhost}`, 15000);
  const view = params.get("view") ?? "map", only = params.get("only") ?? "all", name = params.get("name") ?? "";
  const whole = useMemo(() => data && graph(data), [data]);
  const shown = useMemo(() => {
    if (!whole) return undefined;
    const ids = [...whole.nodes.keys()], bad = new Set<string>();
    for (const e of whole.edges) if (e.loop || e.problem) { bad.add(e.from.id); bad.add(e.to.id); }
    for (const n of whole.nodes.values()) if (n.missing) bad.add(n.id);
    const all = groups(ids, whole.edges.map((e) => ({ from: e.from.id, to: e.to.id })))
      .filter((g) => only === "all" || g.some((id) => bad.has(id))).filter((g) => name === "" || g.some((id) => whole.nodes.get(id)!.name.toLowerCase().includes(name.toLowerCase())));
    const weight = (g: string[]) => (g.some((id) => bad.has(id)) ? 1e6 : 0) + g.length;
    all.sort((a, b) => weight(b) - weight(a));
    const drawn: string[][] = [];
    let n = 0;
    for (const g of all) { if (n > 0 && n + g.length > most) break; drawn.push(g.slice(0, most)); n += g.length; }
    const in_ = new Set(all.flat());
    return { drawn, nodes: in_.size, left: in_.size - drawn.flat().length, edges: whole.edges.filter((e) => in_.has(e.from.id) && in_.has(e.to.id)) };
  }, [whole, only, name]);
  const list = useListState({ sort: "from", desc: false });
  const columns = useMemo(() => edgeColumns(vhost ?? ""), [vhost]);
  const source = useLocalList(shown?.edges, { ...list, name: "", columns, text: (e) => e.from.name, error: undefined });
  if (vhost === undefined) return <><PageHead title="Map" /><NoVHost /></>;
  const loops = whole?.edges.filter((e) => e.loop).length ?? 0, problems = (whole?.edges.filter((e) => e.problem).length ?? 0);
  return <div class="stack">
    <PageHead title="Map" lead="Where dead letters go: from the queue that they die in through its exchange into the queues that get them.">{choice}</PageHead>
    <Failed error={officeError(error)} what="the map" stale={!!data} retry={reload} />
    {loading && !data && <Loading what="the map" />}
    {whole && whole.edges.length === 0 && <div class="card"><Empty title="No queue has a dead-letter exchange here"><p>What dies in <b class="name">{vhost}</b> is discarded. Give a queue a dead-letter exchange when you <a href="#/queues">add it</a>, by a <a href="#/policies">policy</a>, or give the virtual host a default.</p></Empty></div>}
    {whole && whole.edges.length > 0 && shown && <>
      <div class="table-tools">
        <input class="filter" type="search" aria-label="Filter the map" placeholder="Filter by name" value={name} onInput={(e) => setParams({ name: e.currentTarget.value })} spellcheck={false} />
        <Choices label="What is shown" value={only} of={[["all", "All"], ["bad", `Loops and problems ${count(loops + problems)}`]]} set={(v) => setParams({ only: v === "all" ? undefined : v })} />
        <Choices label="Shown as" value={view} of={[["map", "Map"], ["table", "Table"]]} set={(v) => setParams({ view: v === "map" ? undefined : v })} />
        <span class="total" role="status">{plural([...whole.nodes.values()].filter((n) => n.kind === "queue" && !n.missing).length, "queue")}{loops > 0 && <>, <Tag kind="bad">{plural(loops, "edge")} in loops</Tag></>}{problems > 0 && <> <Tag kind="warn">{plural(problems, "problem")}</Tag></>}</span>
      </div>
      {shown.nodes === 0 ? <div class="card"><Empty title="Nothing matches"><button onClick={() => setParams({ name: undefined, only: undefined })}>Show all</button></Empty></div>
        : view === "table" ? <Table label="Edges" what="edges" noFilter source={source} list={list} columns={columns} rowKey={(e) => [e.from.id, e.to.id, e.kind, e.key].join("\0")} empty={<Empty title="There are no edges" />} />
        : <Drawing vhost={vhost} of={shown.drawn} nodes={whole.nodes} edges={shown.edges} />}
      {view === "map" && shown.left > 0 && <p class="note">{count(shown.nodes - shown.left)} of {count(shown.nodes)} queues and exchanges are drawn, those with problems first. Filter by name, or look at the table, which has all.</p>}
      {data!.left_out > 0 && <p class="note warn">{plural(data!.left_out, "edge")} more {data!.left_out === 1 ? "is" : "are"} left out: a map has at most 5,000, those in loops and with problems first.</p>}
      {view === "map" && shown.nodes > 0 && <ul class="legend map-legend">
        <li><svg viewBox="0 0 40 10" aria-hidden="true"><path class="edge dead" d="M0 5H40" /></svg>dead letters</li><li><svg viewBox="0 0 40 10" aria-hidden="true"><path class="edge" d="M0 5H40" /></svg>binding</li>
        <li><svg viewBox="0 0 40 10" aria-hidden="true"><path class="edge loop" d="M0 5H40" /></svg>loop</li><li><svg viewBox="0 0 40 10" aria-hidden="true"><path class="edge problem" d="M0 5H40" /></svg>problem</li>
        <li class="muted">Arrow keys go along the edges; Enter opens.</li>
      </ul>}
    </>}
  </div>;
}

const short = (t: string, n: number) => [...t].length > n ? [...t].slice(0, n - 1).join("") + "…" : t;
const words = (e: Edge) => `${e.from.kind} ${e.from.name} → ${e.to.kind} ${e.to.name || "(default exchange)"}: ${e.kind === "binding" ? "binding" : "dead letters"}${e.key ? `, key ${e.key}` : ""}${e.loop ? "; part of a loop" : ""}${e.problem ? `; ${e.problem}` : ""}`;

function Drawing(props: { vhost: string; of: string[][]; nodes: Map<string, Node>; edges: Edge[] }) {
  const { nodes, edges } = props;
  const at = useRef<HTMLDivElement>(null);
  const [lit, light] = useState<string | null>(null);
  const shape = props.of.map((g) => g.join("\0")).join("\0\0") + edges.map((e) => e.from.id + e.to.id).join("\0");
  const l = useMemo(() => layout(props.of, edges.map((e) => ({ from: e.from.id, to: e.to.id })), box), [shape]);
  const pad = 14;
  const order = [...l.nodes].sort((a, b) => a.y - b.y || a.x - b.x);
  const key = (e: KeyboardEvent, id: string) => {
    const here = l.nodes.find((n) => n.id === id)!;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (step === undefined || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault(); e.stopPropagation();
    let next: string | undefined;
    if (e.key === "ArrowRight" || e.key === "ArrowLeft") {
      const ends = edges.filter((x) => (step > 0 ? x.from.id : x.to.id) === id).map((x) => step > 0 ? x.to.id : x.from.id);
      next = l.nodes.filter((n) => ends.includes(n.id)).sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y))[0]?.id;
    } else next = l.nodes.filter((n) => n.x === here.x && Math.sign(n.y - here.y) === step).sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y))[0]?.id;
    if (next !== undefined) at.current?.querySelector<HTMLElement>(`[data-id="${CSS.escape(next)}"]`)?.focus();
  };
  const loops = edges.filter((e) => e.loop).length;
  return <div class="map" ref={at} role="region" aria-label="Map of dead letters" tabIndex={0}>
    <div class={`canvas ${lit === null ? "" : "lighting"}`} style={{ width: `${l.width + 2 * pad}px`, height: `${l.height + 2 * pad}px` }}>
      <svg width={l.width + 2 * pad} height={l.height + 2 * pad} viewBox={`${-pad} ${-pad} ${l.width + 2 * pad} ${l.height + 2 * pad}`} role="img" aria-label={`${plural(edges.length, "edge")} between ${plural(l.nodes.length, "queue or exchange", "queues and exchanges")}${loops ? `; ${loops} of them in loops` : ""}. The table has the same as text.`}>
        <defs>{["", "dead", "loop", "problem"].map((k) => <marker key={k} id={`arrow-${k}`} class={`arrow ${k}`} viewBox="0 0 8 8" refX={7} refY={4} markerWidth={8} markerHeight={8} markerUnits="userSpaceOnUse" orient="auto"><path d="M0 .5L8 4L0 7.5z" /></marker>)}</defs>
        {l.lines.map((line) => {
          const e = edges[line.edge]!, kind = e.loop ? "loop" : e.problem ? "problem" : e.kind === "dead-letter" ? "dead" : "";
          const text = [e.loop ? "loop" : e.problem ? "!" : "", e.key].filter(Boolean).join(" · ");
          return <g key={line.edge} class={lit !== null && (e.from.id === lit || e.to.id === lit) ? "lit" : undefined}><title>{words(e)}</title>
            <path class="hit" d={line.path} /><path class={`edge ${kind}`} d={line.path} marker-end={`url(#arrow-${kind})`} />
            {text && <text class={`key ${kind}`} x={line.at.x} y={line.at.y} text-anchor="middle" dy="0.35em">{short(text, 16)}</text>}
          </g>;
        })}
      </svg>
      {order.map((place) => {
        const n = nodes.get(place.id)!, dead = edges.some((e) => e.from.id === n.id && e.kind === "dead-letter");
        const under = n.missing ? "does not exist" : n.kind === "exchange" ? "exchange" : n.letters ? `${plural(n.letters, "letter")}${(n.messages ?? 0) > n.letters ? ` of ${count(n.messages)}` : ""}` : n.messages === null ? "queue" : plural(n.messages, "message");
        const look = { key: n.id, "data-id": n.id, class: `node ${n.kind} ${n.missing ? "missing" : ""} ${n.letters ? "holds" : ""}`, style: { left: `${place.x + pad}px`, top: `${place.y + pad}px`, width: `${box.width}px`, height: `${box.height}px` }, title: n.name || "(default exchange)",
          onKeyDown: (e: KeyboardEvent) => key(e, n.id), onFocus: () => light(n.id), onBlur: () => light(null), onMouseEnter: () => light(n.id), onMouseLeave: () => light(null) };
        const inside = <><b>{n.name || "(default exchange)"}</b><span>{under}</span><span class="visually-hidden">{n.kind}{dead ? "" : n.kind === "queue" ? ", without a dead-letter exchange" : ""}</span></>;
        return n.missing ? <div {...look} tabIndex={0} role="group" aria-label={`${n.kind} ${n.name}, which does not exist`}>{inside}</div> : <a {...look} href={to([n.kind === "queue" ? "queues" : "exchanges", props.vhost, n.name])}>{inside}</a>;
      })}
    </div>
  </div>;
}

function edgeColumns(vhost: string): Column<Edge>[] {
  const node = (n: Node) => n.missing ? <span class="clip" title={n.name}>{n.name}</span> : n.kind === "queue" ? <QueueLink vhost={vhost} name={n.name} /> : <ExchangeLink vhost={vhost} name={n.name} />;
  return [
    { key: "from", title: "From", name: true, by: (e) => e.from.name, cell: (e) => <span title={e.from.name}>{node(e.from)}</span> },
    { key: "kind", title: "Edge", by: (e) => e.kind, cell: (e) => e.kind === "binding" ? "binding" : "dead letters" },
    { key: "key", title: "Key", text: true, by: (e) => e.key ?? "", cell: (e) => e.key ? <code>{e.key}</code> : <span class="muted">{e.key === null ? "as published" : "(empty)"}</span> },
    { key: "to", title: "To", name: true, by: (e) => e.to.name, cell: (e) => <span title={e.to.name}>{node(e.to)}</span> },
    { key: "loop", title: "Loop", by: (e) => e.loop ? 0 : 1, cell: (e) => e.loop ? <Tag kind="bad">loop</Tag> : "" },
    { key: "problem", title: "Problem", text: true, by: (e) => e.problem, cell: (e) => <span title={e.problem}>{e.problem}</span> },
    { key: "by", title: "Set by", by: (e) => e.by, cell: (e) => <span class="clip">{e.by}</span> },
    { key: "fromkind", title: "From is", by: (e) => e.from.kind, cell: (e) => e.from.missing ? <Tag kind="warn">missing</Tag> : e.from.kind },
    { key: "tokind", title: "To is", by: (e) => e.to.kind, cell: (e) => e.to.missing ? <Tag kind="warn">missing</Tag> : e.to.kind },
  ];
}
