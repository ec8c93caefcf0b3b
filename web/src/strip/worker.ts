/** Lays out blocks in a worker, so that the page stays responsive. */

import { planOf, type Task } from "./layout";

const scope = self as unknown as { onmessage: (event: MessageEvent<[number, Task]>) => void; postMessage: (answer: unknown) => void };
scope.onmessage = ({ data: [number, task] }) => scope.postMessage([number, planOf(task)]);
