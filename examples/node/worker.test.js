// The worker against the real coordinator: build it first (make build).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { call, connect } from "./api.js";

const binary = fileURLToPath(new URL("../../bin/lessor", import.meta.url));
const program = fileURLToPath(new URL("main.js", import.meta.url));

const children = new Set(); // none outlives the tests
let data, coordinator, address, api;

// serve starts the coordinator; it prints where it listens.
async function serve(listen) {
  coordinator = start("serve", "--data", data, "--listen", listen, "--http", "", "--json", "--log-level", "warn", "--limit-payload", "5MiB");
  return await listens(coordinator);
}

function start(...args) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  children.add(child);
  return child;
}

async function listens(child) {
  const [line] = await once(createInterface(child.stdout), "line");
  return JSON.parse(line).grpc;
}

async function stop(child, signal) {
  child.kill(signal);
  children.delete(child);
  return (await once(child, "exit"))[0];
}

// work starts the worker, and collects what it prints.
async function work(queue, at = address, ...more) {
  const child = spawn(process.execPath, [program, "--addr", at, "--queue", queue, ...more], { stdio: ["ignore", "pipe", "inherit"] });
  children.add(child);
  const lines = createInterface(child.stdout);
  await once(lines, "line"); // registered
  return { child, lines };
}

async function submit(queue, payload, more = {}) {
  const spec = { queue, type: "count", payload: Buffer.from(payload), ...more };
  return (await call(api.tasks, "submitTask", { task: spec })).task.taskId;
}

const get = async (taskId) => (await call(api.tasks, "getTask", { taskId })).task;

// started resolves when a worker has begun with a task.
async function started(taskId) {
  for await (const event of api.tasks.watchTask({ taskId })) {
    if (event.history?.type === "HISTORY_EVENT_TYPE_STARTED") return;
  }
}

// watch collects the events of a task until it is final, and lets act see each.
async function watch(taskId, act = () => {}) {
  const events = [];
  for await (const event of api.tasks.watchTask({ taskId })) {
    events.push(event);
    act(event);
  }
  return events;
}

before(async () => {
  data = await mkdtemp(path.join(os.tmpdir(), "lessor-node-"));
  address = await serve("127.0.0.1:0");
  api = connect(address);
});

after(async () => {
  Object.values(api).forEach((client) => client.close());
  for (const child of children) child.kill("SIGKILL");
  await rm(data, { recursive: true });
});

test("it leases, streams feedback, and its result is committed", async () => {
  let worker; // begins once the watch is open: what was printed before is not told
  const events = await watch(await submit("feedback", "3"), () => (worker ??= work("feedback")));
  const { child } = await worker;
  const printed = events.flatMap((e) => (e.event === "chunk" ? [e.chunk.text] : []));
  assert.deepEqual(printed, ["1\n", "2\n", "3\n"]);
  assert.ok(events.some((e) => e.event === "progress" && e.progress.message === "3 of 3"));
  const task = await get(events[0].taskId);
  assert.equal(task.state, "TASK_STATE_COMPLETED");
  assert.equal(task.output.toString(), "counted to 3");
  assert.equal(await stop(child, "SIGTERM"), 0);
});

test("its heartbeats renew the lease", { timeout: 60_000 }, async () => {
  const { child } = await work("renew");
  const id = await submit("renew", "10000", { heartbeatInterval: { nanos: 100e6 }, heartbeatTimeout: { seconds: 30 } });
  await started(id);
  const renewals = new Set();
  while (renewals.size < 3) {
    const task = await get(id);
    assert.equal(task.state, "TASK_STATE_RUNNING");
    assert.equal(task.attempt, 1);
    const at = task.lease.heartbeatAt;
    if (at) renewals.add(`${at.seconds}.${at.nanos}`);
    await sleep(20);
  }
  await call(api.tasks, "cancelTask", { taskId: id });
  await watch(id);
  assert.equal(await stop(child, "SIGTERM"), 0);
});

test("a bad payload fails the task at once, with the reason", async () => {
  const { child } = await work("bad");
  const id = await submit("bad", "many");
  await watch(id);
  const task = await get(id);
  assert.equal(task.state, "TASK_STATE_FAILED");
  assert.match(task.error.message, /a whole number is expected/);
  assert.equal(task.error.category, "ERROR_CATEGORY_DATA_QUALITY");
  assert.equal(task.failures, 1);
  assert.equal(await stop(child, "SIGTERM"), 0);
});

test("a payload that is larger than what gRPC takes by default reaches the handler", { timeout: 60_000 }, async () => {
  const { child } = await work("large");
  const [last] = (await watch(await submit("large", "1".padStart(5 << 20)))).slice(-1);
  assert.equal(last.taskState, "TASK_STATE_COMPLETED");
  assert.equal(await stop(child, "SIGTERM"), 0);
});

test("a cancel reaches the handler, and the task is CANCELLED", async () => {
  const { child } = await work("cancel");
  const id = await submit("cancel", "1000");
  let asked = false;
  await watch(id, (event) => {
    if (event.event !== "chunk" || asked) return;
    asked = true;
    call(api.tasks, "cancelTask", { taskId: id, reason: "no longer wanted" });
  });
  assert.equal((await get(id)).state, "TASK_STATE_CANCELLED");
  assert.equal(await stop(child, "SIGTERM"), 0);
});

test("SIGTERM drains it: what runs is finished first", async () => {
  const { child } = await work("drain");
  const id = await submit("drain", "10");
  const exited = once(child, "exit");
  await watch(id, (event) => event.history?.type === "HISTORY_EVENT_TYPE_STARTED" && child.kill("SIGTERM"));
  assert.equal((await exited)[0], 0);
  const task = await get(id);
  assert.equal(task.state, "TASK_STATE_COMPLETED");
  assert.equal(task.attempt, 1);
});

test("a coordinator that is killed and comes back is a blink: the attempt goes on", async () => {
  const { child, lines } = await work("restart");
  const id = await submit("restart", "30");
  await started(id);
  await stop(coordinator, "SIGKILL");
  const back = once(lines, "line"); // registered or resumed
  await serve(address);
  await back;
  await watch(id);
  const task = await get(id);
  assert.equal(task.state, "TASK_STATE_COMPLETED");
  assert.equal(task.attempt, 1);
  assert.equal(await stop(child, "SIGTERM"), 0);
});

test("it shows its token over TLS", async () => {
  const dir = await mkdtemp(path.join(data, "secure-"));
  const file = (name) => path.join(dir, name);
  const lessor = async (...args) => assert.equal((await once(start(...args), "exit"))[0], 0);
  await lessor("cert", "dev", dir);
  const store = file("store");
  for (const role of ["producer", "worker"]) {
    await lessor("token", "create", "--data", store, "--role", role, "--subject", role, "--out", file(role));
  }
  const tls = ["--tls-cert", file("server.pem"), "--tls-key", file("server-key.pem")];
  const secured = start("serve", "--data", store, "--auth", ...tls, "--listen", "127.0.0.1:0", "--http", "", "--json", "--log-level", "error");
  const at = (await listens(secured)).replace("127.0.0.1", "localhost"); // TLS asks for a name
  const { child } = await work("secure", at, "--tls-ca", file("ca.pem"), "--token-file", file("worker"));
  const producer = connect(at, { ca: await readFile(file("ca.pem")), token: () => readFileSync(file("producer"), "utf8").trim() });
  const { task } = await call(producer.tasks, "submitTask", { task: { queue: "secure", type: "count", payload: Buffer.from("2") } });
  let state;
  for await (const event of producer.tasks.watchTask({ taskId: task.taskId })) state = event.taskState;
  assert.equal(state, "TASK_STATE_COMPLETED");
  Object.values(producer).forEach((client) => client.close());
  assert.equal(await stop(child, "SIGTERM"), 0);
  assert.equal(await stop(secured, "SIGTERM"), 0);
});
