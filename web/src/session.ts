/** The session of this browser: whom its cookie names, and whether somebody has to sign in. */

import { useEffect, useState } from "preact/hooks";
import { getJson, signedIn, UNKNOWN } from "./api";
import { SPACE } from "./place";

export interface Session {
  asks: boolean; issuer: string | null; name: string | null; expires: string | null;
  /** Spaces in which the caller has grants; `*` is every one. */
  spaces: string[];
  /** What the caller may do in each of them. */
  scopes: Record<string, string[]>;
}

let asked: Promise<Session> | null = null;
const known = (): Promise<Session> => (asked ??= getJson<Session>("/session"));

/** True where the caller may do what a scope allows; a token may be limited to some tags beyond that. */
export async function allows(scope: "write" | "delete"): Promise<boolean> {
  const { asks, scopes } = await known();
  const own = [...(scopes["*"] ?? []), ...(scopes[SPACE.split("/")[2] ?? "default"] ?? [])];
  return !asks || own.includes(scope) || own.includes("admin");
}

/** The session, null before it is known; whether the person has to sign in; and what to call once they have, or decline. */
export function useSession(): [Session | null, boolean, (done: boolean) => void] {
  const [session, set] = useState<Session | null>(null);
  const [refused, refuse] = useState(false);
  const finish = (done: boolean) => { refuse(false); signedIn(done); };
  /** Ask who this is now: the person may have signed in, here or in another window. */
  const look = async () => {
    asked = null;
    const found = await known();
    set(found);
    if (found.name !== null) finish(true);
  };
  useEffect(() => {
    const ask = () => refuse(true);
    addEventListener(UNKNOWN, ask);
    known().then(set, () => null);
    return () => removeEventListener(UNKNOWN, ask);
  }, []);
  const asks = refused || (session !== null && session.asks && session.name === null);
  useEffect(() => {
    if (!asks) return;
    const back = () => void look().catch(() => null);
    addEventListener("focus", back);
    return () => removeEventListener("focus", back);
  }, [asks]);
  return [session, asks, (done) => { if (done) void look(); else finish(false); }];
}

export async function signOut(): Promise<void> {
  await fetch("/session", { method: "DELETE" });
  location.reload();
}
