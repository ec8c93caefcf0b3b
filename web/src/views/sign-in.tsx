/** Signing in: at the issuer that the service names, or with a token. */

import { useEffect, useRef, useState } from "preact/hooks";
import { failure } from "../api";
import { Trouble } from "../loading";
import type { Session } from "../session";

/** The form; `over` the page of a session that has ended, which keeps what it has. */
export function SignIn({ session, over = false, onDone }: { session: Session | null; over?: boolean; onDone: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => { if (over) field.current!.focus(); }, []);
  const [token, setToken] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const enter = async () => {
    const headers = { "content-type": "application/json", accept: "application/json" };
    const answer = await fetch("/session", { method: "POST", headers, body: JSON.stringify({ token: token.trim() }) });
    if (answer.ok) onDone();
    else setError(await failure(answer));
  };
  const next = encodeURIComponent(location.pathname + location.search);
  return (
    <section class="sign-in">
      <h1>Sign in</h1>
      <p class="soft" data-said={over || undefined}>{over ? "Your session has ended. Sign in to continue: nothing on this page is lost." : "Sign in to continue."}</p>
      {session?.issuer && <p><a class="button" href={`/session/login?next=${next}`} target={over ? "_blank" : undefined}>Sign in with {new URL(session.issuer).host}</a></p>}
      <form onSubmit={(event) => { event.preventDefault(); enter().catch(setError); }}>
        <label>{session?.issuer ? "Or with a token" : "Token"}
          <input ref={field} type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button>Sign in</button>
      </form>
      {error && <Trouble error={error} />}
      <p class="soft hint">Ask an administrator for a token: <code>protoslice token create</code>.</p>
    </section>
  );
}
