/** Questions to the server, and streams of answers. */

export class Refusal extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly position: number | null = null,
  ) {
    super(message);
  }
}

const token = new URLSearchParams(location.search).get("token");
const HEADERS: Record<string, string> = { "content-type": "application/json", ...(token ? { "x-twolayer-token": token } : {}) };
const GONE = "The server does not answer: start it again with twolayer explore.";

async function reply(response: Response): Promise<unknown> {
  const said: unknown = await response.json().catch(() => ({ error: "The server gave no answer." }));
  const { error, refused, position } = said as { error?: string; refused?: string; position?: number | null };
  if (response.ok && refused === undefined) return said;
  throw new Refusal(refused ?? error ?? `The server answered ${response.status}.`, response.status, position ?? null);
}

async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(GONE, 0);
  }
}

export async function get(path: string): Promise<unknown> {
  return reply(await reach(path, { headers: HEADERS }));
}

/** Ask and wait; a server that is busy is asked again in a moment. */
export async function ask(kind: string, task: unknown, options: Record<string, unknown> = {}, signal?: AbortSignal): Promise<unknown> {
  for (let patience = 5; ; patience--) {
    const body = JSON.stringify({ task, options });
    const response = await reach(`api/${kind}`, { method: "POST", headers: HEADERS, body, ...(signal ? { signal } : {}) });
    if (response.status !== 429 || patience === 0) return reply(response);
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

export type Listener = (event: string, data: any) => void;

/** Ask, and hear every event until the last; aborting the signal withdraws the question. */
export async function stream(kind: string, task: unknown, options: Record<string, unknown>, hear: Listener, signal: AbortSignal): Promise<void> {
  const response = await reach(`api/${kind}`, { method: "POST", headers: HEADERS, body: JSON.stringify({ task, options }), signal });
  if (!response.body || !response.headers.get("content-type")?.startsWith("text/event-stream")) {
    await reply(response);
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let ended = false;
  for (;;) {
    let part: ReadableStreamReadResult<string>;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal.aborted) return;
      throw new Refusal(GONE, 0);
    }
    if (part.done) break;
    text += part.value;
    const blocks = text.split("\n\n");
    text = blocks.pop()!;
    for (const block of blocks) {
      const event = /^event: (.*)$/m.exec(block)?.[1] ?? "";
      const data: any = JSON.parse(/^data: (.*)$/m.exec(block)?.[1] ?? "null");
      if (event === "error") throw new Refusal(data.error, data.status);
      ended ||= event === "done";
      hear(event, data);
    }
  }
  if (!ended && !signal.aborted) throw new Refusal(GONE, 0);
}

/**
 * The newest question of a kind. A slider asks more often than a server answers: of the questions that wait, only the
 * last is sent, and of the answers only those to newer questions than the one shown are heard.
 */
export class Newest<T> {
  private sent = 0;
  private shown = 0;
  private flying = 0;
  private next: (() => void) | null = null;

  constructor(
    private readonly most: number,
    private readonly heard: (answer: T, milliseconds: number) => void,
    private readonly refused: (error: Refusal) => void,
    private readonly waiting: (busy: boolean) => void = () => {},
  ) {}

  ask(send: () => Promise<T>): void {
    const number = ++this.sent;
    const go = (): void => {
      this.flying += 1;
      this.waiting(true);
      const began = performance.now();
      void send()
        .then(
          (answer) => this.settle(number, () => this.heard(answer, performance.now() - began)),
          (error: unknown) => this.settle(number, () => this.refused(error as Refusal)),
        )
        .finally(() => {
          this.flying -= 1;
          const next = this.next;
          this.next = null;
          if (next) next();
          else if (this.flying === 0) this.waiting(false);
        });
    };
    if (this.flying < this.most) go();
    else this.next = go;
  }

  /** Forget whatever is still to come. */
  forget(): void {
    this.shown = this.sent;
    this.next = null;
  }

  private settle(number: number, tell: () => void): void {
    if (number <= this.shown) return;
    this.shown = number;
    tell();
  }
}
