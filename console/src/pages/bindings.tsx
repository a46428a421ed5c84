// Bindings, seen from either end, and the forms to make and remove them.
import { useState } from "preact/hooks";
import { p, send } from "../api";
import { usePoll } from "../state";
import type { Args, Binding } from "../types";
import { useConfirm } from "../ui/dialog";
import { Area, Select, Text } from "../ui/form";
import { Arguments, Card, ExchangeLink, Failed, Fold, Note, QueueLink } from "../ui/parts";
import { Small } from "../ui/table";
import { say } from "../ui/toast";
import { table } from "./arguments";

const named = (exchange: string) => exchange === "" ? "amq.default" : exchange;
function between(b: Pick<Binding, "vhost" | "source" | "destination" | "destination_type">): string {
  return p`bindings/${b.vhost}/e/${named(b.source)}/` + (b.destination_type === "queue" ? "q/" : "e/") + encodeURIComponent(named(b.destination));
}

const brief = (a: Args) => Object.keys(a).length === 0 ? <span class="muted">–</span> : <Arguments of={a} />;

/** Bindings lists what is bound from or to an object. */
export function Bindings(props: { path: string; title: string; side: "from" | "to"; vhost: string; add?: { source?: string; destination?: string; kind?: "queue" | "exchange" } }) {
  const { data, error, reload } = usePoll<Binding[]>(props.path);
  const [confirm, ask] = useConfirm();
  const shown = (data ?? []).slice(0, 500);
  return <Card title={props.title} bare>
    <Failed error={error} what="the bindings" stale={!!data} retry={reload} />
    {data && <Small label={props.title} wrapped head={[props.side === "from" ? "From exchange" : "To", "Routing key", "Arguments", ""]} empty={props.side === "from" ? "It is bound to no exchange: messages come from clients alone." : "Nothing is bound to it. What is published here is dropped or returned."}
      rows={shown.map((b) => [
        props.side === "from" ? <ExchangeLink vhost={b.vhost} name={b.source} /> : b.destination_type === "queue" ? <>queue <QueueLink vhost={b.vhost} name={b.destination} /></> : <>exchange <ExchangeLink vhost={b.vhost} name={b.destination} /></>,
        b.routing_key === "" ? <span class="muted">(empty)</span> : <code class="name">{b.routing_key}</code>, brief(b.arguments),
        b.source === "" ? <span class="muted small">implicit</span> : <button class="danger" aria-label={`Unbind ${b.source} from ${b.destination}`} onClick={() => ask({
          title: "Remove the binding", label: "Unbind", danger: true,
          text: <p>Messages that exchange <b class="name">{b.source}</b> routes with the key <b class="name">{b.routing_key || "(empty)"}</b> no longer reach {b.destination_type} <b class="name">{b.destination}</b>.</p>,
          action: async () => { await send("DELETE", between(b) + "/" + encodeURIComponent(b.properties_key)); say("The binding is removed."); reload(); },
        })}>Unbind</button>,
      ])} />}
    {data && data.length > shown.length && <p class="empty">Only 500 of {data.length} bindings are shown.</p>}
    {props.add && <div class="body"><Fold title={props.side === "from" ? "Bind an exchange to it" : "Bind something to it"}><AddBinding vhost={props.vhost} {...props.add} done={reload} /></Fold></div>}
    {confirm}
  </Card>;
}

function AddBinding(props: { vhost: string; source?: string; destination?: string; kind?: "queue" | "exchange"; done(): void }) {
  const [other, setOther] = useState(""), [kind, setKind] = useState<"queue" | "exchange">("queue"), [key, setKey] = useState(""), [more, setMore] = useState(""), [error, setError] = useState("");
  return <form class="stack" onSubmit={async (e) => {
    e.preventDefault(); setError("");
    try {
      if (other === "") throw new Error(props.source === undefined ? "Enter the name of the exchange." : `Enter the name of the ${kind}.`);
      const ends = props.source === undefined ? { source: other, destination: props.destination!, destination_type: props.kind! } : { source: props.source, destination: other, destination_type: kind };
      await send("POST", between({ vhost: props.vhost, ...ends }), { routing_key: key, arguments: table(more, "Arguments") });
      say("The binding is made."); setOther(""); setKey(""); props.done();
    } catch (e) { setError((e as Error).message); }
  }}>
    <div class="fields">
      {props.source !== undefined && <Select label="To a" value={kind} set={(v) => setKind(v as "queue")} of={[["queue", "Queue"], ["exchange", "Exchange"]]} />}
      <Text label={props.source === undefined ? "From exchange" : `Name of the ${kind}`} value={other} set={setOther} />
      <Text label="Routing key" value={key} set={setKey} help="For topics: * stands for one word, # for any number." />
      <Area label="Arguments" value={more} set={setMore} rows={2} placeholder='{"x-match": "all", "tenant": "north"}' wide />
    </div>
    {error && <Note kind="bad">{error}</Note>}
    <div class="row"><button type="submit">Bind</button></div>
  </form>;
}
