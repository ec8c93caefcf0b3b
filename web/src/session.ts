/** The session of this browser: whom its cookie names, and whether somebody has to sign in. */

import { useEffect, useState } from "preact/hooks";
import { getJson, UNKNOWN } from "./api";
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

/** The session, null before it is known; and true once somebody has to sign in. */
export function useSession(): [Session | null, boolean] {
  const [session, set] = useState<Session | null>(null);
  const [refused, refuse] = useState(false);
  useEffect(() => {
    const asked = () => refuse(true);
    addEventListener(UNKNOWN, asked);
    known().then(set, () => null);
    return () => removeEventListener(UNKNOWN, asked);
  }, []);
  return [session, refused || (session !== null && session.asks && session.name === null)];
}

export async function signOut(): Promise<void> {
  await fetch("/session", { method: "DELETE" });
  location.reload();
}
