/** A server of the explorer for the browser: Python from the environment of the repository, on a free port. */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(process.cwd(), "..");

export function pythonOf(): string {
  const own = join(ROOT, ".venv", "bin", "python");
  return process.env["PYTHON"] ?? (existsSync(own) ? own : "python3");
}

export interface Server {
  readonly address: string;
  readonly process: ChildProcess;
  stop(): Promise<void>;
}

export async function serve(): Promise<Server> {
  const args = ["-m", "twolayer", "explore", join(ROOT, "examples", "phase_retrieval.toml"), "--no-browser"];
  const child = spawn(pythonOf(), args, { stdio: ["ignore", "pipe", "inherit"] });
  const address = await new Promise<string>((resolve, reject) => {
    let said = "";
    child.stdout.on("data", (text: Buffer) => {
      said += String(text);
      const found = /http:\S+/.exec(said);
      if (found) resolve(found[0]);
    });
    child.on("exit", (code) => reject(new Error(`the server ended with code ${code}: ${said}`)));
  });
  const ended = new Promise<void>((resolve) => child.on("exit", () => resolve()));
  return {
    address,
    process: child,
    stop: () => {
      child.kill("SIGINT");
      return ended;
    },
  };
}
