/** A histogram as bars, with its figures as the text for those who do not see it. */

import { useState } from "preact/hooks";
import type { Histogram } from "../api";
import { figure, whole } from "../format";

export function Bars({ histogram }: { histogram: Histogram }) {
  const { start, width, counts } = histogram;
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(...counts, 1);
  const border = (number: number) => figure(start + width * number);
  const label = `Histogram of ${counts.length} bins from ${border(0)} to ${border(counts.length)}; the largest bin has ${whole(most)} elements and starts at ${border(counts.indexOf(most))}`;
  return (
    <figure class="bars">
      <svg viewBox={`0 0 ${counts.length} 40`} preserveAspectRatio="none" role="img" aria-label={label}
        onMouseLeave={() => setAt(null)}>
        {counts.map((count, number) => {
          const height = count ? Math.max(0.6, (40 * count) / most) : 0;
          return (
            <g key={number} onMouseEnter={() => setAt(number)}>
              <rect class="back" x={number} y={0} width={1} height={40} />
              <rect class={number === at ? "bar on" : "bar"} x={number + 0.06} y={40 - height} width={0.88} height={height} />
            </g>
          );
        })}
      </svg>
      <figcaption class="soft">
        <span>{border(0)}</span>
        <span>{at === null ? "" : `${border(at)} … ${border(at + 1)}: ${whole(counts[at] ?? 0)}`}</span>
        <span>{border(counts.length)}</span>
      </figcaption>
    </figure>
  );
}
