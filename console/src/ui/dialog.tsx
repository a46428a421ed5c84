// Dialogs are the browser's own: they keep the focus inside, and escape closes them.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { words } from "../api";
import { go } from "../router";
import { Note } from "./parts";

/** An action may lead to another page when it is done: its go does so if the user has not gone elsewhere meanwhile. */
export type Action = (go: (hash: string) => void) => Promise<void> | void;

/** path is where the user is, without filters. */
const path = () => location.hash.split("?")[0];

export interface DialogProps {
  title: string; children?: ComponentChildren; close(): void; small?: boolean;
  /** the action, its text and whether it destroys; without one the dialog only shows. */
  action?: Action; label?: string; danger?: boolean; disabled?: boolean; busyLabel?: string;
}

export function Dialog(props: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  // At once: a key that is pressed before it is open would be for the page behind.
  const here = useRef(true);
  useLayoutEffect(() => {
    const d = ref.current;
    if (d && !d.open) d.showModal();
    return () => { here.current = false; d?.close(); };
  }, []);
  // What is wrong may have been scrolled away: the first field with an error gets the focus, or the error itself comes into view.
  useLayoutEffect(() => {
    if (error === "") return;
    const d = ref.current, wrong = d?.querySelector<HTMLElement>('[aria-invalid="true"]');
    if (wrong) { wrong.scrollIntoView({ block: "center" }); wrong.focus({ preventScroll: true }); } else d?.querySelector('[role="alert"]:last-child')?.scrollIntoView({ block: "nearest" });
  }, [error]);
  const submit = async (e: Event) => {
    e.preventDefault();
    if (!props.action || busy || props.disabled) return;
    setBusy(true); setError("");
    const at = path(); // it changes before the page does
    try { await props.action((hash) => { if (here.current && path() === at) go(hash); }); } catch (e) { setError(words(e)); }
    setBusy(false);
  };
  return <dialog ref={ref} class={props.small ? "small-dialog" : ""} aria-labelledby="dialog-title" onCancel={(e) => { e.preventDefault(); props.close(); }}>
    <form onSubmit={submit} onInput={() => setError("")} noValidate>
      <header><h2 id="dialog-title">{props.title}</h2></header>
      <div class="body stack">{props.children}{error && <Note kind="bad">{error}</Note>}</div>
      <footer>
        <button type="button" onClick={props.close}>{props.action ? "Cancel" : "Close"}</button>
        {props.action && <button type="submit" class={`primary ${props.danger ? "danger" : ""}`} disabled={busy || props.disabled}>{busy ? props.busyLabel ?? "Working…" : props.label ?? "Save"}</button>}
      </footer>
    </form>
  </dialog>;
}

interface Question { title: string; text: ComponentChildren; label: string; danger?: boolean; action: Action; }

/** useConfirm asks before something is done. */
export function useConfirm(): [ComponentChildren, (q: Question) => void] {
  const [q, set] = useState<Question | null>(null);
  const node = q && <Dialog small title={q.title} label={q.label} danger={q.danger} close={() => set(null)} action={async (go) => { await q.action(go); set(null); }}>{q.text}</Dialog>;
  return [node, set];
}
