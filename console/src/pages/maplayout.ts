// Where the parts of the map of dead letters are drawn: from left to right in layers, each group of what hangs together for itself.
// It is pure: the same graph is laid out alike, in time that grows with the edges.

export interface Box { width: number; height: number; }
export interface Placed { id: string; layer: number; x: number; y: number; }
export interface Line { edge: number; path: string; back: boolean; /** where its text stands. */ at: { x: number; y: number }; }
export interface Layout { nodes: Placed[]; lines: Line[]; width: number; height: number; }
export interface Arc { from: string; to: string; }

const gapX = 132, gapY = 20, lane = 14, sweeps = 8;

/** groups are the sets of nodes that edges join, each in the order of ids. */
export function groups(ids: string[], arcs: Arc[]): string[][] {
  const parent = new Map(ids.map((id) => [id, id]));
  const find = (id: string): string => { let r = id; while (parent.get(r) !== r) r = parent.get(r)!; while (parent.get(id) !== r) { const next = parent.get(id)!; parent.set(id, r); id = next; } return r; };
  for (const a of arcs) if (parent.has(a.from) && parent.has(a.to)) parent.set(find(a.from), find(a.to));
  const by = new Map<string, string[]>();
  for (const id of ids) { const r = find(id); const g = by.get(r); if (g) g.push(id); else by.set(r, [id]); }
  return [...by.values()];
}

/** backward finds the edges that lead back to a node on the way to themselves; without them there are no circles. */
function backward(ids: string[], arcs: (Arc & { i: number })[]): Set<number> {
  const out = new Map<string, (Arc & { i: number })[]>(ids.map((id) => [id, []])), into = new Map<string, number>(ids.map((id) => [id, 0]));
  for (const a of arcs) { out.get(a.from)!.push(a); if (a.from !== a.to) into.set(a.to, into.get(a.to)! + 1); }
  const state = new Map<string, 1 | 2>(), back = new Set<number>();
  const visit = (root: string) => { // by hand: a chain may be longer than the stack
    const stack: { id: string; next: number }[] = [{ id: root, next: 0 }];
    state.set(root, 1);
    while (stack.length > 0) {
      const top = stack[stack.length - 1]!, a = out.get(top.id)![top.next++];
      if (!a) { state.set(top.id, 2); stack.pop(); continue; }
      const s = state.get(a.to);
      if (s === 1) back.add(a.i);
      else if (s === undefined) { state.set(a.to, 1); stack.push({ id: a.to, next: 0 }); }
    }
  };
  for (const id of ids) if (into.get(id) === 0) visit(id);
  for (const id of ids) if (!state.has(id)) visit(id);
  return back;
}

interface Spot { id: string; layer: number; y: number; height: number; real: boolean; before: Spot[]; after: Spot[]; }

/** one lays out nodes that hang together. */
function one(ids: string[], arcs: (Arc & { i: number })[], box: Box): Layout {
  const back = backward(ids, arcs), forward = arcs.filter((a) => !back.has(a.i));
  // The layer of a node is the longest way to it.
  const layer = new Map<string, number>(ids.map((id) => [id, 0])), waits = new Map<string, number>(ids.map((id) => [id, 0])), out = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const a of forward) { waits.set(a.to, waits.get(a.to)! + 1); out.get(a.from)!.push(a.to); }
  const ready = ids.filter((id) => waits.get(id) === 0);
  for (let i = 0; i < ready.length; i++) for (const t of out.get(ready[i]!)!) {
    layer.set(t, Math.max(layer.get(t)!, layer.get(ready[i]!)! + 1));
    waits.set(t, waits.get(t)! - 1);
    if (waits.get(t) === 0) ready.push(t);
  }
  // What nothing leads to stands right before what it leads to.
  for (const id of ids) if (!forward.some((a) => a.to === id) && out.get(id)!.length > 0) layer.set(id, Math.min(...out.get(id)!.map((t) => layer.get(t)!)) - 1);
  const spots = new Map<string, Spot>(ids.map((id) => [id, { id, layer: layer.get(id)!, y: 0, height: box.height, real: true, before: [], after: [] }]));
  const rows: Spot[][] = [];
  for (const s of spots.values()) (rows[s.layer] ??= []).push(s);
  // An edge over several layers has a spot in each, so that nodes make way for it.
  const ways = new Map<number, Spot[]>();
  for (const a of forward) {
    let last = spots.get(a.from)!;
    const end = spots.get(a.to)!, way = [last];
    for (let l = last.layer + 1; l < end.layer; l++) {
      const s: Spot = { id: "", layer: l, y: 0, height: 8, real: false, before: [], after: [] };
      (rows[l] ??= []).push(s); last.after.push(s); s.before.push(last); way.push(s); last = s;
    }
    last.after.push(end); end.before.push(last); way.push(end);
    ways.set(a.i, way);
  }
  const mean = (list: number[]) => list.reduce((a, b) => a + b, 0) / list.length;
  // First the order within layers, by the middle of neighbours; then places, as near to the neighbours as the order lets.
  rows.forEach((row) => row.forEach((s, i) => { s.y = i; }));
  for (let n = 0; n < sweeps; n++) {
    const down = n % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      const want = new Map(row.map((s) => { const near = down ? s.before : s.after; return [s, near.length ? mean(near.map((o) => o.y)) : s.y]; }));
      row.sort((a, b) => want.get(a)! - want.get(b)!);
      row.forEach((s, i) => { s.y = i; });
    }
  }
  for (const row of rows) { let y = 0; for (const s of row) { s.y = y + s.height / 2; y += s.height + gapY; } }
  for (let n = 0; n < sweeps; n++) {
    for (const row of n % 2 === 0 ? rows : [...rows].reverse()) {
      const want = row.map((s) => { const near = [...s.before, ...s.after]; return near.length ? mean(near.map((o) => o.y)) : s.y; });
      let least = -Infinity;
      row.forEach((s, i) => { s.y = Math.max(want[i]!, least + s.height / 2); least = s.y + s.height / 2 + gapY; });
      const shift = mean(row.map((s, i) => want[i]! - s.y));
      for (const s of row) s.y += shift;
    }
  }
  const top = Math.min(...rows.flat().map((s) => s.y - s.height / 2));
  for (const s of rows.flat()) s.y -= top;
  const x = (l: number) => l * (box.width + gapX);
  const bottom = Math.max(...rows.flat().map((s) => s.y + s.height / 2));
  const lines: Line[] = [];
  for (const a of forward) {
    const way = ways.get(a.i)!;
    let path = `M${x(way[0]!.layer) + box.width} ${r(way[0]!.y)}`;
    for (let i = 1; i < way.length; i++) {
      const s = way[i - 1]!, t = way[i]!, from = x(s.layer) + box.width, to = x(t.layer), middle = (from + to) / 2;
      path += `C${middle} ${r(s.y)} ${middle} ${r(t.y)} ${to} ${r(t.y)}`;
      if (!t.real) path += `L${to + box.width} ${r(t.y)}`;
    }
    const s = way[0]!, t = way[1]!;
    lines.push({ edge: a.i, path, back: false, at: { x: x(s.layer) + box.width + gapX / 2, y: (s.y + t.y) / 2 } });
  }
  // Edges back go below all that is there, each in a lane of its own.
  let lanes = 0;
  for (const a of arcs) {
    if (!back.has(a.i)) continue;
    const s = spots.get(a.from)!, t = spots.get(a.to)!, y = bottom + lane * (1.5 + lanes++), from = x(s.layer) + box.width, to = x(t.layer), c = 10, out = from + 22 + 4 * lanes, into = to - 22 - 4 * lanes;
    lines.push({ edge: a.i, back: true, at: { x: (out + into) / 2, y },
      path: `M${from} ${r(s.y)}H${out - c}Q${out} ${r(s.y)} ${out} ${r(s.y + c)}V${r(y - c)}Q${out} ${r(y)} ${out - c} ${r(y)}H${into + c}Q${into} ${r(y)} ${into} ${r(y - c)}V${r(t.y + c)}Q${into} ${r(t.y)} ${into + c} ${r(t.y)}H${to}` });
  }
  const side = lanes > 0 ? 30 + 4 * lanes : 0;
  return { nodes: [...spots.values()].map((s) => ({ id: s.id, layer: s.layer, x: x(s.layer), y: s.y - s.height / 2 })), lines, width: x(rows.length - 1) + box.width + side, height: bottom + (lanes > 0 ? lane * (1.5 + lanes) : 0) };
}
const r = (n: number) => Math.round(n * 10) / 10;

/** layout places groups below one another, in the order given. */
export function layout(of: string[][], arcs: Arc[], box: Box): Layout {
  const whole: Layout = { nodes: [], lines: [], width: 0, height: 0 };
  const group = new Map<string, number>();
  of.forEach((g, i) => g.forEach((id) => group.set(id, i)));
  const mine = of.map(() => [] as (Arc & { i: number })[]);
  arcs.forEach((a, i) => { const g = group.get(a.from); if (g !== undefined && g === group.get(a.to)) mine[g]!.push({ ...a, i }); });
  of.forEach((g, n) => {
    const l = one(g, mine[n]!, box), margin = l.lines.some((x) => x.back) ? 30 + 4 * l.lines.filter((x) => x.back).length : 0, y = whole.height + (n > 0 ? 2 * gapY : 0);
    whole.nodes.push(...l.nodes.map((p) => ({ ...p, x: p.x + margin, y: p.y + y })));
    whole.lines.push(...l.lines.map((x) => ({ ...x, path: moved(x.path, margin, y), at: { x: x.at.x + margin, y: x.at.y + y } })));
    whole.width = Math.max(whole.width, l.width + margin);
    whole.height = y + l.height;
  });
  return whole;
}

/** moved shifts a path of the commands that one makes. */
function moved(path: string, dx: number, dy: number): string {
  return path.replace(/([MLCQHV])([^MLCQHV]*)/g, (_, c: string, rest: string) => c + rest.trim().split(" ").map(Number).map((n, i) => r(n + (c === "H" ? dx : c === "V" ? dy : i % 2 === 0 ? dx : dy))).join(" "));
}
