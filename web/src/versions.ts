/** Versions: stores whose tags begin with one name, such as `bert:1` and `bert:2`. */

import type { Store } from "./api";

/** The tag that names a store: one that tells a version before others; its id where it has none. */
export const nameOf = ({ id, tags }: Store): string => tags.find((tag) => tag.includes(":")) ?? tags[0] ?? id;
export const familyOf = (name: string): string => name.split(":")[0]!;
export const versionOf = (name: string): string => name.slice(familyOf(name).length + 1);

const NUMBERS = new Intl.Collator("en", { numeric: true });

/** The newest first; of those of one second the one with the later name. */
export const byAge = (a: Store, b: Store): number =>
  Date.parse(b.created) - Date.parse(a.created) || NUMBERS.compare(nameOf(b), nameOf(a));
