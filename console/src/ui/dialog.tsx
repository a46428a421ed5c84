// Dialogs are the browser's own: they keep the focus inside, and escape closes them.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { words } from "../api";
import { Note } from "./parts";

export interface DialogProps {
  title: string; children?: ComponentChildren; close(): void; small?: boolean;
  /** the action, its text and whether it destroys; without one the dialog only shows. */
  action?: () => Promise<void> | void; label?: string; danger?: boolean; disabled?: boolean; busyLabel?: string;
}

export function Dialog(props: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  useEffect(() => { const d = ref.current; if (d && !d.open) d.showModal(); return () => d?.close(); }, []);
  const submit = async (e: Event) => {
    e.preventDefault();
    if (!props.action || busy || props.disabled) return;
    setBusy(true); setError("");
    try { await props.action(); } catch (e) { setError(words(e)); }
    setBusy(false);
  };
  return <dialog ref={ref} class={props.small ? "small-dialog" : ""} aria-labelledby="dialog-title" onCancel={(e) => { e.preventDefault(); props.close(); }}>
    <form onSubmit={submit} noValidate>
      <header><h2 id="dialog-title">{props.title}</h2></header>
      <div class="body stack">{props.children}{error && <Note kind="bad">{error}</Note>}</div>
      <footer>
        <button type="button" onClick={props.close}>{props.action ? "Cancel" : "Close"}</button>
        {props.action && <button type="submit" class={`primary ${props.danger ? "danger" : ""}`} disabled={busy || props.disabled}>{busy ? props.busyLabel ?? "Working…" : props.label ?? "Save"}</button>}
      </footer>
    </form>
  </dialog>;
}

/** useConfirm asks before something is done. */
export function useConfirm(): [ComponentChildren, (q: { title: string; text: ComponentChildren; label: string; danger?: boolean; action: () => Promise<void> }) => void] {
  const [q, set] = useState<{ title: string; text: ComponentChildren; label: string; danger?: boolean; action: () => Promise<void> } | null>(null);
  const node = q && <Dialog small title={q.title} label={q.label} danger={q.danger} close={() => set(null)} action={async () => { await q.action(); set(null); }}>{q.text}</Dialog>;
  return [node, set];
}
