/**
 * Markdown of strangers as elements: the common part of it, without HTML, pictures or addresses other than of the web.
 *
 * Its text may be made to be slow: lines are cut, quotes nest up to a depth, and no expression looks further than a bound.
 */

import { Component, type ComponentChildren } from "preact";

/** The longest line that is read, in characters. */
const LONGEST = 2048;
/** Quotes within quotes; deeper ones are text. */
const DEEPEST = 8;

/** The text as blocks: headings, lists, tables, code, quotes and paragraphs. */
export class Markdown extends Component<{ text: string }, { failed: boolean }> {
  static override getDerivedStateFromError() { return { failed: true }; }

  override state = { failed: false };

  override render() {
    const { text } = this.props;
    return this.state.failed ? <pre class="markdown" dir="auto">{text}</pre> : <div class="markdown" dir="auto"><Blocks text={text} /></div>;
  }
}

const Blocks = ({ text }: { text: string }) => <>{blocks(withoutFront(text).split(/\r?\n/).map(cut), 0)}</>;
const cut = (line: string): string => line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line;

/** The first sentence outside headings, for a summary. */
export function firstWords(text: string): string {
  const lines = withoutFront(text).split(/\r?\n/).map((line) => cut(line).replace(/^#+\s*/, "").trim());
  return plain(lines.find((line) => /\p{L}/u.test(line) && !/^[<![|>]/.test(line)) ?? "").slice(0, 160);
}

/** Model cards begin with metadata between lines of dashes. */
const withoutFront = (text: string): string => text.replace(/^---\r?\n[\s\S]*?\r?\n---\r?\n/, "");
const plain = (text: string): string => text.replace(/[*_`]+/g, "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");

const ITEM = /^(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)$/;
const HEADING = /^(#{1,6})\s+(?=\S)/;
const FENCE = /^\s{0,3}(```|~~~)/;
const ROW = /^\s*\|(.+)\|\s*$/;

function blocks(lines: readonly string[], depth: number): ComponentChildren[] {
  const found: ComponentChildren[] = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at]!;
    const fence = FENCE.exec(line)?.[1];
    const heading = HEADING.exec(line);
    const take = (fits: (line: string) => boolean): string[] => {
      const begin = at;
      while (at < lines.length && fits(lines[at]!)) at += 1;
      return lines.slice(begin, at);
    };
    if (fence) {
      at += 1;
      const code = take((each) => !each.trim().startsWith(fence));
      at += 1;
      found.push(<pre tabIndex={0}><code>{code.join("\n")}</code></pre>);
    } else if (heading) {
      at += 1;
      // The page already has a heading above these.
      const Level = `h${Math.min(heading[1]!.length + 1, 6)}` as "h2";
      found.push(<Level>{inline(line.slice(heading[0].length).replace(/ #+ *$/, ""))}</Level>);
    } else if (ITEM.test(line)) {
      const items = take((each) => ITEM.test(each) || /^\s+\S/.test(each));
      found.push(<List lines={items} ordered={/^\s*\d/.test(line)} />);
    } else if (ROW.test(line)) {
      found.push(<Table rows={take((each) => ROW.test(each))} />);
    } else if (depth < DEEPEST && /^\s*>/.test(line)) {
      const quoted = take((each) => /^\s*>/.test(each)).map((each) => each.replace(/^\s*> ?/, ""));
      found.push(<blockquote>{blocks(quoted, depth + 1)}</blockquote>);
    } else if (!line.trim()) at += 1;
    else found.push(<p>{inline([lines[at++]!, ...take((each) => !!each.trim() && !HEADING.test(each) && !FENCE.test(each) && !ITEM.test(each) && !ROW.test(each))].join("\n"))}</p>);
  }
  return found;
}

function List({ lines, ordered }: { lines: readonly string[]; ordered: boolean }) {
  const items: string[] = [];
  for (const line of lines) {
    const item = ITEM.exec(line)?.[2];
    if (item !== undefined) items.push(item);
    else items.push(`${items.pop() ?? ""}\n${line.trim()}`);
  }
  const shown = items.map((item, n) => <li key={n}>{inline(item)}</li>);
  return ordered ? <ol>{shown}</ol> : <ul>{shown}</ul>;
}

function Table({ rows }: { rows: readonly string[] }) {
  const cells = rows.map((row) => ROW.exec(row)![1]!.split("|").map((cell) => cell.trim()));
  const headed = cells[1]?.every((cell) => /^:?-+:?$/.test(cell));
  const [head, ...body] = headed ? [cells[0]!, ...cells.slice(2)] : [null, ...cells];
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table">
      <table>
        {head && <thead><tr>{head.map((cell, n) => <th key={n}>{inline(cell)}</th>)}</tr></thead>}
        <tbody>{body.map((row, n) => <tr key={n}>{row!.map((cell, m) => <td key={m}>{inline(cell)}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

const INLINE = /`([^`]{1,999})`|!?\[([^\]]{0,999})\]\(([^\s()]{0,999}(?:\([^\s()]{0,99}\)[^\s()]{0,99})?)(?:\s{1,9}"[^"]{0,999}")?\)|\*\*(?=\S)([^*]{1,999})\*\*|\*(?=\S)([^*]{1,999})\*|<(https?:\/\/[^>\s]{1,999})>/;

/** Text with code, links and emphasis; anything else is text. */
function inline(text: string): ComponentChildren[] {
  const found: ComponentChildren[] = [];
  for (let match = INLINE.exec(text); match; match = INLINE.exec(text)) {
    const [whole, code, label, place, strong, weak, bare] = match;
    found.push(text.slice(0, match.index));
    if (code !== undefined) found.push(<code>{code}</code>);
    else if (label !== undefined || bare !== undefined) found.push(<Link place={place ?? bare ?? ""} label={label ?? bare ?? ""} />);
    else if (strong !== undefined) found.push(<strong>{inline(strong)}</strong>);
    else found.push(<em>{inline(weak!)}</em>);
    text = text.slice(match.index + whole.length);
  }
  found.push(text);
  return found;
}

/** A link to another site; one to anything else, such as a neighbouring file, is text. */
function Link({ place, label }: { place: string; label: string }) {
  if (!/^https?:\/\//i.test(place)) return <>{label}</>;
  return <a href={place} rel="noopener noreferrer nofollow" target="_blank">{label || place}</a>;
}
