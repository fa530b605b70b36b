// The worker against a coordinator that is played: what a real one says only seldom.
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { Worker } from "./worker.js";

// Line is one stream, seen from the coordinator.
class Line extends EventEmitter {
  sent = [];

  write(frame) {
    this.sent.push(frame);
  }

  end() {
    this.lose();
  }

  // lose ends the stream, with err unless it is OK.
  lose(err) {
    if (err) this.emit("error", err);
    this.emit("status");
  }

  say(payload, frame, more = {}) {
    this.emit("data", { seq: "0", payload, [payload]: frame, ...more });
  }

  accept() {
    this.say("accept", { sessionId: "s", sessionToken: "t", heartbeatInterval: { seconds: 3600 } });
  }

  // answer says something about the last frame with that payload.
  answer(to, payload, frame) {
    this.say(payload, frame, { corr: this.last(to).id });
  }

  last(payload) {
    return this.sent.findLast((frame) => frame[payload]);
  }

  // dispatch hands out a task, whose lease has the id of the task.
  dispatch(taskId) {
    const task = { taskId, spec: { type: "work" } };
    const assignment = { task, leaseId: taskId, attempt: 1, fencingToken: "2097153", heartbeatInterval: { seconds: 3600 } };
    this.say("dispatch", { assignments: [assignment] });
  }
}

// committed is the verdict on a start.
const committed = (leaseId) => ({
  verdicts: [{ leaseId, kind: "REPORT_KIND_START", verdict: "VERDICT_COMMITTED", expiresIn: { seconds: 3600 } }],
});

// play runs a worker; lines has its streams, and opened is emitted for each. The waits between streams are over at once, and noted in waits.
function play(t, work = () => "done") {
  const [lines, waits, news] = [[], [], new EventEmitter()];
  const session = () => {
    lines.push(new Line());
    setImmediate(() => news.emit("opened", lines.at(-1)));
    return lines.at(-1);
  };
  const later = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (f, wait) => {
    if (wait >= 3_000_000) return later(() => {}, 0); // heartbeats and leases: an hour
    waits.push(wait);
    return later(f, 0);
  });
  const worker = new Worker({ client: { session }, name: "w", queues: ["q"], slots: 1, handlers: { work }, log: () => {} });
  return { worker, lines, waits, ended: worker.run(), opened: async () => (await once(news, "opened"))[0] };
}

test("a drain that begins while there is no stream ends on the next one", async (t) => {
  const { worker, ended, opened } = play(t);
  const line = await opened();
  line.accept();
  line.lose();
  worker.drain("stop");
  const next = await opened();
  next.accept();
  assert.ok(next.last("goodbye"));
  await ended;
});

test("what it is granted before the coordinator knows that it drains is given back", async (t) => {
  let ran = 0;
  const { worker, ended, opened } = play(t, () => ran++);
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  line.lose();
  worker.drain("stop");
  const next = await opened();
  next.accept();
  next.dispatch("t2");
  assert.equal(next.last("reports").reports.reports[0].release.taskId, "t2");
  next.say("verdicts", { verdicts: [{ leaseId: "t2", kind: "REPORT_KIND_RELEASE", verdict: "VERDICT_COMMITTED" }] });
  assert.equal(next.last("goodbye"), undefined); // it still has t1
  next.say("verdicts", { verdicts: [{ leaseId: "t1", kind: "REPORT_KIND_START", verdict: "VERDICT_CANCELLED" }] });
  await ended;
  assert.equal(ran, 0);
});

test("what the coordinator refuses for good is not asked again", async (t) => {
  const refusals = {
    "E.SESSION.DENIED": (line) => line.answer("handshake", "error", { code: "E.SESSION.DENIED", message: "another tenant" }),
    "max_parallel: ": (line) => {
      line.accept();
      line.answer("register", "error", { code: "E.REQUEST.INVALID", message: "max_parallel: is 0" });
    },
    "no credential": (line) => line.lose(Object.assign(new Error("no credential was sent"), { code: status.UNAUTHENTICATED })),
  };
  for (const [why, refuse] of Object.entries(refusals)) {
    const { lines, ended, opened } = play(t);
    refuse(await opened());
    await assert.rejects(ended, new RegExp(why));
    assert.equal(lines.length, 1);
    t.mock.restoreAll();
  }
});

test("it waits as long as the coordinator says before it connects again", async (t) => {
  const { lines, waits, opened } = play(t);
  const line = await opened();
  line.accept();
  line.say("reset", { code: "E.SESSION.KICKED", reason: "", retryAfter: { seconds: 50 } });
  line.lose();
  (await opened()).lose();
  await opened();
  assert.equal(waits[0], 50_000);
  assert.ok(waits[1] < 1_000);
  assert.ok(lines[1].last("handshake").handshake.resume);
});

test("it stops what it runs when it is told that its leases have ended, and not when only its stream ends", async (t) => {
  for (const leasesEnded of [true, false]) {
    let running;
    const { opened } = play(t, (_, { signal }) => new Promise((resolve) => { running = { signal, resolve }; }));
    const line = await opened();
    line.accept();
    line.dispatch("t1");
    line.answer("reports", "verdicts", committed("t1"));
    line.say("reset", { code: "E.SESSION.KICKED", reason: "by hand", leasesEnded });
    assert.equal(running.signal.aborted, leasesEnded);
    running.resolve();
    t.mock.restoreAll();
  }
});

test("an output that cannot be reported is a failure", async (t) => {
  for (const [size, refused] of [[5 << 20, false], [2 << 20, true]]) {
    const { worker, opened } = play(t, async () => Buffer.alloc(size));
    const line = await opened();
    line.accept();
    line.dispatch("t1");
    line.answer("reports", "verdicts", committed("t1"));
    await new Promise(setImmediate); // the handler returns
    if (refused) {
      const verdict = { leaseId: "t1", kind: "REPORT_KIND_COMPLETE", verdict: "VERDICT_REJECTED", reason: "REASON_RESULT_TOO_LARGE", detail: "output: too large" };
      line.answer("reports", "verdicts", { verdicts: [verdict] });
    }
    const { fail } = line.last("reports").reports.reports[0];
    assert.equal(fail.error.category, "ERROR_CATEGORY_CONFIGURATION");
    line.answer("reports", "verdicts", { verdicts: [{ leaseId: "t1", kind: "REPORT_KIND_FAIL", verdict: "VERDICT_COMMITTED" }] });
    worker.drain("stop");
    assert.ok(line.last("goodbye"));
    t.mock.restoreAll();
  }
});

test("a handler knows its attempt and its fencing token", async (t) => {
  const { opened } = play(t, (_, { attempt, fencingToken }) => `${attempt} ${fencingToken}`);
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  line.answer("reports", "verdicts", committed("t1"));
  await new Promise(setImmediate); // the handler returns
  assert.equal(line.last("reports").reports.reports[0].complete.output.toString(), "1 2097153");
});

test("a lease that is cancelled ends with the grace", async (t) => {
  const told = (cancelGraceLeft) => ({
    leaseId: "t1", kind: "REPORT_KIND_START", verdict: "VERDICT_COMMITTED", expiresIn: { seconds: 3600 }, shouldCancel: true, cancelGraceLeft,
  });
  for (const asked of ["start", "heartbeat"]) {
    for (const [left, most] of [[null, undefined], [{ seconds: 0 }, 0], [{ seconds: 5 }, 5_000]]) {
      let ended = false;
      const { worker, waits, opened } = play(t, () => new Promise(() => {}));
      worker.on("ended", () => { ended = true; });
      const line = await opened();
      line.accept();
      line.dispatch("t1");
      if (asked === "start") line.answer("reports", "verdicts", { verdicts: [told(left)] });
      else {
        line.answer("reports", "verdicts", committed("t1"));
        line.say("cancel", { leaseId: "t1", grace: { seconds: 30 }, detail: "" });
        line.answer("heartbeat", "heartbeatAck", { leases: [told(left)] });
      }
      assert.equal(ended, false);
      assert.equal(waits.length, left ? 1 : 0);
      if (left) {
        assert.ok(waits[0] <= most && waits[0] > most - 1_000, `it waits ${waits[0]} ms for the end of the lease, want ${most}`);
        await once(worker, "ended");
      }
      t.mock.restoreAll();
    }
  }
});

test("a verdict that an earlier stream has asked for does not date the lease", async (t) => {
  let ran = 0;
  const { opened } = play(t, () => ran++);
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  const asked = line.last("reports").id;
  line.lose();
  const next = await opened();
  next.accept();
  next.say("verdicts", committed("t1"), { corr: asked }); // kept for a minute, and sent again
  assert.equal(ran, 0);
  next.answer("reports", "verdicts", committed("t1"));
  assert.equal(ran, 1);
});

test("an acknowledgement before the verdict does not take its place", async (t) => {
  let ran = 0;
  const { opened } = play(t, () => ran++);
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  const { id } = line.last("reports");
  line.emit("data", { seq: "0", corr: id, ack: { for: id } });
  line.answer("reports", "verdicts", committed("t1"));
  assert.equal(ran, 1);
});

test("a lease is not renewed any more once its handler has returned", async (t) => {
  const { opened } = play(t);
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  line.answer("reports", "verdicts", committed("t1"));
  await new Promise(setImmediate); // the handler returns
  line.lose();
  const next = await opened();
  next.accept(); // the first heartbeat of a stream names the leases that the worker wants to keep
  assert.deepEqual(next.last("heartbeat").heartbeat.leases, []);
  assert.ok(next.last("reports").reports.reports[0].complete);
});

test("progress that is refused is left out of the next heartbeat, which goes out at once", async (t) => {
  let signal;
  const { opened } = play(t, (task, run) => {
    signal = run.signal;
    run.progress(7);
    return new Promise(() => {});
  });
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  line.answer("reports", "verdicts", committed("t1"));
  line.lose();
  const next = await opened();
  next.accept(); // the first heartbeat of a stream names the leases
  const refused = { leases: [{ leaseId: "t1", verdict: "VERDICT_REJECTED", reason: "REASON_INVALID_REQUEST", detail: "progress: is 7" }] };
  assert.equal(next.last("heartbeat").heartbeat.leases[0].progress.fraction, 7);
  next.answer("heartbeat", "heartbeatAck", refused);
  assert.equal(next.last("heartbeat").heartbeat.leases[0].progress, null);
  assert.ok(!signal.aborted);
  next.answer("heartbeat", "heartbeatAck", refused); // what is left is wrong, too
  assert.ok(signal.aborted);
});

test("what got no verdict is repeated after growing waits", async (t) => {
  const { waits, opened } = play(t);
  const line = await opened();
  line.accept();
  line.dispatch("t1");
  line.answer("reports", "verdicts", committed("t1"));
  await new Promise(setImmediate); // the handler returns
  for (const seconds of [0, 0, 20, 0]) {
    const said = line.sent.length;
    line.answer("reports", "verdicts", { verdicts: [{ leaseId: "t1", error: { code: "E.INTERNAL", retryAfter: { seconds } } }] });
    while (line.sent.length === said) await new Promise(setImmediate);
    assert.ok(line.last("reports").reports.reports[0].complete);
  }
  assert.deepEqual(waits, [1_000, 2_000, 20_000, 8_000]);
});

test("streams that end right after the accept make the waits grow", async (t) => {
  const { waits, opened } = play(t);
  for (let i = 0; i < 6; i++) {
    const line = await opened();
    line.accept();
    line.lose();
  }
  assert.ok(waits[5] > waits[0], `waits of ${waits}`);
});

test("a resume names the last frame, also if one was sent again after it", async (t) => {
  const { opened } = play(t);
  const line = await opened();
  line.accept();
  for (const seq of ["2", "3", "2"]) line.say("dispatch", { assignments: [] }, { seq });
  line.lose();
  const next = await opened();
  assert.equal(next.last("handshake").handshake.resume.lastSeenSeq, 3);
});

test("feedback is dropped while the line does not take it", async (t) => {
  const { opened } = play(t, (_, { print }) => print("line\n"));
  const line = await opened();
  line.accept();
  for (const [taskId, waiting] of [["t1", 20_000], ["t2", 0]]) {
    line.writableLength = waiting;
    line.dispatch(taskId);
    line.answer("reports", "verdicts", committed(taskId));
    assert.equal(line.last("feedback") === undefined, waiting > 0);
  }
});
