// Masks: what of letters is hidden from who lacks the tag reveal.
import { useLayoutEffect, useState } from "preact/hooks";
import { p, send, words } from "../../api";
import { plural } from "../../format";
import { pattern } from "../../regexp";
import { usePoll, useTitle } from "../../state";
import type { Masks } from "../../types";
import { Area } from "../../ui/form";
import { NoVHost, useOneVHost } from "../../ui/onevhost";
import { Card, Failed, Loading, Note, PageHead } from "../../ui/parts";
import { say } from "../../ui/toast";
import { officeError } from "../office";

const linesOf = (text: string) => text.split("\n").map((l) => l.trim()).filter(Boolean);

/** together are headers of which each may show the same text: a stack trace begins with its error. */
const together = [
  ["x-exception-message", "x-exception-stacktrace"], ["MT-Fault-Message", "MT-Fault-StackTrace"], ["NServiceBus.ExceptionInfo.Message", "NServiceBus.ExceptionInfo.StackTrace"],
  ["__connect.errors.exception.message", "__connect.errors.exception.stacktrace"], ["exception_message", "traceback"], ["exc_message", "traceback"],
];

/** companions are headers that show what is hidden in others, and are not hidden. */
function companions(headers: string[]): string[] {
  const hidden = new Set(headers.map((h) => h.toLowerCase())), is = (h: string) => hidden.has(h.toLowerCase());
  return [...new Set(together.filter((t) => t.some(is)).flatMap((t) => t.filter((h) => !is(h))))];
}

export function MasksPage(props: { vhost?: string }) {
  const { vhost, choice } = useOneVHost("masks", props.vhost);
  useTitle("Masks");
  const path = vhost === undefined ? null : p`office/masks/${vhost}`;
  const { data, error, loading, reload } = usePoll<Masks>(path, 0);
  if (vhost === undefined) return <><PageHead title="Masks" /><NoVHost /></>;
  return <div class="stack">
    <PageHead title="Masks" lead={<>What of letters is shown as •••, in lists, letters, bodies and exports. Consumers get all of it, as ever.</>}>{choice}</PageHead>
    <Failed error={officeError(error)} what="the masks" stale={!!data} retry={reload} />
    {loading && !data && <Loading what="the masks" />}
    {data && <Form key={path} now={data} vhost={vhost} path={path!} done={reload} />}
  </div>;
}

function Form(props: { now: Masks; vhost: string; path: string; done(): void }) {
  const text = (list: string[] | undefined) => (list ?? []).join("\n");
  const [headers, setHeaders] = useState(text(props.now.headers)), [paths, setPaths] = useState(text(props.now.paths)), [patterns, setPatterns] = useState(text(props.now.patterns)), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const now = JSON.stringify(props.now);
  useLayoutEffect(() => { setHeaders(text(props.now.headers)); setPaths(text(props.now.paths)); setPatterns(text(props.now.patterns)); }, [now]);
  const made: Masks = { headers: linesOf(headers), paths: linesOf(paths), patterns: linesOf(patterns) };
  const badPath = made.paths.find((x) => !/^\$(\.\.?[^.[\]]+|\[[^\]]+\])+$/.test(x));
  let badPattern: string | undefined;
  for (const x of made.patterns) try { const re = pattern(x); if (re.test("")) badPattern ??= `“${x}” matches an empty text, so it would mask nothing or all.`; } catch (e) { badPattern ??= words(e); }
  const shows = companions(made.headers);
  const n = made.headers.length + made.paths.length + made.patterns.length, changed = JSON.stringify(made) !== JSON.stringify({ headers: props.now.headers ?? [], paths: props.now.paths ?? [], patterns: props.now.patterns ?? [] });
  return <form class="stack" onSubmit={async (e) => {
    e.preventDefault(); setError("");
    if (badPath || badPattern) return;
    setBusy(true);
    try { await send("PUT", props.path, made); say(n === 0 ? `Nothing is masked in ${props.vhost}.` : `${plural(n, "mask")} ${n === 1 ? "is" : "are"} in force in ${props.vhost}.`); props.done(); } catch (e) { setError(words(e)); }
    setBusy(false);
  }}>
    <div class="grid3">
      <Card title="Headers"><Area label="Names of headers" rows={6} value={headers} set={setHeaders} placeholder={"authorization\nx-customer-email"} help="One a line. Their values are hidden, and nobody without the tag reveal can search by them." /></Card>
      <Card title="JSON paths"><Area label="Paths in JSON bodies" rows={6} value={paths} set={setPaths} placeholder={"$.card.number\n$..iban"} error={badPath && `“${badPath}” is no path; it must be like $.card.number, or $..iban for any depth.`} help={<>One a line: <code>$.card.number</code> from the top, <code>$..iban</code> at any depth</>} /></Card>
      <Card title="Patterns"><Area label="Regular expressions" rows={6} value={patterns} set={setPatterns} placeholder={"\\b\\d{4}-\\d{4}-\\d{4}-\\d{4}\\b"} error={badPattern} help="One a line. What they match is hidden, in bodies, headers and error texts." /></Card>
    </div>
    {shows.length > 0 && <Note kind="warn">The same text may stand in {shows.map((h, i) => <>{i > 0 && ", "}<code>{h}</code></>)}: a stack trace begins with its error. <button type="button" onClick={() => setHeaders([...made.headers, ...shows].join("\n"))}>Hide {shows.length === 1 ? "it" : "them"} too</button></Note>}
    {n === 0 && !changed && <Note>Nothing is masked here: who may read a queue sees all of its letters.</Note>}
    <Note>Who has the tag <code>reveal</code> sees the values after asking for them on the page of a letter, and the <a href="#/audit?what=letter*">audit</a> records it.</Note>
    {error && <Note kind="bad">{error}</Note>}
    <div class="row"><button type="submit" class="primary" disabled={busy || !changed || !!badPath || !!badPattern}>{busy ? "Saving…" : n === 0 ? "Save: mask nothing" : `Save ${plural(n, "mask")}`}</button>{changed && <button type="button" class="quiet" onClick={() => { setHeaders(text(props.now.headers)); setPaths(text(props.now.paths)); setPatterns(text(props.now.patterns)); }}>Undo</button>}</div>
  </form>;
}
