/** The page: a head, and what the address names. */

import { render } from "preact";
import { lazily } from "./lazily";
import { followLinks, steps, usePlace } from "./place";
import { signOut, useSession } from "./session";

const Library = lazily(() => import("./views/library").then((module) => module.Library));
const Model = lazily(() => import("./views/model").then((module) => module.Model));
const DiffView = lazily(() => import("./views/diff").then((module) => module.DiffView));
const SignIn = lazily(() => import("./views/sign-in").then((module) => module.SignIn));
const Operations = lazily(() => import("./views/operations").then((module) => module.Operations));

function App() {
  usePlace();
  const [session, unknown] = useSession();
  const [first = "", second = "", third = ""] = steps();
  document.title = [second, "Protoslice"].filter(Boolean).join(" — ");
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" href="/"><Mark />Protoslice</a>
        <nav aria-label="Pages">
          <a href="/" aria-current={first === "" ? "page" : undefined}>Library</a>
          <a href="/operations" aria-current={first === "operations" ? "page" : undefined}>Operations</a>
          <a href="/docs">API</a>
        </nav>
        {session?.name && <span class="who"><span dir="auto">{session.name}</span> <button type="button" class="plain" onClick={() => void signOut()}>Sign out</button></span>}
      </header>
      <main id="main" tabIndex={-1}>
        {unknown && <SignIn session={session} />}
        {!unknown && first === "m" && <Model key={second} store={second} tab={third} />}
        {!unknown && first === "diff" && <DiffView key={second} names={second} />}
        {!unknown && first === "operations" && <Operations />}
        {!unknown && first === "" && <Library />}
      </main>
    </>
  );
}

function Mark() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d="M3 5.2 12 1l9 4.2-9 4.2z" /><path d="m3 10 9 4.2 9-4.2v2.6L12 16.8l-9-4.2z" opacity=".75" />
      <path d="m3 15.4 9 4.2 9-4.2V18l-9 4.2L3 18z" opacity=".5" />
    </svg>
  );
}

followLinks();
render(<App />, document.getElementById("app")!);
