/** A line of the last values of a rate; its figure stands beside it as text. */

const [WIDTH, HEIGHT] = [120, 28];

export function Line({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const most = Math.max(...values.map((value) => value ?? 0), Number.MIN_VALUE);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const points = values.map((value, n) => `${(n * step).toFixed(1)},${(HEIGHT - 2 - ((value ?? 0) / most) * (HEIGHT - 4)).toFixed(1)}`);
  return (
    <svg class="line" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {points.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}
