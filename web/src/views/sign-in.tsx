/** Signing in: at the issuer that the service names, or with a token. */

import { useState } from "preact/hooks";
import { failure } from "../api";
import { Trouble } from "../loading";
import type { Session } from "../session";

export function SignIn({ session }: { session: Session | null }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const enter = async () => {
    const headers = { "content-type": "application/json", accept: "application/json" };
    const answer = await fetch("/session", { method: "POST", headers, body: JSON.stringify({ token: token.trim() }) });
    if (answer.ok) location.reload();
    else setError(await failure(answer));
  };
  const next = encodeURIComponent(location.pathname + location.search);
  return (
    <section class="sign-in">
      <h1>Sign in</h1>
      <p class="soft">Sign in to continue.</p>
      {session?.issuer && <p><a class="button" href={`/session/login?next=${next}`}>Sign in with {new URL(session.issuer).host}</a></p>}
      <form onSubmit={(event) => { event.preventDefault(); enter().catch(setError); }}>
        <label>{session?.issuer ? "Or with a token" : "Token"}
          <input type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button>Sign in</button>
      </form>
      {error && <Trouble error={error} />}
      <p class="soft hint">Ask an administrator for a token: <code>protoslice token create</code>.</p>
    </section>
  );
}
