// The table of all lists: columns to sort and choose, a filter, rows that are made only where they are seen, and keys.
//
// A list is either whole in the browser, or paged by the server: then pages are asked for as their rows come into view.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, query, Refusal } from "../api";
import { count } from "../format";
import { setParams, useRoute } from "../router";
import { stored, useApp } from "../state";
import type { Page } from "../types";
import { Check } from "./form";
import { Failed, Loading } from "./parts";

export interface Column<T> {
  key: string; title: string; cell(row: T): ComponentChildren; num?: boolean; hide?: boolean; name?: boolean; text?: boolean; grow?: boolean; help?: string;
  /** what the server sorts by, or what the browser does; without either the column cannot be sorted. */
  sort?: string; by?(row: T): string | number;
}

/** Source is a list of which some rows may not be there yet. */
export interface Source<T> {
  total: number; all: number; at(i: number): T | undefined; need(from: number, to: number): void;
  error?: Refusal; loading: boolean; reload(): void;
  /** there are more than all, nobody knows how many. */
  more?: boolean;
}

export interface Order { sort?: string; desc: boolean; }

const pageSize = 100;

/** useServerList is a list that the server pages, sorts and filters. */
export function useServerList<T>(path: string | null, o: { order: Order; name: string; regex: boolean; columns?: string; extra?: Record<string, string> }, every = 5000): Source<T> {
  const pages = useRef(new Map<number, T[]>());
  const [state, set] = useState<{ of?: string | null; total: number; all: number; error?: Refusal; loading: boolean }>({ total: 0, all: 0, loading: true });
  const range = useRef([0, 0]);
  const base = path === null ? null : path + "\0" + query({ page_size: pageSize, sort: o.order.sort, sort_reverse: o.order.sort && o.order.desc, name: o.name, use_regex: o.regex && o.name !== "", columns: o.columns, ...o.extra }).slice(1);
  const again = useRef<() => void>(() => {}), more = useRef<() => void>(() => {}), first = useRef(true);
  useEffect(() => {
    if (base === null) return;
    let ended = false, timer: ReturnType<typeof setTimeout> | undefined, busy = false, wanted = false;
    const mine = new AbortController();
    pages.current = new Map();
    range.current = [0, 0];
    set({ of: base, total: 0, all: 0, loading: true });
    const [at, search] = base.split("\0");
    const ask = async (refresh: boolean) => {
      if (busy) { wanted = true; return; }
      busy = true;
      clearTimeout(timer);
      const began = performance.now();
      const [from, to] = range.current as [number, number];
      try {
        for (let page = Math.floor(from / pageSize) + 1; page <= Math.floor(Math.max(from, to - 1) / pageSize) + 1; page++) {
          if (!refresh && pages.current.has(page)) continue;
          const answer = await get<Page<T>>(`${at}?page=${page}&${search}`, mine.signal);
          if (ended) return;
          if (refresh && page === Math.floor(from / pageSize) + 1) pages.current = new Map([...pages.current].filter(([n]) => n >= page - 1 && n <= page + 2));
          pages.current.set(page, answer.items);
          set({ of: base, total: answer.filtered_count, all: answer.total_count, loading: false });
        }
      } catch (e) {
        if (ended) return;
        const error = e instanceof Refusal ? e : new Refusal(0, "", String(e));
        if (error.kind === "page_out_of_range") { range.current = [0, 0]; wanted = true; } else set((s) => ({ ...s, error, loading: false }));
      }
      busy = false;
      if (wanted) { wanted = false; void ask(false); return; }
      timer = setTimeout(() => { if (!document.hidden) void ask(true); }, Math.max(every, 10 * (performance.now() - began)));
    };
    const visible = () => { if (!document.hidden) void ask(true); };
    again.current = () => void ask(true);
    more.current = () => void ask(false);
    // A filter changes with each key: a list of very many is asked for when the next key does not come.
    timer = setTimeout(() => void ask(false), first.current ? 0 : 200);
    first.current = false;
    document.addEventListener("visibilitychange", visible);
    return () => { ended = true; mine.abort(); clearTimeout(timer); document.removeEventListener("visibilitychange", visible); };
  }, [base, every]);
  const need = useCallback((from: number, to: number) => {
    range.current = [from, to];
    for (let page = Math.floor(from / pageSize) + 1; page <= Math.floor(Math.max(from, to - 1) / pageSize) + 1; page++) if (!pages.current.has(page)) { more.current(); return; }
  }, []);
  // Between a new filter and the effect above the rows are still those of the old one.
  const now = state.of === base ? state : { total: 0, all: 0, loading: true };
  return { ...now, at: (i) => pages.current.get(Math.floor(i / pageSize) + 1)?.[i % pageSize], need, reload: useCallback(() => again.current(), []) };
}

const collator = new Intl.Collator("en", { numeric: true });

/** useLocalList is a list that is whole in the browser. */
export function useLocalList<T>(rows: T[] | undefined, o: { order: Order; name: string; regex: boolean; columns: Column<T>[]; text(row: T): string; error?: Refusal; reload?(): void }): Source<T> {
  const shown = useMemo(() => {
    let list = rows ?? [];
    if (o.name !== "") {
      let test = (s: string) => s.toLowerCase().includes(o.name.toLowerCase());
      if (o.regex) try { const re = new RegExp(o.name, "iu"); test = (s) => re.test(s); } catch { test = () => false; }
      list = list.filter((r) => test(o.text(r)));
    }
    const by = o.columns.find((c) => c.key === o.order.sort)?.by;
    if (by) {
      const compare = (a: string | number, b: string | number) => typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
      list = [...list].sort((a, b) => (o.order.desc ? -1 : 1) * compare(by(a), by(b)));
    }
    return list;
  }, [rows, o.name, o.regex, o.order.sort, o.order.desc, o.columns]);
  return { total: shown.length, all: rows?.length ?? 0, at: (i) => shown[i], need: () => {}, error: o.error, loading: rows === undefined && !o.error, reload: o.reload ?? (() => {}) };
}

/** useListState keeps order and filter of a list in the address of the page. */
export function useListState(first?: Order, prefix = ""): { order: Order; name: string; regex: boolean; setOrder(o: Order): void; setName(s: string): void; setRegex(b: boolean): void } {
  const { params } = useRoute();
  const sort = params.get(prefix + "sort");
  return {
    order: sort ? { sort: sort.replace(/^-/, ""), desc: sort.startsWith("-") } : first ?? { desc: false },
    name: params.get(prefix + "name") ?? "", regex: params.get(prefix + "regex") === "1",
    setOrder: (o) => setParams({ [prefix + "sort"]: o.sort && (o.desc ? "-" : "") + o.sort }),
    setName: (s) => setParams({ [prefix + "name"]: s }), setRegex: (b) => setParams({ [prefix + "regex"]: b ? "1" : undefined }),
  };
}

export interface TableProps<T> {
  label: string; what: string; source: Source<T>; columns: Column<T>[]; rowKey(row: T): string; list: ReturnType<typeof useListState>;
  /** with a name the choice of columns is kept. */
  choose?: string; open?(row: T): void; href?(row: T): string; empty: ComponentChildren; tools?: ComponentChildren; picked?: Map<string, T>; setPicked?(m: Map<string, T>): void;
  noFilter?: boolean; help?: () => void; server?: boolean; tall?: boolean;
}

const spare = 20;

/** named is what a list has, one or many: queue, queues. */
function named(what: string, n: number): string { return n === 1 ? what.replace(/ies$/, "y").replace(/s$/, "") : what; }

export function Table<T>(props: TableProps<T>) {
  const { source, list } = props;
  const rowHeight = props.tall ? 52 : 34; // as in the styles
  const body = useRef<HTMLTableSectionElement>(null), filter = useRef<HTMLInputElement>(null);
  const [seen, setSeen] = useState<[number, number]>([0, 60]);
  const [cursor, show] = useState(-1);
  const at = useRef(-1); // the cursor now: keys may come faster than pages are drawn
  const setCursor = (i: number) => { at.current = i; show(i); };
  const [hidden, setHidden] = useState<Set<string>>(() => {
    const kept = props.choose ? stored.get("columns." + props.choose) : null;
    return new Set(kept === null ? props.columns.filter((c) => c.hide).map((c) => c.key) : kept.split(","));
  });
  const columns = props.columns.filter((c) => !hidden.has(c.key));
  // What is typed. The address of the page, which has the filter too, follows a moment later, and must not take letters back.
  const [typed, setTyped] = useState(list.name), sent = useRef<string[]>([]);
  useLayoutEffect(() => { // before the next key, which would be added to what the field has by then
    const mine = sent.current.indexOf(list.name);
    sent.current.splice(0, mine + 1);
    if (mine < 0) { sent.current = []; setTyped(list.name); }
  }, [list.name]);
  const early = useRef<string[]>([]); // keys that came while the list was asked for
  const type = (text: string) => { early.current = []; setCursor(-1); sent.current.push(text); setTyped(text); list.setName(text); };
  useLayoutEffect(() => {
    const look = () => {
      const el = body.current;
      if (!el) return;
      const top = el.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor(-top / rowHeight) - spare), to = Math.ceil((window.innerHeight - top) / rowHeight) + spare;
      setSeen((s) => Math.abs(s[0] - from) < spare / 2 && Math.abs(s[1] - to) < spare / 2 && s[0] <= from + spare && to - spare <= s[1] ? s : [from, Math.max(to, from)]);
    };
    look();
    window.addEventListener("scroll", look, { passive: true });
    window.addEventListener("resize", look);
    return () => { window.removeEventListener("scroll", look); window.removeEventListener("resize", look); };
  }, [source.total > 0]);
  const from = Math.min(seen[0], Math.max(0, source.total - 1)), to = Math.min(seen[1], source.total);
  useEffect(() => { if (to > from) source.need(from, to); }, [from, to, source.total]);

  const picked = useRef(props.picked); // now, as the cursor
  picked.current = props.picked;
  const pick = (row: T) => {
    if (!picked.current || !props.setPicked) return;
    const m = new Map(picked.current), key = props.rowKey(row);
    if (!m.delete(key)) m.set(key, row);
    picked.current = m;
    props.setPicked(m);
  };
  /** press does what a key does to the rows; it says whether it did anything. */
  const press = (key: string): boolean => {
    const move = (to: number) => {
      const i = Math.max(0, Math.min(source.total - 1, to));
      setCursor(i);
      const top = (body.current?.getBoundingClientRect().top ?? 0) + i * rowHeight;
      if (top < 96) window.scrollBy(0, top - 96); else if (top > window.innerHeight - 96) window.scrollBy(0, top - window.innerHeight + 96);
    };
    const cursor = at.current, row = cursor >= 0 ? source.at(cursor) : undefined;
    if (key === "j" || key === "ArrowDown" && cursor >= 0) move(cursor + 1);
    else if (key === "k" || key === "ArrowUp" && cursor >= 0) move(cursor - 1);
    else if (key === "x" && row) pick(row);
    else if (key === "Enter" && row) { if (props.open) props.open(row); else if (props.href) location.hash = props.href(row); }
    else return false;
    return true;
  };
  useLayoutEffect(() => {
    const key = (e: KeyboardEvent) => {
      const t = e.target as HTMLElement;
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(t.tagName) && !(t instanceof HTMLInputElement && t.type === "checkbox")) {
        if (e.key === "Escape") { e.preventDefault(); t.blur(); }
        return;
      }
      if (e.key === "/" && filter.current) { e.preventDefault(); filter.current.focus(); filter.current.select(); }
      else if (e.key === "?" && props.help) { e.preventDefault(); props.help(); }
      else if (e.key === "Enter" && t !== document.body && t.tagName !== "TR") return;
      else if (!source.loading) { if (press(e.key)) e.preventDefault(); }
      // A list is asked for anew with each letter of its filter: what is pressed meanwhile is for the rows that come.
      else if (/^(j|k|x|Enter|ArrowDown|ArrowUp)$/.test(e.key) && early.current.length < 100) { e.preventDefault(); early.current.push(e.key); }
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  });
  useLayoutEffect(() => { if (!source.loading) for (const key of early.current.splice(0)) press(key); });

  const sorted = (c: Column<T>) => list.order.sort === (c.sort ?? c.key);
  const sortBy = (c: Column<T>) => list.setOrder(sorted(c) ? list.order.desc === !!c.num ? { sort: c.sort ?? c.key, desc: !c.num } : { desc: false } : { sort: c.sort ?? c.key, desc: !!c.num });
  const rows: ComponentChildren[] = [];
  for (let i = from; i < to; i++) {
    const row = source.at(i);
    if (!row) { rows.push(<tr key={`#${i}`} aria-rowindex={i + 2}><td colSpan={columns.length + (props.picked ? 1 : 0)} class="muted">…</td></tr>); continue; }
    const key = props.rowKey(row);
    rows.push(<tr key={key} aria-rowindex={i + 2} class={`${i === cursor ? "cursor" : ""} ${props.picked?.has(key) ? "picked" : ""}`} onClick={() => setCursor(i)}>
      {props.picked && <td class="check-cell"><input type="checkbox" aria-label={`Select ${key}`} checked={props.picked.has(key)} onChange={() => pick(row)} /></td>}
      {columns.map((c) => <td key={c.key} class={c.num ? "num" : c.grow ? "name-cell grow-cell" : c.name ? "name-cell" : c.text ? "text-cell" : undefined}>{c.cell(row)}</td>)}
    </tr>);
  }
  const visible = props.picked ? Array.from({ length: source.total }, (_, i) => source.at(i)).filter((r) => r !== undefined) : [];
  const allPicked = visible.length > 0 && visible.every((r) => props.picked?.has(props.rowKey(r)));
  const badPattern = list.regex && list.name !== "" && (() => { try { new RegExp(list.name, "u"); return ""; } catch (e) { return (e as Error).message.replace(/^Invalid regular expression: /, ""); } })();
  return <div>
    <div class="table-tools">
      {!props.noFilter && <>
        <input ref={filter} class="filter" type="search" aria-label={`Filter ${props.what}`} placeholder={`Filter ${props.what}  ( / )`} value={typed} onInput={(e) => type(e.currentTarget.value)} spellcheck={false} aria-invalid={badPattern ? "true" : undefined} />
        <Check label="Regular expression" value={list.regex} set={list.setRegex} />
      </>}
      {props.tools}
      {props.choose && <ColumnChoice columns={props.columns} hidden={hidden} set={(h) => { setHidden(h); stored.set("columns." + props.choose, [...h].join(",")); }} />}
      {!source.loading && !(source.error && source.all === 0) && <span class="total" role="status">{source.more && "first "}{source.total === source.all ? count(source.total) : `${count(source.total)} of ${count(source.all)}`} {named(props.what, source.all)}</span>}
    </div>
    {badPattern && <p class="field"><span class="error">This is no regular expression: {badPattern}</span></p>}
    <Failed error={source.error} what={props.what} stale={source.all > 0} retry={source.reload} />
    {source.loading ? <Loading what={props.what} /> : source.total === 0 && !source.error ? <div class="table-wrap">{source.all > 0 || list.name !== "" && props.server ? <div class="empty"><h2>No match</h2><p>None of the {props.what} contains “{list.name}”.</p><button type="button" onClick={() => list.setName("")}>Clear the filter</button></div> : props.empty}</div> : source.total > 0 &&
      <div class="table-wrap" tabIndex={0} role="region" aria-label={props.label}>
        <table aria-rowcount={source.total + 1} class={props.tall ? "tall" : undefined}>
          <thead><tr aria-rowindex={1}>
            {props.picked && <th scope="col" class="check-cell"><input type="checkbox" aria-label="Select all that are shown" checked={allPicked} onChange={() => props.setPicked!(allPicked ? new Map() : new Map(visible.map((r) => [props.rowKey(r), r])))} /></th>}
            {columns.map((c) => <th key={c.key} scope="col" class={c.num ? "num" : c.grow ? "grow-cell" : undefined} title={c.help} aria-sort={sorted(c) ? list.order.desc ? "descending" : "ascending" : undefined}>
              {c.sort || c.by ? <button type="button" onClick={() => sortBy(c)}>{c.title}{sorted(c) && <span class="arrow" aria-hidden="true">{list.order.desc ? "▼" : "▲"}</span>}</button> : c.title}
            </th>)}
          </tr></thead>
          <tbody ref={body}>
            {from > 0 && <tr class="spacer" aria-hidden="true"><td colSpan={columns.length + 1} style={{ height: `${from * rowHeight}px` }} /></tr>}
            {rows}
            {to < source.total && <tr class="spacer" aria-hidden="true"><td colSpan={columns.length + 1} style={{ height: `${(source.total - to) * rowHeight}px` }} /></tr>}
          </tbody>
        </table>
      </div>}
  </div>;
}

function ColumnChoice<T>(props: { columns: Column<T>[]; hidden: Set<string>; set(h: Set<string>): void }) {
  const [open, setOpen] = useState(false);
  return <div class="column-choice">
    <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>Columns</button>
    {open && <div class="popover card" role="group" aria-label="Columns" onKeyDown={(e) => { if (e.key === "Escape") setOpen(false); }}>
      {props.columns.map((c) => <Check key={c.key} label={c.title} value={!props.hidden.has(c.key)} set={(on) => { const h = new Set(props.hidden); if (on) h.delete(c.key); else h.add(c.key); if (h.size < props.columns.length) props.set(h); }} />)}
    </div>}
  </div>;
}

/** Small is a plain table of a few rows. */
export function Small(props: { head: (string | [string, "num"])[]; rows: ComponentChildren[][]; label: string; empty?: string; wrapped?: boolean }) {
  if (props.rows.length === 0) return <p class="empty">{props.empty ?? "None"}</p>;
  const num = (i: number) => Array.isArray(props.head[i]) ? "num" : undefined;
  return <div class="table-wrap" tabIndex={0} role="region" aria-label={props.label}><table class={props.wrapped ? "wrapped" : undefined}>
    <thead><tr>{props.head.map((h, i) => <th key={i} scope="col" class={num(i)}>{Array.isArray(h) ? h[0] : h || <span class="visually-hidden">Actions</span>}</th>)}</tr></thead>
    <tbody>{props.rows.map((r, i) => <tr key={i}>{r.map((c, j) => <td key={j} class={num(j)}>{c}</td>)}</tr>)}</tbody>
  </table></div>;
}

/** useVHostColumn leaves out the column of virtual hosts where all rows have the same. */
export function useVHostColumn<T>(columns: Column<T>[]): Column<T>[] {
  const { session, vhost } = useApp();
  return vhost === "" && session.vhosts.length > 1 ? columns : columns.filter((c) => c.key !== "vhost");
}
