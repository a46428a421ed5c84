// Charts over time, by uPlot. A line is a name, a colour and values.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { bytes, count, rate } from "../format";
import type { Details, Sample, Stats } from "../types";

export interface Line { name: string; colour: 1 | 2 | 3 | 4 | 5; values: (number | null)[]; }
export const spans = [["60", "1 min"], ["600", "10 min"], ["3600", "1 h"], ["28800", "8 h"], ["86400", "24 h"]] as const;
export type Span = (typeof spans)[number][0];
export const steps: Record<Span, number> = { "60": 5, "600": 5, "3600": 60, "28800": 600, "86400": 1800 };

/** spanQuery asks for samples of rates and lengths. */
export function spanQuery(s: Span): Record<string, string | number> {
  return { lengths_age: s, lengths_incr: steps[s], msg_rates_age: s, msg_rates_incr: steps[s] };
}

const ascending = (d: Details | undefined): Sample[] => [...(d?.samples ?? [])].reverse();
export function times(d: Details | undefined): number[] { return ascending(d).map((s) => s.timestamp / 1000); }
export function depths(d: Details | undefined): number[] { return ascending(d).map((s) => s.sample); }
/** rates are the differences of a counter's samples; they have one value less, so the first is missing. */
export function ratesOf(stats: Stats | undefined, key: string): (number | null)[] {
  const s = ascending(stats?.[key + "_details"] as Details | undefined);
  return s.map((v, i) => i === 0 ? null : Math.max(0, (v.sample - s[i - 1]!.sample) / ((v.timestamp - s[i - 1]!.timestamp) / 1000)));
}
export function details(stats: Stats | undefined, key: string): Details | undefined { return stats?.[key + "_details"] as Details | undefined; }
export function rateOf(stats: Stats | undefined, key: string): number | undefined { return details(stats, key)?.rate; }

const units = { count: (n: number) => count(n), rate: (n: number) => rate(n), bytes: (n: number) => bytes(n) };

export function Chart(props: { label: string; times: number[]; lines: Line[]; unit: keyof typeof units; height?: number }) {
  const at = useRef<HTMLDivElement>(null), plot = useRef<uPlot>(undefined);
  const format = units[props.unit];
  const colours = useMemo(() => props.lines.map((l) => l.colour).join(), [props.lines]);
  const names = props.lines.map((l) => l.name).join("\0");
  const data = useMemo(() => [props.times, ...props.lines.map((l) => props.times.map((_, i) => l.values[i] ?? null))] as uPlot.AlignedData, [props.times, props.lines]);
  useEffect(() => {
    const el = at.current!;
    const make = () => {
      plot.current?.destroy();
      const css = getComputedStyle(document.documentElement);
      const v = (name: string) => css.getPropertyValue(name).trim();
      const axis = { stroke: v("--muted"), grid: { stroke: v("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
      plot.current = new uPlot({
        width: Math.max(120, el.clientWidth), height: props.height ?? 190, padding: [8, 8, 0, 0],
        cursor: { y: false, points: { size: 6 } }, legend: { show: false }, scales: { x: { time: true }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [{ ...axis, values: (_u, ts) => ts.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(ts.length > 1 && ts[1]! - ts[0]! < 60 ? { second: "2-digit" } : {}) })) },
          { ...axis, size: 62, values: (_u, ticks) => ticks.map((t) => props.unit === "count" && t % 1 ? "" : format(t)) }],
        series: [{}, ...props.lines.map((l) => ({ label: l.name, stroke: v(`--chart-${l.colour}`), width: 1.75, points: { show: false } }))],
      }, data, el);
    };
    make();
    const sized = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(120, el.clientWidth), height: props.height ?? 190 }));
    sized.observe(el);
    window.addEventListener("theme", make);
    return () => { sized.disconnect(); window.removeEventListener("theme", make); plot.current?.destroy(); plot.current = undefined; };
  }, [names, colours, props.unit, props.height]);
  useEffect(() => { plot.current?.setData(data); }, [data]);
  const last = (l: Line) => [...l.values].reverse().find((n) => n !== null && n !== undefined);
  return <figure>
    <div class="chart" ref={at} role="img" aria-label={`${props.label}. Now: ${props.lines.map((l) => `${l.name} ${format(last(l) ?? 0)}`).join(", ")}`} />
    <figcaption><ul class="legend">{props.lines.map((l) => <li key={l.name}><i class={`c${l.colour}`} />{l.name} <b>{format(last(l) ?? 0)}</b></li>)}</ul></figcaption>
  </figure>;
}
