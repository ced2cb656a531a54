/** The page's side of the workers: the newest question to the limit, and many runs shared between a few workers. */
import type { Overlaps, Task } from "../engine/task";
import type { DoneReply, LimitReply, PieceReply, Reply, Request, RunRequest } from "./protocol";

export type Spawn = () => Worker;

function ask(worker: Worker, request: Request): void {
  worker.postMessage(request);
}

function crashed(event: ErrorEvent): string {
  return `The computation stopped: ${event.message || "its worker could not be started"}.`;
}

/** Asks one question at a time; of those that come while it waits, only the newest is asked. */
export class LimitClient {
  private worker: Worker;
  private latest = 0;
  private busy = false;
  private waiting: Request | null = null;

  constructor(
    private readonly spawn: Spawn,
    private readonly answered: (reply: LimitReply) => void,
    private readonly failed: (message: string) => void,
  ) {
    this.worker = this.hire();
  }

  solve(task: Task, start: Overlaps, times: Float64Array): void {
    const request: Request = { kind: "limit", id: ++this.latest, task, start, times };
    if (this.busy) this.waiting = request;
    else this.ask(request);
  }

  private hire(): Worker {
    const worker = this.spawn();
    worker.onmessage = ({ data }: MessageEvent<Reply>) => this.hear(data);
    worker.onerror = (event) => {
      event.preventDefault();
      worker.terminate();
      this.worker = this.hire(); // the next question finds a new one
      this.hear({ kind: "failed", id: this.latest, message: crashed(event) });
    };
    return worker;
  }

  private ask(request: Request): void {
    this.busy = true;
    ask(this.worker, request);
  }

  private hear(reply: Reply): void {
    this.busy = false;
    const next = this.waiting;
    this.waiting = null;
    if (next) this.ask(next);
    if (reply.id !== this.latest) return;
    if (reply.kind === "limit") this.answered(reply);
    else if (reply.kind === "failed") this.failed(reply.message);
  }
}

export interface Runs extends Omit<RunRequest, "kind" | "id" | "run"> {
  readonly count: number;
}

export interface RunListener {
  piece(reply: PieceReply): void;
  done(reply: DoneReply): void;
  finished(): void;
  failed(message: string): void;
}

/** Runs of a chain on a few workers; `stop` ends them at once. */
export class RunPool {
  private workers: Worker[] = [];
  private id = 0;

  constructor(
    private readonly spawn: Spawn,
    private readonly size: number,
  ) {}

  get active(): boolean {
    return this.workers.length > 0;
  }

  start({ count, ...request }: Runs, listener: RunListener): void {
    this.stop();
    const id = ++this.id;
    let next = 0;
    let done = 0;
    const give = (worker: Worker): void => {
      if (next < count) ask(worker, { kind: "run", id, run: next++, ...request });
    };
    this.workers = Array.from({ length: Math.min(this.size, count) }, () => {
      const worker = this.spawn();
      worker.onmessage = ({ data }: MessageEvent<Reply>) => {
        if (data.id !== this.id) return;
        if (data.kind === "piece") listener.piece(data);
        else if (data.kind === "done") {
          done += 1;
          give(worker);
          listener.done(data);
          if (done === count) {
            this.stop();
            listener.finished();
          }
        } else if (data.kind === "failed") {
          this.stop();
          listener.failed(data.message);
        }
      };
      worker.onerror = (event) => {
        event.preventDefault();
        this.stop();
        listener.failed(crashed(event));
      };
      give(worker);
      return worker;
    });
  }

  stop(): void {
    this.id += 1;
    for (const worker of this.workers) worker.terminate();
    this.workers = [];
  }
}
