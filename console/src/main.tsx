// The console of Bartleby: pages over the management API and the Dead Letter Office.
import { Component, render } from "preact";
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { get, onSignedOut, raw, Refusal, words } from "./api";
import { Page, sections } from "./pages/pages";
import { SignIn } from "./pages/signin";
import { useRoute } from "./router";
import { AppContext, stored } from "./state";
import type { Session } from "./types";
import "./style.css";
import { IconButton, Loading, Note } from "./ui/parts";
import { Brand, ThemeSwitch, applyTheme } from "./ui/theme";
import { complain, Toasts } from "./ui/toast";

function Root() {
  const [session, setSession] = useState<Session | null | undefined>(undefined); // undefined: not known yet
  const [over, setOver] = useState(false), [problem, setProblem] = useState("");
  const reloadSession = useCallback(async () => { setSession(await get<Session>("session")); }, []);
  useEffect(() => {
    onSignedOut(() => setSession((s) => { if (s) setOver(true); return null; }));
    get<Session>("session").then(setSession, (e) => { setSession(null); if (!(e instanceof Refusal && e.status === 401)) setProblem(words(e)); });
  }, []);
  if (session === undefined) return <Loading />;
  if (session === null) return <SignIn over={over} problem={problem} done={(s) => { setOver(false); setProblem(""); setSession(s); }} />;
  return <Frame session={session} reloadSession={reloadSession} signOut={async () => {
    try { await raw("DELETE", "session"); setOver(false); setSession(null); } catch (e) { complain("Signing out failed", e); }
  }} />;
}

function Frame(props: { session: Session; reloadSession(): Promise<void>; signOut(): void }) {
  const { session } = props;
  const route = useRoute();
  const key = "vhost." + session.name;
  const [vhost, set] = useState(() => { const kept = stored.get(key) ?? ""; return session.vhosts.includes(kept) ? kept : ""; });
  const [open, setOpen] = useState(false);
  // A group is a row of the inbox, and stands under it.
  const here = route.path[0] === "letters" && route.params.get("group") ? "inbox" : route.path[0] ?? "";
  const hash = location.hash;
  useEffect(() => { setOpen(false); }, [hash]);
  useEffect(() => { window.scrollTo(0, 0); }, [route.path.join("/")]);
  const app = useMemo(() => ({ session, vhost, setVHost: (v: string) => { stored.set(key, v); set(v); }, reloadSession: props.reloadSession }), [session, vhost]);
  return <AppContext.Provider value={app}>
    <a class="visually-hidden skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the page</a>
    <div class="frame">
      <header class="top">
        <IconButton name={open ? "close" : "menu"} class="quiet icon menu-button" label={open ? "Close the menu" : "Menu"} aria-expanded={open} onClick={() => setOpen(!open)} />
        <Brand href="#/" />
        <span class="cluster" title={session.node}>{session.cluster_name}</span>
        <span class="grow" />
        <label class="visually-hidden" for="vhost">Virtual host</label>
        <select id="vhost" class="vhost-select" value={vhost} onChange={(e) => app.setVHost(e.currentTarget.value)}>
          <option value="">All virtual hosts</option>
          {session.vhosts.map((v) => <option key={v} value={v}>{v}</option>)}
        </select>
        <ThemeSwitch />
        <span class="muted small user" title={`Tags: ${session.tags.join(", ") || "none"}`}>{session.name}</span>
        <IconButton name="out" label="Sign out" onClick={props.signOut} />
      </header>
      <nav class={`nav ${open ? "open" : ""}`} aria-label="Pages">
        {sections(session).map((s) => <>
          {s.title && <h2>{s.title}</h2>}
          <ul>{s.pages.map((p) => <li key={p.path}><a href={`#/${p.path}`} aria-current={p.path === here || p.also?.includes(here) ? "page" : undefined}>{p.title}</a></li>)}</ul>
        </>)}
      </nav>
      <main class="main" id="main" tabIndex={-1}>
        <Boundary key={route.path.join("/")}><Page route={route} /></Boundary>
      </main>
    </div>
  </AppContext.Provider>;
}

/** Boundary keeps a fault of one page from taking the others with it. */
class Boundary extends Component<{ children: ComponentChildren }, { error?: unknown }> {
  static getDerivedStateFromError(error: unknown) { return { error }; }
  override componentDidCatch(error: unknown) { console.error(error); }
  render() {
    if (this.state.error === undefined) return this.props.children;
    return <Note kind="bad" title="This page has a fault">{words(this.state.error)} <a href="#/">Go to the overview</a>, or reload the page.</Note>;
  }
}

applyTheme();
render(<><Root /><Toasts /></>, document.getElementById("app")!);
