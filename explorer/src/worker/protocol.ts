/** What page and workers say to each other. Rows are those of `observe.ts`. */
import type { Overlaps, Task } from "../engine/task";

export interface LimitRequest {
  readonly kind: "limit";
  readonly id: number;
  readonly task: Task;
  readonly start: Overlaps;
  readonly times: Float64Array;
}

export interface RunRequest {
  readonly kind: "run";
  readonly id: number;
  readonly task: Task;
  readonly start: Overlaps;
  readonly dim: number;
  readonly seed: number;
  /** Number of the run. */
  readonly run: number;
  /** Steps at which it is recorded, increasing from 0. */
  readonly steps: Float64Array;
}

export type Request = LimitRequest | RunRequest;

export interface LimitReply {
  readonly kind: "limit";
  readonly id: number;
  /** Rows at the times that were reached. */
  readonly rows: Float64Array;
  readonly diverged: number | null;
}

/** A piece of a run: rows from number `first` on. */
export interface PieceReply {
  readonly kind: "piece";
  readonly id: number;
  readonly run: number;
  readonly first: number;
  readonly rows: Float64Array;
  /** Steps taken so far. */
  readonly step: number;
}

export interface DoneReply {
  readonly kind: "done";
  readonly id: number;
  readonly run: number;
  /** The step at which the run left the finite range, or null. */
  readonly diverged: number | null;
}

export interface FailedReply {
  readonly kind: "failed";
  readonly id: number;
  readonly message: string;
}

export type Reply = LimitReply | PieceReply | DoneReply | FailedReply;
