// Charts over time, by uPlot. A line is a name, a colour and values.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { bytes, count, rate } from "../format";
import type { Details, Sample, Stats } from "../types";
import { When } from "./parts";

export interface Line { name: string; colour: 1 | 2 | 3 | 4 | 5; values: (number | null)[]; now: number; }
/** Lines are what a chart draws: times in seconds, and in milliseconds since when there are values. */
export interface Lines { times: number[]; since: number; lines: Line[]; }
export const spans = [["60", "1 min"], ["600", "10 min"], ["3600", "1 h"], ["28800", "8 h"], ["86400", "24 h"]] as const;
export type Span = (typeof spans)[number][0];
const steps: Record<Span, number> = { "60": 5, "600": 5, "3600": 60, "28800": 300, "86400": 600 };

/** spanQuery asks for samples of rates and lengths. */
export function spanQuery(s: Span): Record<string, string | number> {
  return { lengths_age: s, lengths_incr: steps[s], msg_rates_age: s, msg_rates_incr: steps[s] };
}

const ascending = (d: Details | undefined): Sample[] => [...(d?.samples ?? [])].reverse();
const times = (d: Details | undefined): number[] => ascending(d).map((s) => s.timestamp / 1000);

/** since is when the first sample was taken; before that answers repeat it. */
const since = (d: Details | undefined): number => d?.samples_since ?? 0;

/** depths are the samples of a length; before the first there are none. */
function depths(d: Details | undefined): (number | null)[] {
  return ascending(d).map((s) => s.timestamp < since(d) ? null : s.sample);
}

/** ratesOf are the differences of a counter's samples; they have one value less, so the first is missing. */
function ratesOf(d: Details | undefined): (number | null)[] {
  const s = ascending(d);
  return s.map((v, i) => {
    const before = s[i - 1];
    if (!before) return null;
    const passed = v.timestamp - Math.max(before.timestamp, since(d));
    return passed < 1000 ? null : Math.max(0, 1000 * (v.sample - before.sample) / passed);
  });
}

/** waiting are the lines of messages in one queue or in all. */
export function waiting(totals: Stats): Lines {
  const line = (name: string, colour: 1 | 2, key: string): Line =>
    ({ name, colour, values: depths(details(totals, key)), now: (totals[key] as number | undefined) ?? 0 });
  const all = details(totals, "messages");
  return {
    times: times(all), since: since(all),
    lines: [line("Ready", 1, "messages_ready"), line("Unacknowledged", 2, "messages_unacknowledged")],
  };
}

type Rate = readonly [name: string, colour: Line["colour"], key: string];

/** flow are the lines of messages a second; those that never happened have no values. Where none has, other gives the times. */
export function flow(stats: Stats | undefined, rates: readonly Rate[], other?: Details): Lines {
  const known = rates.map(([, , key]) => details(stats, key)).filter((d) => d !== undefined);
  const from = known.length > 0 ? known : [other];
  return {
    times: times(from[0]), since: Math.min(...from.map(since)),
    lines: rates.map(([name, colour, key]) => ({ name, colour, values: ratesOf(details(stats, key)), now: rateOf(stats, key) ?? 0 })),
  };
}

/** through are the rates of messages in one queue or in all. */
export function through(incoming: string): Rate[] {
  return [[incoming, 1, "publish"], ["Delivered", 3, "deliver_get"], ["Acknowledged", 2, "ack"]];
}

export function details(stats: Stats | undefined, key: string): Details | undefined { return stats?.[key + "_details"] as Details | undefined; }
export function rateOf(stats: Stats | undefined, key: string): number | undefined { return details(stats, key)?.rate; }

const units = { count: (n: number) => count(n), rate: (n: number) => rate(n), bytes: (n: number) => bytes(n) };

function hour(at: number, seconds: boolean): string {
  const shown = { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined } as const;
  return new Date(at * 1000).toLocaleTimeString("en-GB", shown);
}

/** Chart draws lines over time. */
export function Chart(props: Lines & { label: string; unit: keyof typeof units; height?: number }) {
  const at = useRef<HTMLDivElement>(null), plot = useRef<uPlot>(undefined);
  const format = units[props.unit];
  const colours = useMemo(() => props.lines.map((l) => l.colour).join(), [props.lines]);
  const names = props.lines.map((l) => l.name).join("\0");
  const data = useMemo(
    () => [props.times, ...props.lines.map((l) => props.times.map((_, i) => l.values[i] ?? null))] as uPlot.AlignedData,
    [props.times, props.lines]);
  useEffect(() => {
    const el = at.current!;
    const size = () => ({ width: Math.max(120, el.clientWidth), height: props.height ?? 190 });
    const make = () => {
      plot.current?.destroy();
      const css = getComputedStyle(document.documentElement);
      const v = (name: string) => css.getPropertyValue(name).trim();
      const axis = {
        stroke: v("--muted"), grid: { stroke: v("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif",
      };
      plot.current = new uPlot({
        ...size(), padding: [8, 8, 0, 0], cursor: { y: false, points: { size: 6 } }, legend: { show: false },
        scales: { x: { time: true }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
          { ...axis, values: (_u, at) => at.map((t) => hour(t, at.length > 1 && at[1]! - at[0]! < 60)) },
          { ...axis, size: 62, values: (_u, ticks) => ticks.map((t) => props.unit === "count" && t % 1 ? "" : format(t)) },
        ],
        series: [{}, ...props.lines.map((l) => ({
          label: l.name, stroke: v(`--chart-${l.colour}`), width: 1.75, points: { show: false },
        }))],
      }, data, el);
    };
    make();
    const sized = new ResizeObserver(() => plot.current?.setSize(size()));
    sized.observe(el);
    window.addEventListener("theme", make);
    return () => {
      sized.disconnect();
      window.removeEventListener("theme", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names, colours, props.unit, props.height]);
  useEffect(() => { plot.current?.setData(data); }, [data]);
  const late = props.times.length > 0 && props.since > 1000 * props.times[0]!;
  const now = props.lines.map((l) => `${l.name} ${format(l.now)}`).join(", ");
  return <figure>
    <div class="chart" ref={at} role="img" aria-label={`${props.label}. Now: ${now}`} />
    <figcaption>
      <ul class="legend">{props.lines.map((l) => <li key={l.name}><i class={`c${l.colour}`} />{l.name} <b>{format(l.now)}</b></li>)}</ul>
      {late && <p class="muted small">Recorded since <When at={props.since} clock /></p>}
    </figcaption>
  </figure>;
}
