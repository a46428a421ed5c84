// Messages about what was done. They go by themselves, except failures.
import { useEffect, useState } from "preact/hooks";
import { words } from "../api";
import { IconButton } from "./parts";

interface Toast { id: number; text: string; bad: boolean; }
let list: Toast[] = [], next = 1;
let changed: (l: Toast[]) => void = () => {};

function show(text: string, bad: boolean): void {
  const t = { id: next++, text, bad };
  list = [...list.slice(-3), t];
  changed(list);
  if (!bad) setTimeout(() => drop(t.id), 6000);
}
function drop(id: number): void { list = list.filter((t) => t.id !== id); changed(list); }

export function say(text: string): void { show(text, false); }
export function complain(what: string, e: unknown): void { show(`${what}: ${words(e)}`, true); }

export function Toasts() {
  const [shown, set] = useState(list);
  useEffect(() => { changed = set; return () => { changed = () => {}; }; }, []);
  return <div class="toasts" role="status" aria-live="polite">{shown.map((t) => <div key={t.id} class={`toast ${t.bad ? "bad" : ""}`}><span>{t.text}</span><IconButton name="close" label="Dismiss" onClick={() => drop(t.id)} /></div>)}</div>;
}
