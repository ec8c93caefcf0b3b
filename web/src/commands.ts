/** Commands and code that people copy: every name in them is quoted here, as its author may have chosen it to do harm. */

/** One word of a shell. */
export const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** A command line of a shell, out of its words. */
export const shell = (...words: readonly string[]): string => words.map(quoted).join(" ");

/** A text as Python writes it: a JSON string is one. */
export const python = (text: string): string => JSON.stringify(text);

/** A name for a downloaded file: the last of its path, neither hidden nor an option. */
export const fileName = (path: string): string => path.split("/").pop()!.replace(/^[.~-]+/, "") || "model";
