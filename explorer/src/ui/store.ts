/** A state with its past and its future: updates in quick succession from one control count as one. */

const TOGETHER_MILLISECONDS = 1000;

export class Store<S extends object> {
  private past: S[] = [];
  private future: S[] = [];
  private last: { control: string; at: number } | null = null;
  private readonly listeners: ((state: S) => void)[] = [];

  /** `settle` makes every new state consistent. */
  constructor(
    private current: S,
    private readonly settle: (state: S) => S,
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

  undo(): void {
    const before = this.past.pop();
    if (!before) return;
    this.future.push(this.current);
    this.last = null;
    this.become(before);
  }

  redo(): void {
    const after = this.future.pop();
    if (!after) return;
    this.past.push(this.current);
    this.last = null;
    this.become(after);
  }

  /** Called after every change. */
  subscribe(listener: (state: S) => void): void {
    this.listeners.push(listener);
  }

  private become(state: S): void {
    this.current = state;
    for (const listener of this.listeners) listener(state);
  }
}
