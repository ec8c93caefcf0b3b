/** The page: a head, and what the address names. */

import { render } from "preact";
import { useEffect } from "preact/hooks";
import { Drawer, keepFocus } from "./focus";
import { lazily } from "./loading";
import { followLinks, SPACE, steps, usePlace } from "./place";
import { signOut, useSession, type Session } from "./session";

const Library = lazily(() => import("./views/library").then((module) => module.Library), true);
const Model = lazily(() => import("./views/model").then((module) => module.Model), true);
const DiffView = lazily(() => import("./views/diff").then((module) => module.DiffView), true);
const SignIn = lazily(() => import("./views/sign-in").then((module) => module.SignIn));
const Operations = lazily(() => import("./views/operations").then((module) => module.Operations), true);

function App() {
  usePlace();
  const [session, asks, onSignIn] = useSession();
  // A session that ends leaves the page as it is, below the form.
  const ended = asks && !!session?.name;
  const unknown = asks && !ended;
  const [first = "", second = "", third = ""] = steps();
  const lost = !unknown && !!session?.name && !session.spaces.includes("*") && !session.spaces.includes(HERE);
  const shown = !unknown && !lost;
  // A model sets its own title.
  useEffect(() => { if (first !== "m") document.title = [second, "Protoslice"].filter(Boolean).join(" — "); }, [first, second]);
  return (
    <>
      <a class="skip" href="#main" inert={ended}>Skip to the content</a>
      <header class="top" inert={ended}>
        <a class="brand" href={`${SPACE}/`}><Mark />Protoslice</a>
        <nav aria-label="Pages">
          <a href={`${SPACE}/`} aria-current={first === "" ? "page" : undefined}>Library</a>
          <a href={`${SPACE}/operations`} aria-current={first === "operations" ? "page" : undefined}>Operations</a>
          <a href="/docs">API</a>
        </nav>
        {session && <Spaces names={session.spaces} />}
        {session?.name && <span class="who"><span dir="auto">{session.name}</span> <button type="button" class="plain" onClick={() => void signOut()}>Sign out</button></span>}
      </header>
      <main id="main" tabIndex={-1} inert={ended}>
        {unknown && <SignIn session={session} onDone={() => onSignIn(true)} />}
        {lost && <Lost session={session} />}
        {shown && first === "m" && <Model key={second} store={second} tab={third} />}
        {shown && first === "diff" && <DiffView key={second} names={second} />}
        {shown && first === "operations" && <Operations />}
        {shown && first === "" && <Library />}
      </main>
      {ended && <Drawer label="Sign in" kind="over" onClose={() => onSignIn(false)}><SignIn session={session} over onDone={() => onSignIn(true)} /></Drawer>}
    </>
  );
}

/** The spaces of the person, where there is another one than this. */
function Spaces({ names }: { names: readonly string[] }) {
  // Who may enter every space is shown those that are named, and the way back.
  const all = [...new Set([HERE, ...names.map((name) => (name === "*" ? "default" : name))])].sort();
  if (all.length < 2) return null;
  return (
    <select aria-label="Space" value={HERE} onChange={(event) => location.assign(homeOf(event.currentTarget.value))}>
      {all.map((name) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
}

/** For a person who may do nothing in this space. */
function Lost({ session: { name, spaces } }: { session: Session }) {
  return (
    <section class="sign-in">
      <h1>You don't have access to {HERE}</h1>
      <p><b dir="auto">{name}</b> has no access to this space. {spaces.length ? "Your spaces:" : "Ask the operator of this service for access."}</p>
      {spaces.map((each) => <p key={each}><a class="button" href={homeOf(each)}>{each}</a></p>)}
    </section>
  );
}

const HERE = SPACE.split("/")[2] ?? "default";
const homeOf = (space: string): string => (space === "default" ? "/" : `/spaces/${space}/`);

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
keepFocus(document.getElementById("app")!);
