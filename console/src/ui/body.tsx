// The body of a message, as JSON, text or hex: always as text, never as HTML.
import { useMemo, useState } from "preact/hooks";
import { bytes as size } from "../format";
import { Choices } from "./parts";

type View = "json" | "text" | "hex";

function decode(text: string, base64: boolean): Uint8Array {
  if (!base64) return new TextEncoder().encode(text);
  try { return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); } catch { return new Uint8Array(); }
}

function hex(data: Uint8Array): string {
  const lines: string[] = [];
  for (let i = 0; i < Math.min(data.length, 16384); i += 16) {
    const row = data.subarray(i, i + 16);
    const codes = Array.from(row, (b) => b.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${i.toString(16).padStart(6, "0")}  ${codes.padEnd(47)}  ${Array.from(row, (b) => b >= 32 && b < 127 ? String.fromCharCode(b) : "·").join("")}`);
  }
  if (data.length > 16384) lines.push(`… ${size(data.length - 16384)} more`);
  return lines.join("\n");
}

export function Body(props: { text: string; encoding: "json" | "text" | "base64"; bytes: number; cut: boolean; download?: string }) {
  const json = useMemo(() => {
    if (props.encoding === "base64" || props.cut && props.encoding !== "json") return undefined;
    try { const v: unknown = JSON.parse(props.text); return typeof v === "object" && v !== null ? JSON.stringify(v, null, 2) : undefined; } catch { return undefined; }
  }, [props.text, props.encoding, props.cut]);
  const views = ([["json", "JSON"], ["text", "Text"], ["hex", "Hex"]] as const).filter(([v]) => v === "hex" || v === "text" && props.encoding !== "base64" || v === "json" && json !== undefined);
  const [chosen, choose] = useState<View | null>(null);
  const view = chosen ?? views[0]![0];
  const shown = useMemo(() => view === "json" ? json ?? "" : view === "text" ? props.text : hex(decode(props.text, props.encoding === "base64")), [view, json, props.text, props.encoding]);
  return <div class="stack tight">
    <div class="row apart"><Choices label="Show the body as" value={view} of={views} set={(v: View) => choose(v)} /><span class="row small muted">{size(props.bytes)}{props.cut && `, the first ${size(props.encoding === "base64" ? Math.floor(props.text.length * 3 / 4) : new TextEncoder().encode(props.text).length)} are shown`}{props.download && <a href={props.download} download="letter-body">Download</a>}</span></div>
    <pre class={view === "hex" ? "code hex" : "code"} tabIndex={0} aria-label="Body" dir="auto">{shown === "" ? "(empty)" : shown}</pre>
  </div>;
}
