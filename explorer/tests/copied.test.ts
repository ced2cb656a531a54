/**
 * Python that is copied from the page. copied.json holds it with the numbers of the page; here it is held against what
 * the sources give now, and tests/test_playground.py runs it and compares the numbers.
 *
 * After a change that is meant: `UPDATE_COPIED=1 npm test copied`.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { covariance, gaussianOf } from "../src/engine/gaussian/averages";
import { Packing, solve } from "../src/engine/ode";
import { python } from "../src/playground/python";
import { CODECS, DEFAULT, settle, startOf, taskOf } from "../src/playground/state";
import { readLink } from "../src/ui/permalink";
import { close } from "./reference";

const FILE = "tests/reference/copied.json";

const LINKS = [
  "",
  "start=random&p=3&dim=2500&seed=12&law=hemisphere&time=5&batch=3&geometry=spherical&runs=8",
  "activation=erf&k=2&start=random&geometry=free&law=gaussian&teacher=1,-0.5&a=1.5,-1&trained=1&gamma=1.5&time=8&noise=0.01",
  "k=3&target=quadratic&H=1,0.25,0;0.25,-0.5,0;0,0,0&h0=0.5&P=1,0.3,0;0.3,1,0;0,0,1&start=random&gamma=0.05&time=1&noise=0",
  "activation=relu&k=1&geometry=free&loss=correlation&M=0.5;0.1&Q=1,0.2;0.2,0.8&gamma=0.5&time=1",
  "activation=square&p=1&gamma=0.08&start=random&dim=1000000000&seed=4294967295&time=6&geometry=projected",
];

interface Copied {
  readonly link: string;
  readonly code: string;
  readonly M: readonly number[];
  readonly Q: readonly number[];
  readonly risk: number;
}

function copied(link: string): Copied {
  const { values, refused } = readLink(CODECS, link);
  assert.deepEqual(refused, []);
  const state = settle({ ...DEFAULT, ...values });
  const task = taskOf(state);
  const { states } = solve(task, startOf(state), [0, state.time]);
  const { Q, M, a } = new Packing(task, state.a).unpack(states[1]);
  const excess = gaussianOf(task).excess(covariance(task)(Q, M), a);
  return { link, code: python(state), M: [...M], Q: [...Q], risk: excess + state.noise / 2 };
}

const now = LINKS.map(copied);
if (process.env["UPDATE_COPIED"]) writeFileSync(FILE, `${JSON.stringify(now, null, 1)}\n`);
const held = JSON.parse(readFileSync(FILE, "utf-8")) as Copied[];

test("the Python to be copied, and its numbers, are those held in copied.json", () => {
  assert.equal(held.length, now.length);
  held.forEach((entry, i) => {
    assert.equal(now[i].link, entry.link);
    assert.equal(now[i].code, entry.code);
    close([...now[i].M, ...now[i].Q, now[i].risk], [...entry.M, ...entry.Q, entry.risk], 1e-9, entry.link);
  });
});
