/**
 * A state with its past and its future: updates in quick succession from one control count as one. Some values, such as
 * a cursor, are not part of history: they are amended, and stay where they are when the rest goes back.
 */

const TOGETHER_MILLISECONDS = 1000;

export class Store<S extends object> {
  private past: S[] = [];
  private future: S[] = [];
  private last: { control: string; at: number } | null = null;
  private readonly listeners: ((state: S) => void)[] = [];
  private readonly amendedListeners: ((state: S) => void)[] = [];

  /** `settle` makes every new state consistent; `kept` names the values that are not part of history. */
  constructor(
    private current: S,
    private readonly settle: (state: S) => S,
    private readonly kept: readonly (keyof S)[] = [],
    private readonly clock: () => number = () => performance.now(),
  ) {
    this.current = settle(current);
  }

  get state(): S {
    return this.current;
  }

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  /** Change some values; `control` names who asks. */
  update(change: Partial<S>, control: string): void {
    const next = this.settle({ ...this.current, ...change });
    if (JSON.stringify(next) === JSON.stringify(this.current)) return;
    const now = this.clock();
    const continued = this.last?.control === control && now - this.last.at < TOGETHER_MILLISECONDS;
    if (!continued) this.past.push(this.current);
    this.last = { control, at: now };
    this.future = [];
    this.become(next);
  }

  /** Change values that are not part of history. */
  amend(change: Partial<S>): void {
    this.current = { ...this.current, ...change };
    for (const listener of this.amendedListeners) listener(this.current);
  }

  undo(): void {
    this.travel(this.past, this.future);
  }

  redo(): void {
    this.travel(this.future, this.past);
  }

  /** Called after every update. */
  subscribe(listener: (state: S) => void): void {
    this.listeners.push(listener);
  }

  /** Called after every amendment. */
  subscribeAmended(listener: (state: S) => void): void {
    this.amendedListeners.push(listener);
  }

  private travel(from: S[], to: S[]): void {
    const other = from.pop();
    if (!other) return;
    to.push(this.current);
    this.last = null;
    const same = Object.fromEntries(this.kept.map((key) => [key, this.current[key]])) as Partial<S>;
    this.become({ ...other, ...same });
  }

  private become(state: S): void {
    this.current = state;
    for (const listener of this.listeners) listener(state);
  }
}
