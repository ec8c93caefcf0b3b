/** Layouts from the worker: the last one asked for counts. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Plan, Task } from "./layout";

/** The worker's file, which the build names; workers come from the page's own origin alone. */
declare const WORKER: string;

interface Policy { createScriptURL: (url: string) => string }
declare const trustedTypes: { createPolicy: (name: string, rules: Policy) => Policy } | undefined;

/** The one URL that becomes a script; the Content-Security-Policy names this policy. */
const trusted = (url: string): string => {
  const factory = typeof trustedTypes === "undefined" ? undefined : trustedTypes;
  return factory ? (policy ??= factory.createPolicy("strip", { createScriptURL: (given) => new URL(WORKER, import.meta.url).href === given ? given : "" })).createScriptURL(url) : url;
};
let policy: Policy | undefined;

/** The plan of the last task, with what was given along with it. */
export function usePlan<T>(task: Task | null, along: T): { plan: Plan; along: T } | null {
  const [done, set] = useState<{ plan: Plan; along: T } | null>(null);
  const worker = useRef<Worker | null>(null);
  const asked = useRef({ number: 0, along });
  useEffect(() => {
    worker.current = new Worker(trusted(new URL(WORKER, import.meta.url).href));
    worker.current.onmessage = ({ data: [number, plan] }: MessageEvent<[number, Plan]>) => { if (number === asked.current.number) set({ plan, along: asked.current.along }); };
    return () => worker.current?.terminate();
  }, []);
  useEffect(() => {
    if (!task) return;
    asked.current = { number: asked.current.number + 1, along };
    worker.current?.postMessage([asked.current.number, task]);
  }, [task]);
  return done;
}
