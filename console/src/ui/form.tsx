// Fields of forms. Each has a label, may have help, and shows its own error.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps { label: string; help?: ComponentChildren; error?: string; wide?: boolean; }

function Wrap(props: FieldProps & { id: string; children: ComponentChildren }) {
  return <div class={`field ${props.wide ? "wide" : ""}`}>
    <label for={props.id}>{props.label}</label>{props.children}
    {props.error && <span class="error" id={props.id + "-e"}>{props.error}</span>}
    {props.help && <span class="help" id={props.id + "-h"}>{props.help}</span>}
  </div>;
}
const described = (id: string, p: FieldProps) => ({ "aria-describedby": [p.error && id + "-e", p.help && id + "-h"].filter(Boolean).join(" ") || undefined, "aria-invalid": p.error ? "true" as const : undefined });

export function Text(props: FieldProps & { value: string; set(v: string): void; type?: "text" | "password" | "datetime-local"; placeholder?: string; autofocus?: boolean; autocomplete?: string; list?: string; disabled?: boolean; required?: boolean }) {
  const id = useId();
  return <Wrap id={id} {...props}><input id={id} {...(props.type === "password" || props.type === "datetime-local" ? { type: props.type } : { list: props.list })} value={props.value} onInput={(e) => props.set(e.currentTarget.value)} placeholder={props.placeholder} autofocus={props.autofocus} autocomplete={props.autocomplete ?? "off"} spellcheck={false} disabled={props.disabled} required={props.required} {...described(id, props)} /></Wrap>;
}

export function Area(props: FieldProps & { value: string; set(v: string): void; rows?: number; placeholder?: string }) {
  const id = useId();
  return <Wrap id={id} {...props}><textarea id={id} rows={props.rows ?? 4} value={props.value} onInput={(e) => props.set(e.currentTarget.value)} placeholder={props.placeholder} spellcheck={false} {...described(id, props)} /></Wrap>;
}

export function Select(props: FieldProps & { value: string; set(v: string): void; of: readonly (readonly [string, string])[]; disabled?: boolean }) {
  const id = useId();
  return <Wrap id={id} {...props}><select id={id} value={props.value} disabled={props.disabled} onChange={(e) => props.set(e.currentTarget.value)} {...described(id, props)}>{props.of.map(([v, text]) => <option key={v} value={v}>{text}</option>)}</select></Wrap>;
}

export function Check(props: { label: string; help?: ComponentChildren; value: boolean; set(v: boolean): void }) {
  const id = useId();
  return <div class="check"><input id={id} type="checkbox" checked={props.value} onChange={(e) => props.set(e.currentTarget.checked)} /><label for={id}>{props.label}{props.help && <span class="help muted small">{props.help}</span>}</label></div>;
}

/** whole reads a number of at least 0; undefined if the text is empty, an error text if it is no number. */
export function whole(text: string, what: string): number | undefined {
  if (text.trim() === "") return undefined;
  const n = Number(text);
  if (!Number.isInteger(n) || n < 0) throw new Error(`${what} must be a whole number of at least 0, not "${text}".`);
  return n;
}
