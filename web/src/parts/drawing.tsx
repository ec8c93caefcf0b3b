/** A part of a graph as a picture: nodes in layers, the values between them as arrows; walked by keys. */

import { graphlib, layout } from "@dagrejs/dagre";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { GraphNode, Neighbourhood } from "../api";
import { many, whole } from "../format";

const WIDTH = 196;
const HEIGHT = 48;
/** Characters of a name that fit into a node. */
const LONGEST = 27;

interface Point { x: number; y: number }

interface Props { found: Neighbourhood; chosen: string; onChoose: (path: string) => void; onCentre: (path: string) => void }

export function Drawing({ found, chosen, onChoose, onCentre }: Props) {
  const { places, lines, width, height } = useMemo(() => placed(found), [found]);
  const box = useRef<HTMLDivElement>(null);
  const current = found.nodes.some((node) => node.path === chosen) ? chosen : found.around ?? found.nodes[0]?.path;
  useEffect(() => {
    const middle = places.get(found.around ?? "");
    if (middle) box.current?.scrollTo(middle.x - box.current.clientWidth / 2, middle.y - box.current.clientHeight / 2);
  }, [places]);
  const key = (event: KeyboardEvent, node: GraphNode) => {
    const next = event.key === "Enter" || event.key === " " ? node.path : stepFrom(found, places, node.path, event.key);
    if (next === undefined) return;
    event.preventDefault();
    if (next === node.path && event.shiftKey) return onCentre(next);
    onChoose(next);
    box.current?.querySelector<SVGGElement>(`[data-node="${CSS.escape(next)}"]`)?.focus();
  };
  return (
    <div class="drawing" ref={box}>
      <svg role="group" aria-label="Graph; use the arrow keys to move between nodes" width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8Z" /></marker></defs>
        {lines.map((line, number) => <path key={number} class="wire" d={line} marker-end="url(#tip)" />)}
        {found.nodes.map((node) => {
          const { x, y } = places.get(node.path)!;
          return (
            <g key={node.path} data-node={node.path} role="button" tabindex={node.path === current ? 0 : -1} transform={`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`}
              class={`node${node.path === found.around ? " middle" : ""}${node.path === chosen ? " chosen" : ""}`} aria-pressed={node.path === chosen}
              onClick={() => onChoose(node.path)} onDblClick={() => onCentre(node.path)} onKeyDown={(event) => key(event, node)}>
              <title>{`${node.op} ${node.name || node.path}${node.more ? `, ${many(node.more, "more link")}` : ""}`}</title>
              <rect width={WIDTH} height={HEIGHT} rx={9} />
              {/* The title has the name whole. */}
              <g aria-hidden="true">
                <text class="op" x={12} y={20}>{cut(node.op, 21)}</text>
                <text class="name" x={12} y={37}>{cut(node.name || node.path, LONGEST)}</text>
                {node.more > 0 && <text class="rest" x={WIDTH - 10} y={20} text-anchor="end"><title>{`${many(node.more, "more link")} to nodes not shown here`}</title>+{whole(node.more)}</text>}
                {node.weights.length > 0 && <circle class="held" cx={WIDTH - 14} cy={33} r={4}><title>{`Uses ${many(node.weights.length, "weight")}: ${node.weights.slice(0, 4).join(", ")}${node.weights.length > 4 ? " …" : ""}`}</title></circle>}
              </g>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

/** The end of a long text tells more: names begin alike. */
const cut = (text: string, most: number): string => {
  const signs = [...text];
  return signs.length <= most ? text : `…${signs.slice(1 - most).join("")}`;
};

/** Places of the nodes and lines between them, in layers from above to below. */
function placed(found: Neighbourhood) {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 38, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of found.nodes) graph.setNode(node.path, { width: WIDTH, height: HEIGHT });
  for (const edge of found.edges) if (edge.source !== edge.target) graph.setEdge(edge.source, edge.target);
  layout(graph);
  const places = new Map<string, Point>(found.nodes.map((node) => [node.path, graph.node(node.path) as Point]));
  const lines = graph.edges().map((edge) => curve((graph.edge(edge) as { points: Point[] }).points));
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { places, lines, width: Math.ceil(width), height: Math.ceil(height) };
}

/** A line through `points`, rounded between the first and the last. */
function curve(points: readonly Point[]): string {
  const [first, ...rest] = points;
  const last = rest.pop();
  if (!first || !last) return "";
  const bends = rest.map((point, number) => {
    const next = rest[number + 1] ?? last;
    return `Q${point.x} ${point.y} ${number === rest.length - 1 ? `${last.x} ${last.y}` : `${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`}`;
  });
  return `M${first.x} ${first.y}${bends.join("") || `L${last.x} ${last.y}`}`;
}

/** The node that an arrow key leads to: along a link up or down, to the next of the layer sideways. */
function stepFrom(found: Neighbourhood, places: ReadonlyMap<string, Point>, path: string, key: string): string | undefined {
  if (key === "ArrowUp") return found.edges.find((edge) => edge.target === path && edge.source !== path)?.source;
  if (key === "ArrowDown") return found.edges.find((edge) => edge.source === path && edge.target !== path)?.target;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  const here = places.get(path);
  if (!step || !here) return undefined;
  const beside = [...places].filter(([, place]) => Math.abs(place.y - here.y) < 1 && (place.x - here.x) * step > 0);
  return beside.sort(([, a], [, b]) => (a.x - b.x) * step)[0]?.[0];
}
