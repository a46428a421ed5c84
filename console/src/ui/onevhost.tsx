// Pages that show one virtual host: the one in their address, else the one that the user looks at, else the first.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { go, to } from "../router";
import { useApp } from "../state";

/** useOneVHost returns the virtual host, and where all are looked at the field to choose another. */
export function useOneVHost(page: string, named: string | undefined): { vhost: string | undefined; choice: ComponentChildren } {
  const { session, vhost: looked } = useApp();
  const id = useId(), before = useRef(looked);
  useEffect(() => {
    if (looked !== before.current && looked !== "" && named !== undefined && named !== looked) go(to([page, looked]));
    before.current = looked;
  }, [looked]);
  const vhost = named ?? (looked || session.vhosts[0]);
  const choice = session.vhosts.length > 1 && <div class="row"><label for={id} class="muted">of virtual host</label>
    <select id={id} value={vhost} onChange={(e) => go(to([page, e.currentTarget.value]))}>{(vhost !== undefined && !session.vhosts.includes(vhost) ? [vhost, ...session.vhosts] : session.vhosts).map((v) => <option key={v} value={v}>{v}</option>)}</select></div>;
  return { vhost, choice };
}

/** NoVHost is what such a page shows to who sees none. */
export function NoVHost() { return <div class="empty"><h2>You see no virtual host</h2><p>An administrator gives permissions in virtual hosts, on the page of a user.</p></div>; }
