// Counts over time as bars, one on top of the other where there are several kinds.
import type { ComponentChildren } from "preact";
import { count } from "../format";
import "./bars.css";

export type Colour = 1 | 2 | 3 | 4 | 5;
export interface BarKind { key: string; name: string; colour: Colour; counts: number[]; }

const at = new Intl.DateTimeFormat("en-GB", { month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit" });
const atSecond = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { month: "short", day: "2-digit" });

/** Bars draws kinds whose counts are of equal steps from a moment on, in milliseconds. Each bar tells its time and counts. */
export function Bars(props: { label: string; what: string; from: number; step: number; kinds: BarKind[]; legend?: (k: BarKind, sum: number) => ComponentChildren }) {
  const { kinds, from, step } = props;
  const n = Math.max(0, ...kinds.map((k) => k.counts.length));
  const sums = Array.from({ length: n }, (_, i) => kinds.reduce((s, k) => s + (k.counts[i] ?? 0), 0));
  const most = Math.max(1, ...sums), all = sums.reduce((a, b) => a + b, 0), top = sums.indexOf(Math.max(...sums));
  const time = step >= 86400000 ? day : step * n <= 3600000 ? atSecond : at;
  const moment = (i: number) => time.format(from + i * step);
  return <figure class="bars">
    <div class="plot" role="img" aria-label={`${props.label}: ${count(all)} ${props.what} from ${moment(0)} to ${moment(n)}${all > 0 ? `, most at ${moment(top)}: ${count(sums[top])}` : ""}`}>
      <span class="most" aria-hidden="true">{count(most)}</span>
      <svg viewBox={`0 0 ${n * 10} 100`} preserveAspectRatio="none" aria-hidden="true">
        {sums.map((sum, i) => {
          if (sum === 0) return null;
          let y = 100;
          return <g key={i}><title>{`${moment(i)}: ${kinds.filter((k) => k.counts[i]).map((k) => `${kinds.length > 1 ? k.name + " " : ""}${count(k.counts[i])}`).join(", ")}`}</title>
            <rect class="hit" x={i * 10} y={0} width={10} height={100} />
            {kinds.map((k) => { const c = k.counts[i] ?? 0; if (c === 0) return null; const h = Math.max(2, 98 * c / most); y -= h; return <rect key={k.key} class={`f${k.colour}`} x={i * 10 + 1} y={y} width={8} height={h} />; })}
          </g>;
        })}
      </svg>
      <div class="axis" aria-hidden="true"><span>{moment(0)}</span>{n > 2 && <span class="middle">{moment(Math.floor(n / 2))}</span>}<span>{moment(n)}</span></div>
    </div>
    {props.legend && <figcaption><ul class="legend">{kinds.map((k) => <li key={k.key}><i class={`c${k.colour}`} />{props.legend!(k, k.counts.reduce((a, b) => a + b, 0))}</li>)}</ul></figcaption>}
  </figure>;
}
