/** The session of this browser: whom its cookie names, and whether somebody has to sign in. */

import { useEffect, useState } from "preact/hooks";
import { getJson, UNKNOWN } from "./api";

export interface Session {
  asks: boolean; issuer: string | null; name: string | null; expires: string | null;
  /** Spaces in which the caller has grants; `*` is every one. */
  spaces: string[];
}

/** The session, null before it is known; and true once somebody has to sign in. */
export function useSession(): [Session | null, boolean] {
  const [session, set] = useState<Session | null>(null);
  const [refused, refuse] = useState(false);
  useEffect(() => {
    const asked = () => refuse(true);
    addEventListener(UNKNOWN, asked);
    getJson<Session>("/session").then(set, () => null);
    return () => removeEventListener(UNKNOWN, asked);
  }, []);
  return [session, refused || (session !== null && session.asks && session.name === null)];
}

export async function signOut(): Promise<void> {
  await fetch("/session", { method: "DELETE" });
  location.reload();
}
