/** Models that were deleted in this tab and can be restored. */

import { SPACE } from "./place";

export interface Removal { id: string; was: string; title: string; until: string }

const KEY = `removed${SPACE}`;
const MOST = 20;

/** The latest first, as long as they can be restored. */
export function removals(): Removal[] {
  const noted = JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as Removal[];
  return noted.filter(({ until }) => Date.parse(until) > Date.now());
}

const keep = (noted: readonly Removal[]): void => sessionStorage.setItem(KEY, JSON.stringify(noted.slice(0, MOST)));
export const noteRemoval = (removal: Removal): void => keep([removal, ...removals().filter(({ id }) => id !== removal.id)]);
export const forgetRemoval = (gone: string): void => keep(removals().filter(({ id }) => id !== gone));
