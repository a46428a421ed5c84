import { useState } from "preact/hooks";
import { Refusal, send } from "../api";
import { useTitle } from "../state";
import type { Session } from "../types";
import { Text } from "../ui/form";
import { Note } from "../ui/parts";
import { Brand, ThemeSwitch } from "../ui/theme";

export function SignIn(props: { done(s: Session): void; over: boolean; problem?: string }) {
  const [name, setName] = useState(""), [password, setPassword] = useState("");
  const [error, setError] = useState(""), [missing, setMissing] = useState(false), [busy, setBusy] = useState(false);
  useTitle("Sign in");
  const submit = async (e: Event) => {
    e.preventDefault();
    if (name === "" || password === "") { setMissing(true); return; }
    setBusy(true); setError("");
    try {
      props.done(await send<Session>("POST", "session", { username: name, password }));
    } catch (e) {
      if (!(e instanceof Refusal)) throw e;
      setError(e.status === 401 && e.kind === "not_authorized" ? "The user name or the password is wrong, or this user may not sign in from here. The user guest may sign in on the node's own machine only."
        : e.status === 401 ? `The user “${name}” may not use the console. An administrator can give it the tag management, monitoring, policymaker or administrator.` : e.message);
      setPassword("");
      setBusy(false);
    }
  };
  return <main class="sign-in">
    <form onSubmit={submit} noValidate>
      <Brand />
      <section class="card"><div class="body stack">
        <h1>Sign in</h1>
        {props.over && !error && <Note kind="warn">Your session is over. Sign in to go on where you were.</Note>}
        {props.problem && !error && <Note kind="bad">{props.problem}</Note>}
        {error && <Note kind="bad">{error}</Note>}
        <Text label="User name" value={name} set={setName} autocomplete="username" autofocus error={missing && name === "" ? "Enter a user name." : undefined} required />
        <Text label="Password" value={password} set={setPassword} type="password" autocomplete="current-password" error={missing && password === "" ? "Enter the password." : undefined} required />
        <button type="submit" class="primary" disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
      </div></section>
      <div class="row apart" style={{ marginTop: "12px" }}><span class="muted small">{location.host}</span><ThemeSwitch /></div>
    </form>
  </main>;
}
