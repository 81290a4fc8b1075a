import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { bytes, bytesPerSecond, NONE, number } from "../lib/format";
import { buildGraph, type GraphMode } from "../lib/graph";
import { ARROW, fitGraph, layoutGraph, type PlacedEdge } from "../lib/layout";
import type { Analysis } from "../lib/schema";
import { Card } from "./Card";
import { useMedia, useSize } from "./hooks";

/** Where the page has a fixed height and the graph its own scroll bar; below it the whole page scrolls. */
const FIXED_PAGE = "(min-width: 1100px) and (min-height: 640px)";
const ZOOM_STEP = 1.15;

interface Props {
  readonly analysis: Analysis;
  readonly mode: GraphMode;
  readonly selected: string | null;
  readonly onInspect: (id: string | null) => void;
  readonly onMode: (mode: GraphMode) => void;
}

export function GraphView({ analysis, mode, selected, onInspect, onMode }: Props): JSX.Element {
  const view = useRef<HTMLDivElement>(null);
  const size = useSize(view) ?? { width: 1000, height: 500 };
  const fixed = useMedia(FIXED_PAGE);
  /** Null: as large as fits. */
  const [zoom, setZoom] = useState<number | null>(null);

  const graph = useMemo(() => buildGraph(analysis, mode), [analysis, mode]);
  const { scale, layout } = useMemo(
    () =>
      zoom === null
        ? fitGraph(graph, { width: size.width, height: fixed ? size.height : Infinity })
        : { scale: zoom, layout: layoutGraph(graph, size.width / zoom) },
    [graph, size.width, size.height, fixed, zoom],
  );
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const binding = analysis.bottleneck?.operator ?? null;
  useEffect(() => scrollTo(view.current, binding), [analysis.run, analysis.host, analysis.pipeline, binding]);

  return (
    <section class="graph" aria-label="Pipeline graph">
      <div class="toolbar">
        <div class="segments" role="group" aria-label="Which graph">
          <button type="button" aria-pressed={mode === "written"} onClick={() => onMode("written")}>
            As written
          </button>
          <button
            type="button"
            aria-pressed={mode === "running"}
            title="After TensorFlow's own rewrites: fused operators are one, dropped ones are gone"
            onClick={() => onMode("running")}
          >
            What runs
          </button>
        </div>
        <Legend />
        <span class="grow" />
        <div class="segments" role="group" aria-label="Zoom">
          <button type="button" aria-label="Zoom out" onClick={() => setZoom(Math.max(0.5, scale / ZOOM_STEP))}>
            −
          </button>
          <button type="button" aria-pressed={zoom === null} onClick={() => setZoom(null)}>
            Fit
          </button>
          <button type="button" aria-label="Zoom in" onClick={() => setZoom(Math.min(2, scale * ZOOM_STEP))}>
            +
          </button>
        </div>
      </div>
      <div class="canvas" ref={view} onKeyDown={(event) => event.key === "Escape" && onInspect(null)}>
        <div class="stretch" style={{ width: `${layout.width * scale}px`, height: `${layout.height * scale}px` }}>
          <div class="drawing" style={{ width: `${layout.width}px`, height: `${layout.height}px`, transform: `scale(${scale})` }}>
            {layout.groups.map(({ group, first, x, y, width, height }) => (
              <div
                key={`${group.id}@${y}`}
                class={`group ${group.kind}`}
                style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }}
              >
                {first &&
                  (group.kind === "fused" && mode === "written" ? (
                    <button type="button" class="group-label" title="Show what TensorFlow runs" onClick={() => onMode("running")}>
                      {group.label}
                    </button>
                  ) : (
                    <span class="group-label">{group.label}</span>
                  ))}
              </div>
            ))}
            <svg class="edges" width={layout.width} height={layout.height} aria-hidden="true">
              {layout.edges.map((edge) => (
                <Edge key={`${edge.edge.from}>${edge.edge.to}`} placed={edge} />
              ))}
            </svg>
            <ul class="cards">
              {layout.nodes.map((placed) => {
                const node = nodes.get(placed.id)!;
                return (
                  <li key={placed.id} style={{ left: `${placed.x}px`, top: `${placed.y}px`, width: `${placed.width}px`, height: `${placed.height}px` }}>
                    <Card node={node} analysis={analysis} selected={selected} onInspect={onInspect} />
                  </li>
                );
              })}
            </ul>
          </div>
        </div>
      </div>
    </section>
  );
}

/** Pixels for a flow: a tenth of a MB/s is a hair, ten times more is 1.7 pixels more, and 9 is the most. */
export function edgeWidth(bytesPerS: number | null): number {
  if (bytesPerS === null || bytesPerS <= 0) return 1.5;
  return Math.min(9, Math.max(1.5, 1.5 + 1.7 * Math.log10(bytesPerS / 1e5)));
}

function Edge({ placed }: { placed: PlacedEdge }): JSX.Element {
  const { edge, path, tip, label } = placed;
  const width = edgeWidth(edge.bytesPerS);
  const back = tip.x - tip.direction * ARROW;
  const half = Math.max(4.5, width);
  const words = [
    `${bytesPerSecond(edge.bytesPerS)} at the observed rate`,
    `${bytes(edge.bytesPerElement)} per element`,
    `${number(edge.elementsPerS)} elements/s`,
  ].join("\n");
  return (
    <g class={`edge ${edge.kind}`}>
      <path class="reach" d={path} />
      <path class="flow" d={path} style={{ strokeWidth: width }} />
      <path class="tip" d={`M${tip.x},${tip.y}L${back},${tip.y - half}V${tip.y + half}Z`} />
      {edge.bytesPerS !== null && edge.bytesPerS > 0 && bytesPerSecond(edge.bytesPerS) !== NONE && (
        <text x={label.x} y={label.y} text-anchor={label.anchor}>
          {bytesPerSecond(edge.bytesPerS)}
        </text>
      )}
      <title>{words}</title>
    </g>
  );
}

function Legend(): JSX.Element {
  return (
    <ul class="legend" aria-label="Legend">
      <li>
        <i class="swatch capacity" /> share of its capacity in use
      </li>
      <li>
        <i class="swatch binds" /> binds
      </li>
      <li>
        <i class="swatch injected" /> added by TensorFlow
      </li>
      <li>
        <i class="swatch suggested" /> suggested
      </li>
      <li>
        <i class="swatch flow" /> bytes/s
      </li>
    </ul>
  );
}

function scrollTo(view: HTMLElement | null, operator: string | null): void {
  if (view === null || operator === null) return;
  const card = [...view.querySelectorAll<HTMLElement>("[data-operator]")].find((element) => element.dataset.operator === operator);
  if (card === undefined) return;
  const outer = view.getBoundingClientRect();
  const inner = card.getBoundingClientRect();
  if (inner.bottom > outer.bottom) view.scrollTop += inner.bottom - outer.bottom + 24;
}
