#!/usr/bin/env node
// A worker for tasks of type "count": it counts to the number in the payload, one step a tenth of a second, and tells how far it is.
//
//   node main.js [--addr 127.0.0.1:7420] [--queue numbers] [--slots 4] [--tls-ca FILE [--token-file FILE]]
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { connect } from "./api.js";
import { Worker } from "./worker.js";

const { values: flags } = parseArgs({
  options: {
    addr: { type: "string", default: "127.0.0.1:7420" },
    queue: { type: "string", default: "numbers" },
    slots: { type: "string", default: "4" },
    name: { type: "string", default: "node" },
    "tls-ca": { type: "string" },
    "token-file": { type: "string" },
  },
});

function credentials() {
  const { "tls-ca": ca, "token-file": file } = flags;
  if (file && !ca) {
    console.error("--token-file needs --tls-ca: without TLS, everybody on the way could read the token");
    process.exit(2);
  }
  return { ca: ca && readFileSync(ca), token: file && (() => readFileSync(file, "utf8").trim()) };
}

async function count(task, { signal, progress, print }) {
  const goal = Number(task.spec.payload.toString());
  if (!Number.isInteger(goal) || goal < 0) {
    const err = new Error(`payload: is ${task.spec.payload}; a whole number is expected`);
    throw Object.assign(err, { category: "DATA_QUALITY" }); // another attempt would read the same
  }
  for (let n = 1; n <= goal; n++) {
    await sleep(100, null, { signal }); // a cancel, or a lost lease, ends it here
    print(`${n}\n`);
    progress(n / goal, `${n} of ${goal}`);
  }
  return `counted to ${goal}`;
}

const worker = new Worker({
  client: connect(flags.addr, credentials()).workers,
  name: flags.name,
  queues: [flags.queue],
  slots: Number(flags.slots),
  handlers: { count },
});
worker.on("registered", ({ resumed }) => console.log(resumed ? "resumed" : "registered"));
worker.on("ended", (task, why) => console.log(`${task.taskId}: ${why}`));
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => worker.drain(signal));

try {
  await worker.run();
} catch (err) {
  console.error(`refused: ${err.message}`);
  process.exit(1);
}
process.exit(0);
