// Who made a letter die, and how it stands with masks.
import { count } from "../format";
import { to } from "../router";
import { useApp } from "../state";
import type { Letter, RejectedBy } from "../types";
import { Check } from "../ui/form";
import { Facts, Note } from "../ui/parts";
import type { ComponentChildren } from "preact";

/** Who says which consumer let the letter die, as far as that is known. */
export function Who(props: { by: RejectedBy | null | undefined }) {
  const { by } = props;
  if (!by) return null;
  const facts: [string, ComponentChildren][] = [];
  const add = (label: string, v: ComponentChildren) => { facts.push([label, v]); };
  if (by.consumer_tag) add("Consumer", <code class="name">{by.consumer_tag}</code>);
  if (by.product || by.version) add("Client", <span class="name">{[by.product, by.version].filter(Boolean).join(" ")}</span>);
  if (by.connection || by.connection_name) add("Connection", <>{by.connection_name && <b class="name">{by.connection_name} </b>}{by.connection ? <a class="name" href={to(["connections", by.connection])} title="It may be closed by now">{by.connection}</a> : null}</>);
  if (by.peer && !by.connection?.startsWith(by.peer)) add("Address", <code class="name">{by.peer}</code>);
  if (by.user) add("User", <span class="name">{by.user}</span>);
  const known = facts.length > 0; // of who got a message by the management API, nothing is
  if (by.delivery_count) add("Failed", <>{by.delivery_count === 1 ? "once" : `${count(by.delivery_count)} times`}</>); // of deliveries, as x-delivery-count
  if (facts.length === 0) return null;
  return <section class="stack tight">{known && <h3>Rejected by</h3>}<Facts of={facts} /></section>;
}

/** Masked says that values are hidden, and lets who may see them. */
export function Masked(props: { letter: Letter; revealed: boolean; reveal(): void }) {
  const { session } = useApp();
  if (props.revealed) return <Note kind="warn">What is masked here is shown to you. The audit has recorded that you asked.</Note>;
  if (!props.letter.masked) return null;
  const may = session.tags.includes("reveal"); // nobody sees masked values by another tag
  return <Note><div class="row apart"><span><b>Some values are hidden.</b> They are shown as •••, as the masks of <b class="name">{props.letter.vhost}</b> say. {may ? "If you ask for them, the audit records it." : "Who has the tag reveal sees them."}</span>{may && <button onClick={props.reveal}>Reveal</button>}</div></Note>;
}

/**
 * Reveal lets who has the tag see what masks hide in a list, until the page is left: it says so for as long as it does, and the list stands
 * still, since the audit records each question.
 */
export function Reveal(props: { on: boolean; set(on: boolean): void; again?(): void }) {
  const { session } = useApp();
  if (!session.tags.includes("reveal")) return null;
  if (!props.on) return <div class="reveal"><Check label="Show what masks hide" value={false} set={props.set} /></div>;
  return <div class="reveal"><Note kind="warn"><div class="row apart">
    <Check label="Show what masks hide" value set={props.set} help="Hidden values are shown to you. The audit has recorded that you asked; the list stands still meanwhile." />
    {props.again && <button type="button" onClick={props.again}>Ask again</button>}
  </div></Note></div>;
}
