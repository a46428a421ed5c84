// Small pieces that pages are made of.
import type { ComponentChildren, ComponentProps } from "preact";
import { useState } from "preact/hooks";
import type { Refusal } from "../api";
import { age, clock, exact } from "../format";
import { to } from "../router";
import { useNow } from "../state";
import type { Args, Feature } from "../types";

type Kids = { children?: ComponentChildren };

export function PageHead(props: Kids & { title: ComponentChildren; lead?: ComponentChildren }) {
  return <header class="page-head"><div class="grow"><h1>{props.title}</h1>{props.lead && <p class="lead">{props.lead}</p>}</div>{props.children && <div class="row">{props.children}</div>}</header>;
}

export function Card(props: Kids & { title: ComponentChildren; side?: ComponentChildren; bare?: boolean }) {
  return <section class="card"><header><h2>{props.title}</h2>{props.side}</header>{props.bare ? props.children : <div class="body">{props.children}</div>}</section>;
}

/** Fold is a card that opens. */
export function Fold(props: Kids & { title: ComponentChildren; open?: boolean }) {
  const [open, set] = useState(props.open ?? false);
  return <details class="card" open={open} onToggle={(e) => set(e.currentTarget.open)}><summary>{props.title}</summary>{open && <div class="body">{props.children}</div>}</details>;
}

export function Note(props: Kids & { kind?: "bad" | "warn" | "good"; title?: string }) {
  return <div class={`note ${props.kind ?? ""}`} role={props.kind === "bad" ? "alert" : undefined}>{props.title && <h3>{props.title}</h3>}{props.children && <div>{props.children}</div>}</div>;
}

/** Failed shows why data is missing or old. */
export function Failed(props: { error: Refusal | undefined; what: string; stale?: boolean; retry?: () => void }) {
  if (!props.error) return null;
  return <Note kind={props.stale ? "warn" : "bad"} title={props.stale ? `What you see of ${props.what} is not up to date` : `${props.what[0]!.toUpperCase()}${props.what.slice(1)} cannot be shown`}>
    {props.error.message} {props.retry && <button onClick={props.retry}>Try again</button>}
  </Note>;
}

export function Empty(props: Kids & { title: string }) { return <div class="empty"><h2>{props.title}</h2>{props.children}</div>; }
export function Loading(props: { what?: string }) { return <p class="spin" role="status">Loading {props.what ?? ""}…</p>; }

export function Tag(props: Kids & { kind?: "good" | "warn" | "bad" | "ink" | ""; title?: string }) { return <span class={`tag ${props.kind ?? ""}`} title={props.title}>{props.children}</span>; }
export function Features(props: { of: Feature[] | undefined }) { return <>{(props.of ?? []).map((f) => <Tag key={f.code + f.title} title={f.title}>{f.code}</Tag>)}</>; }

/** When is a moment, as an age; the exact time is its title. */
export function When(props: { at: number | null | undefined; clock?: boolean }) {
  const now = useNow();
  if (!props.at) return <span class="muted">–</span>;
  return <time dateTime={new Date(props.at).toISOString()} title={exact(props.at)}>{props.clock ? clock(props.at) : age(props.at, now)}</time>;
}

export function Facts(props: { of: [string, ComponentChildren][] }) {
  return <dl class="facts">{props.of.map(([k, v]) => <><dt>{k}</dt><dd>{v}</dd></>)}</dl>;
}

export function Arguments(props: { of: Args | undefined }) {
  const entries = Object.entries(props.of ?? {});
  if (entries.length === 0) return <span class="muted">none</span>;
  return <ul class="plain">{entries.map(([k, v]) => <li key={k}><code class="name">{k}</code> = <code class="name">{typeof v === "string" ? v : JSON.stringify(v)}</code></li>)}</ul>;
}

export const exchangeTitle = (name: string) => name === "" ? "(default exchange)" : name;
export function QueueLink(props: { vhost: string; name: string }) { return <a class="name" href={to(["queues", props.vhost, props.name])}>{props.name}</a>; }
export function ExchangeLink(props: { vhost: string; name: string }) { return <a class="name" href={to(["exchanges", props.vhost, props.name])}>{exchangeTitle(props.name)}</a>; }

export function Choices<T extends string>(props: { label: string; value: T; of: readonly (readonly [NoInfer<T>, string])[]; set(v: NoInfer<T>): void }) {
  return <div class="choices" role="group" aria-label={props.label}>{props.of.map(([v, text]) => <button key={v} type="button" aria-pressed={props.value === v} onClick={() => props.set(v)}>{text}</button>)}</div>;
}

export function Zero(props: { n: number | undefined; text: string }) { return props.n ? <>{props.text}</> : <span class="zero">{props.text}</span>; }

export function Bar(props: { part: number; label: string; kind?: "warn" | "bad" }) {
  const percent = Math.max(0, Math.min(100, Math.round(props.part * 100)));
  return <div class="bar" role="progressbar" aria-label={props.label} aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100}><div class={props.kind} style={{ width: `${percent}%` }} /></div>;
}

/** Spark draws arrivals as bars. */
export function Spark(props: { counts: number[] | undefined; label: string }) {
  const counts = props.counts ?? [];
  const most = Math.max(1, ...counts);
  return <svg class="spark" viewBox="0 0 120 24" role="img" aria-label={props.label} preserveAspectRatio="none">
    {counts.map((n, i) => n > 0 && <rect key={i} x={i * 120 / counts.length} width={Math.max(1, 120 / counts.length - .5)} y={24 - Math.max(2, 23 * n / most)} height={Math.max(2, 23 * n / most)} />)}
  </svg>;
}

const icons = {
  menu: "M3 5h14M3 10h14M3 15h14", close: "M5 5l10 10M15 5L5 15", sun: "M10 3v1.5M10 15.5V17M3 10h1.5M15.5 10H17M5 5l1 1M14 14l1 1M5 15l1-1M14 6l1-1M13 10a3 3 0 11-6 0 3 3 0 016 0z",
  moon: "M16 11.5A6.5 6.5 0 018.5 4 6.5 6.5 0 1016 11.5z", help: "M7.5 7.7a2.5 2.5 0 114 2c-1 .7-1.5 1.2-1.5 2.3M10 15v.2", out: "M8 4H4v12h4M9 10h8M14 7l3 3-3 3",
} as const;
export function Icon(props: { name: keyof typeof icons }) { return <svg viewBox="0 0 20 20" aria-hidden="true"><path d={icons[props.name]} /></svg>; }

export function IconButton(props: { name: keyof typeof icons; label: string } & ComponentProps<"button">) {
  const { name, label, ...rest } = props;
  return <button type="button" class="quiet icon" aria-label={label} title={label} {...rest}><Icon name={name} /></button>;
}
