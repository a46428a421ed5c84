// What pages share: the session, the virtual host that the user looks at, and how data is asked for again and again.
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { get, raw, Refusal } from "./api";
import type { Session } from "./types";

export interface App { session: Session; vhost: string; setVHost(v: string): void; reloadSession(): Promise<void>; }
export const AppContext = createContext<App>(null as unknown as App);
export function useApp(): App { return useContext(AppContext); }

export function may(session: Session, tag: "administrator" | "monitoring" | "policymaker"): boolean {
  return session.tags.includes("administrator") || session.tags.includes(tag);
}

/** stored is a value that the browser keeps for this user; private windows may refuse to. */
export const stored = {
  get(key: string): string | null { try { return localStorage.getItem("bartleby." + key); } catch { return null; } },
  set(key: string, value: string): void { try { localStorage.setItem("bartleby." + key, value); } catch { /* then not */ } },
};

export interface Polled<T> { data: T | undefined; error: Refusal | undefined; loading: boolean; reload(): void; }

/**
 * usePoll asks for a path now and every so often while the tab is visible. The last data stays when a request fails. A node that
 * answers slowly is asked less often. A null path asks for nothing.
 */
export function usePoll<T>(path: string | null, every = 5000, read: (path: string, signal: AbortSignal) => Promise<T> = get): Polled<T> {
  const [state, set] = useState<{ path: string | null; data?: T; error?: Refusal; loading: boolean }>({ path, loading: path !== null });
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    if (path === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined, asking: AbortController | undefined, ended = false;
    const ask = async () => {
      clearTimeout(timer);
      asking?.abort();
      const mine = asking = new AbortController();
      const began = performance.now();
      try {
        const data = await read(path, mine.signal);
        if (!ended && mine === asking) set({ path, data, loading: false });
      } catch (e) {
        if (ended || mine.signal.aborted) return;
        const error = e instanceof Refusal ? e : new Refusal(0, "", String(e));
        set((s) => ({ path, data: s.path === path && error.status !== 404 && error.status !== 410 ? s.data : undefined, error, loading: false }));
      }
      if (!ended && every > 0 && mine === asking) timer = setTimeout(() => { if (!document.hidden) void ask(); }, Math.max(every, 10 * (performance.now() - began)));
    };
    const visible = () => { if (!document.hidden && every > 0) void ask(); };
    again.current = () => void ask();
    set((s) => s.path === path ? s : { path, loading: true });
    void ask();
    document.addEventListener("visibilitychange", visible);
    return () => { ended = true; clearTimeout(timer); asking?.abort(); document.removeEventListener("visibilitychange", visible); };
  }, [path, every]);
  const reload = useCallback(() => again.current(), []);
  const fresh = state.path === path;
  return { data: fresh ? state.data : undefined, error: fresh ? state.error : undefined, loading: fresh ? state.loading : path !== null, reload };
}

/** events reads server-sent events of a path until they end; each is its name and its data. */
async function events(path: string, signal: AbortSignal, each: (name: string, data: string) => void): Promise<void> {
  const answer = await raw("GET", path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop()!;
    for (const part of parts) {
      const name = /^event: (.*)$/m.exec(part)?.[1], data = /^data: (.*)$/m.exec(part)?.[1];
      if (name && data) each(name, data);
    }
  }
}

/** patience is how long the first event may take: something between that holds events back is no good; again: when to try anew. */
const patience = 4000, again = 15000;

/**
 * useEvents is what a path answers, told again by its events (path/events) whenever it changes, until there will be no more ("end").
 * Where events do not come it asks every so often instead. A hidden tab does neither.
 */
export function useEvents<T>(path: string, event: string, every = 1000): Polled<T> {
  // What was told, and than which answer it is newer.
  const [told, set] = useState<{ path: string; data: T; newer: T | undefined } | undefined>(undefined);
  const [source, setSource] = useState<"asked" | "told" | "over">("asked");
  const polled = usePoll<T>(path, source === "told" ? 0 : source === "over" ? 10 * every : every);
  const asked = useRef<T>(undefined);
  asked.current = polled.data;
  useEffect(() => {
    let asking: AbortController | undefined, timer: ReturnType<typeof setTimeout> | undefined, ended = false;
    const watch = async () => {
      clearTimeout(timer);
      asking?.abort();
      const mine = asking = new AbortController();
      let over = false;
      if (!document.hidden) {
        timer = setTimeout(() => mine.abort(), patience);
        try {
          await events(`${path}/events`, mine.signal, (name, data) => {
            if (ended || mine !== asking) return;
            clearTimeout(timer);
            if (name === "end") over = true;
            if (name !== event) return;
            setSource("told");
            set({ path, data: JSON.parse(data) as T, newer: asked.current });
          });
        } catch { /* then it is asked for */ }
      }
      if (ended || mine !== asking) return;
      setSource(over ? "over" : "asked");
      clearTimeout(timer);
      if (!over && !document.hidden) timer = setTimeout(() => void watch(), again);
    };
    void watch();
    const seen = () => void watch();
    document.addEventListener("visibilitychange", seen);
    return () => { ended = true; clearTimeout(timer); asking?.abort(); document.removeEventListener("visibilitychange", seen); };
  }, [path, event]);
  if (told?.path !== path || source !== "told" && polled.data !== told.newer) return polled;
  return { ...polled, data: told.data, error: source === "told" ? undefined : polled.error, loading: false };
}

/** useNow is the time, renewed so that ages stay true. */
export function useNow(every = 10000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const t = setInterval(() => { if (!document.hidden) set(Date.now()); }, every);
    return () => clearInterval(t);
  }, [every]);
  return now;
}

export function useTitle(title: string): void {
  useEffect(() => { document.title = title ? `${title} · Bartleby` : "Bartleby"; }, [title]);
}
