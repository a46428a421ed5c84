// Requests to the management API of the node that serves the console.

/** Refusal is an answer that is no success, in words for a reader. */
export class Refusal extends Error {
  constructor(readonly status: number, readonly kind: string, reason: string) {
    super(reason);
  }
}

/** out is called when the session is over. */
let out: () => void = () => {};
export function onSignedOut(f: () => void): void { out = f; }

function reasonOf(status: number, text: string): Refusal {
  let kind = "", reason = "";
  try {
    const body = JSON.parse(text) as { error?: unknown; reason?: unknown };
    kind = typeof body.error === "string" ? body.error : "";
    reason = typeof body.reason === "string" ? body.reason : body.reason === undefined ? "" : JSON.stringify(body.reason);
  } catch { /* a proxy's page */ }
  if (!reason) reason = `the node answered with status ${status}`;
  if (reason === "Access refused.") reason = "Your permissions in this virtual host do not allow it. An administrator sees and changes them on the page of your user.";
  else if (reason === "Not administrator user") reason = "Only users with the tag administrator may do this.";
  else if (kind === "not_authorised" && status === 401) reason = `You may not do this: ${reason}`;
  if (reason === "Not Found") reason = "It does not exist, or you may not see it.";
  return new Refusal(status, kind, reason);
}

export interface Asked { body?: unknown; headers?: Record<string, string>; signal?: AbortSignal; }

/** raw sends a request and returns the answer if it is a success. path is below api/, which is beside the page: a prefix may be before both. */
export async function raw(method: string, path: string, asked: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = { "X-Bartleby-Session": "1", ...asked.headers };
  let body: string | Blob | undefined;
  if (asked.body !== undefined) {
    headers["Content-Type"] ??= "application/json";
    body = typeof asked.body === "string" || asked.body instanceof Blob ? asked.body : JSON.stringify(asked.body);
  }
  let answer: Response;
  try {
    answer = await fetch("api/" + path, { method, headers, body, signal: asked.signal, credentials: "same-origin" });
  } catch (e) {
    if (asked.signal?.aborted) throw e;
    throw new Refusal(0, "unreachable", "The node does not answer. It may be starting, or the network is down.");
  }
  if (answer.ok) return answer;
  const refusal = reasonOf(answer.status, await answer.text());
  if (answer.status === 401 && refusal.kind === "not_authorized" && path !== "session") out();
  throw refusal;
}

export async function send<T = unknown>(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
  const answer = await raw(method, path, { body, headers });
  const text = await answer.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await raw("GET", path, { signal })).json() as Promise<T>;
}

/** p encodes names as segments of a path: p`queues/${vhost}/${name}`. */
export function p(fixed: TemplateStringsArray, ...names: string[]): string {
  return fixed.reduce((path, part, i) => path + part + (i < names.length ? encodeURIComponent(names[i]!) : ""), "");
}

export function query(values: Record<string, string | number | boolean | undefined | null>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(values)) if (v !== undefined && v !== null && v !== "" && v !== false) q.set(k, String(v));
  const text = q.toString();
  return text ? "?" + text : "";
}

/** words is an error for a reader. */
export function words(e: unknown): string { return e instanceof Error ? e.message : String(e); }
