// Letters as a file: one a line, as JSON, with bodies, headers and histories. What is exported and imported is equal.
import { useState } from "preact/hooks";
import { p, raw, words } from "../api";
import { bytes, count, plural } from "../format";
import type { Filter, Imported, OfficeQueue } from "../types";
import { Dialog } from "../ui/dialog";
import { Text } from "../ui/form";
import { Note } from "../ui/parts";
import { Small } from "../ui/table";
import { say } from "../ui/toast";
import { filterQuery } from "./office";

export function Transfer(props: { vhost: string; queue: string; /** other queues in which letters of the same group lie */ others?: string[]; filter: Filter; queues: OfficeQueue[]; done(): void }) {
  const [open, set] = useState<"" | "export" | "import">("");
  return <>
    <button onClick={() => set("export")}>Export…</button><button onClick={() => set("import")}>Import…</button>
    {open === "export" && <Export {...props} close={() => set("")} />}
    {open === "import" && <Import {...props} close={() => set("")} />}
  </>;
}

function Export(props: { vhost: string; queue: string; others?: string[]; filter: Filter; queues: OfficeQueue[]; close(): void }) {
  const q = filterQuery(props.filter), known = props.queues.find((x) => x.name === props.queue && x.vhost === props.vhost);
  return <Dialog small title="Export letters" close={props.close}>
    <p>{q ? <>The letters of <b class="name">{props.queue}</b> that match the filter</> : <>All {known ? <b>{plural(known.letters, "letter")}</b> : "letters"} of <b class="name">{props.queue}</b></>}, one a line as JSON, with bodies, headers and the history of their deaths. They stay in the queue.</p>
    {(props.others ?? []).length > 0 && <Note kind="warn">The group has letters in <b class="name">{props.others!.join(", ")}</b> too. A file has those of one queue: choose the other above, at “Are in”, and export it as well.</Note>}
    <p class="muted">What is masked for you is masked in the file, too; then it cannot be imported as it was.</p>
    <div class="row"><a class="button primary" href={"api/" + p`office/export/${props.vhost}/${props.queue}` + (q ? "?" + q : "")} download={`${props.queue.replace(/[^\w.-]+/g, "-")}-letters.ndjson`} onClick={() => setTimeout(props.close)}>Download</a></div>
  </Dialog>;
}

function Import(props: { vhost: string; queue: string; close(): void; done(): void }) {
  const [to, setTo] = useState(props.queue), [file, setFile] = useState<{ file: File; lines: number } | null>(null), [error, setError] = useState(""), [done, setDone] = useState<Imported | null>(null);
  const read = async (f: File | undefined) => {
    setError(""); setFile(null); setDone(null);
    if (!f) return;
    try {
      let n = 0, begun = false, head = "";
      const reader = f.stream().getReader();
      for (;;) { // a file may be larger than what a page can hold
        const { value, done } = await reader.read();
        if (done) break;
        if (head.length < 4096) head += new TextDecoder().decode(value.subarray(0, 4096));
        for (const b of value) if (b === 10) { if (begun) n++; begun = false; } else if (b !== 13 && b !== 32) begun = true;
      }
      if (begun) n++;
      if (n === 0) throw new Error("it is empty.");
      if (!/^\s*\{/.test(head)) throw new Error("its first line is no letter. An export has one JSON object a line.");
      setFile({ file: f, lines: n });
    } catch (e) { setError(`${f.name} cannot be imported: ${words(e)}`); }
  };
  const bad = done?.refused ?? [];
  return <Dialog title="Import letters" close={props.close} label={file ? `Import ${plural(file.lines, "letter")}` : "Import"} busyLabel="Importing…" disabled={!file || to === ""} action={done ? undefined : async () => {
    const answer = await (await raw("POST", p`office/import/${props.vhost}/${to}`, { body: file!.file, headers: { "Content-Type": "application/x-ndjson" } })).json() as Imported;
    setDone(answer);
    say(`${plural(answer.imported, "letter")} ${answer.imported === 1 ? "is" : "are"} imported into ${to}.`); props.done();
    if ((answer.refused ?? []).length === 0) props.close();
  }}>
    {done ? <>
      <p><b>{plural(done.imported, "letter")}</b> {done.imported === 1 ? "is" : "are"} imported. {plural(bad.length, "line was", "lines were")} refused:</p>
      <Small wrapped label="Lines that were refused" head={[["Line", "num"], "Why"]} rows={bad.slice(0, 200).map((r) => [count(r.line), <span class="name">{r.why}</span>])} />
      {bad.length > 200 && <p class="muted">and {count(bad.length - 200)} more.</p>}
    </> : <>
      <p class="muted">Letters of an export come back with their bodies, headers and histories, as new letters: to import a file twice makes them twice.</p>
      <Text label="Into the queue" value={to} set={setTo} required help="An existing queue of the virtual host" />
      <div class="field"><label for="letters-file">File</label><input id="letters-file" type="file" accept=".ndjson,.jsonl,.json,application/x-ndjson" onChange={(e) => void read(e.currentTarget.files?.[0])} /></div>
      {error && <Note kind="bad">{error}</Note>}
      {file && <Note title={file.file.name}>{plural(file.lines, "letter")}, {bytes(file.file.size)}</Note>}
    </>}
  </Dialog>;
}
