/** The worker: integrates the limit, or follows one run of the chain and tells of it piece by piece. */
import { Chain, embed } from "../engine/chain";
import { frame } from "../engine/matrix";
import { Channels, observer } from "../engine/observe";
import { Packing, solve } from "../engine/ode";
import type { GramFactor } from "../engine/wishart";
import type { LimitRequest, Reply, Request, RunRequest } from "./protocol";

const scope = self as unknown as { postMessage(reply: Reply, transfer: Transferable[]): void; onmessage: unknown };
const PIECE_MILLISECONDS = 60;
const STEPS_BETWEEN_LOOKS = 512;

function say(reply: Reply, rows?: Float64Array): void {
  scope.postMessage(reply, rows ? [rows.buffer] : []);
}

function limit({ id, task, start, times }: LimitRequest): void {
  const { states, diverged } = solve(task, start, times);
  const packing = new Packing(task, start.a);
  const observe = observer(task);
  const rows = new Float64Array(states.length * new Channels(task.p, task.k).size);
  states.forEach((state, i) => {
    const { Q, M, a } = packing.unpack(state);
    observe(Q, M, a, rows, i);
  });
  say({ kind: "limit", id, rows, diverged }, rows);
}

let shared: { key: string; factor: GramFactor } | null = null;

/** The Gram factor of a task, kept from run to run. */
function factorOf({ task, dim }: RunRequest): GramFactor {
  const key = JSON.stringify([task.p, task.P, task.batch, dim]);
  if (shared?.key !== key) shared = { key, factor: Chain.factor(task, dim) };
  return shared.factor;
}

function run(request: RunRequest): void {
  const { id, task, start, dim, seed, steps } = request;
  const chain = new Chain(task, dim, embed(start, frame(task.P).inverse), start.a, seed, request.run, factorOf(request));
  const observe = observer(task);
  const { size } = new Channels(task.p, task.k);
  let piece = new Float64Array(steps.length * size);
  let first = 0;
  let told = performance.now();
  const tell = (next: number): void => {
    const rows = piece.slice(0, (next - first) * size);
    say({ kind: "piece", id, run: request.run, first, rows, step: chain.step }, rows);
    first = next;
    told = performance.now();
  };
  for (let i = 0; i < steps.length; i++) {
    while (chain.step < steps[i] && chain.diverged === null) {
      chain.advance(Math.min(steps[i], chain.step + STEPS_BETWEEN_LOOKS));
      if (performance.now() - told > PIECE_MILLISECONDS) tell(i);
    }
    const { Q, M, a } = chain.overlaps();
    observe(Q, M, a, piece, i - first);
  }
  tell(steps.length);
  say({ kind: "done", id, run: request.run, diverged: chain.diverged });
}

scope.onmessage = ({ data }: MessageEvent<Request>): void => {
  try {
    if (data.kind === "limit") limit(data);
    else run(data);
  } catch (error) {
    say({ kind: "failed", id: data.id, message: error instanceof Error ? error.message : String(error) });
  }
};
