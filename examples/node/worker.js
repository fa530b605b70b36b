// Worker keeps one session with the coordinator: it takes work, renews leases, streams feedback and reports outcomes. It goes on over lost
// streams and restarts of the coordinator; docs/protocol.md has the rules.
import { randomUUID } from "node:crypto";
import { EventEmitter } from "node:events";
import os from "node:os";
import { status } from "@grpc/grpc-js";
import { Attempt } from "./attempt.js";
import { millis } from "./api.js";

const COMMITTED = "VERDICT_COMMITTED";
const MOST_OUTPUT = 3 << 20; // bytes; with more, a report fits no frame, and would end every stream on which it is sent
const MOST_MESSAGE = 10_000; // characters of the message of an error
const MOST_WAITING = 10_000; // frames that wait to be sent; with more, feedback is dropped: a handler may print faster than the line takes it
// Codes with which the handshake or register is refused for good.
const FINAL = ["E.REQUEST.INVALID", "E.CMD.UNKNOWN", "E.SESSION.DENIED", "E.AUTH.FORBIDDEN", "E.AUTH.MTLS_REQUIRED"];

export class Worker extends EventEmitter {
  #attempts = new Map(); // by lease id
  #sent = new Map(); // when a start or heartbeat went out, by frame id
  #frame = 0;
  #instance = randomUUID(); // the same over reconnects: leases follow it
  #session = null; // the last accept
  #seen = 0; // the highest seq of the coordinator's frames
  #stream = null;
  #ready = false; // registered on the present stream
  #beat = null;
  #lastBeat = 0;
  #failures = 0; // streams in a row that never got that far
  #opening = new Set(); // the ids of handshake and register
  #heard = false; // the coordinator has sent a frame on the present stream
  #pause = 0; // how long it asked to wait before the next stream
  #quiet = 0; // until when it asked for no feedback
  #draining = false;
  #over = false;
  #done;
  #refused;

  // handlers maps a type of task to async (task, {attempt, fencingToken, signal, progress, print}) => output. An error that a handler throws fails the
  // attempt with the category that it has, such as DATA_QUALITY, or USER_CODE; the category says whether there is another attempt.
  constructor({ client, name, queues, slots, handlers, log = console.error }) {
    super();
    Object.assign(this, { client, name, queues, slots, handlers, log });
  }

  // run resolves once the worker has been drained and everything it ran has its verdict. It rejects if the coordinator refuses the worker for good.
  run() {
    return new Promise((resolve, reject) => {
      [this.#done, this.#refused] = [resolve, reject];
      this.#open();
    });
  }

  // drain takes no new work and lets run resolve when what runs has ended.
  drain(reason) {
    if (this.#draining) return;
    this.#draining = true;
    if (this.#ready) this.#send({ drain: { reason } });
    this.#leaveWhenIdle();
  }

  // --- The stream ---

  #open() {
    const stream = this.client.session();
    this.#stream = stream;
    this.#heard = false;
    this.#pause = 0;
    stream.on("data", (frame) => this.#take(frame));
    stream.on("error", (err) => this.#broken(err));
    stream.on("status", () => this.#lost()); // the last event, once, however the stream ends
    const id = this.#send({
      tenant: "default",
      sender: { role: "worker", id: this.name },
      handshake: {
        protocol: 1,
        worker: { name: this.name, instanceId: this.#instance, version: "1", hostname: os.hostname() },
        resume: this.#session && {
          sessionId: this.#session.sessionId,
          sessionToken: this.#session.sessionToken,
          lastSeenSeq: this.#seen,
        },
      },
    });
    this.#opening = new Set([id]);
  }

  // broken: without a good credential the stream ends before any frame.
  #broken(err) {
    this.log(`session: ${err.message}`);
    if (!this.#heard && (err.code === status.UNAUTHENTICATED || err.code === status.PERMISSION_DENIED)) this.#giveUp(err.message);
  }

  // giveUp: a repeat would be refused in the same way (K5). What runs is stopped, and its leases run out.
  #giveUp(why) {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#beat);
    for (const attempt of this.#attempts.values()) attempt.end(why);
    this.#attempts.clear();
    this.#stream.end();
    this.#refused(new Error(why));
  }

  // lost: nothing is revoked by it. What runs goes on, and a new stream is opened after a growing wait with jitter.
  #lost() {
    clearTimeout(this.#beat);
    this.#ready = false;
    this.#sent.clear();
    if (this.#over) return;
    if (this.#draining && this.#attempts.size === 0) return this.#done();
    const wait = Math.min(5_000, 100 * 2 ** this.#failures++) * (0.5 + Math.random() / 2);
    setTimeout(() => this.#open(), Math.max(wait, this.#pause));
  }

  #send(payload) {
    const id = String(++this.#frame);
    this.#stream.write({ id, ...payload });
    return id;
  }

  // --- Frames of the coordinator ---

  #take(frame) {
    const askedAt = this.#sent.get(frame.corr);
    if (frame.payload) this.#sent.delete(frame.corr); // a mere acknowledgement may come before the answer
    this.#heard = true;
    if (this.#ready) this.#failures = 0; // it has sent something after the accept
    if (frame.payload === "accept" || Number(frame.seq) > this.#seen) this.#seen = Number(frame.seq); // a frame that is sent again has its old seq
    if (frame.ack?.request) this.#send({ ack: { for: frame.id } });
    switch (frame.payload) {
      case "accept":
        return this.#accepted(frame.accept);
      case "dispatch":
        return this.#begin(frame.dispatch.assignments);
      case "verdicts":
        return frame.verdicts.verdicts.forEach((v) => this.#judged(v, askedAt));
      case "heartbeatAck":
        return this.#renewed(frame.heartbeatAck.leases, askedAt);
      case "cancel":
        return this.#cancel(frame.cancel);
      case "drain":
        return this.drain(frame.drain.reason);
      case "error":
        return this.#failed(frame.corr, frame.error);
      case "reset": // the stream ends; #lost goes on
        if (frame.reset.code === "E.SESSION.STALE_BINDING") this.#session = null; // another stream has it
        if (frame.reset.leasesEnded) this.#live().forEach((attempt) => this.#discard(attempt, frame.reset.reason));
        this.#pause = millis(frame.reset.retryAfter);
        return this.log(`${frame.reset.code}: ${frame.reset.reason}`);
    }
  }

  #failed(corr, { code, message, retryAfter }) {
    this.log(`${code}: ${message}`);
    if (code === "E.AUTH.INVALID_TOKEN") this.#session = null; // begin a new session
    if (code === "E.QUOTA.FRAMES") this.#quiet = performance.now() + millis(retryAfter);
    else this.#pause = millis(retryAfter);
    if (this.#opening.has(corr) && FINAL.includes(code)) this.#giveUp(`${code}: ${message}`);
  }

  #accepted(accept) {
    this.#session = accept;
    const id = this.#send({
      register: {
        queues: this.queues,
        capabilities: { concurrency: { maxParallel: this.slots }, types: Object.keys(this.handlers) },
      },
    });
    this.#opening.add(id);
    this.#ready = true;
    if (this.#draining) this.#send({ drain: {} });
    this.#heartbeat(); // names the leases: they are this stream's from here on
    for (const attempt of this.#attempts.values()) this.#sayAgain(attempt);
    this.emit("registered", accept);
    this.#leaveWhenIdle(); // the last attempt may have ended, or the drain begun, while there was no stream
  }

  // sayAgain says what has no verdict yet, again and unchanged if it was said before. What had been committed is answered with the same verdict (V4).
  #sayAgain(attempt) {
    if (attempt.outcome) this.#report(attempt);
    else if (!attempt.running) this.#start(attempt);
  }

  // --- An attempt ---

  #begin(assignments) {
    for (const a of assignments) {
      if (this.#attempts.has(a.leaseId)) continue; // dispatched again, because an ack was lost
      const attempt = new Attempt(a, (lost) => this.#discard(lost, "its lease ran out"));
      this.#attempts.set(a.leaseId, attempt);
      if (this.#draining) attempt.outcome = { release: attempt.report({ reason: "the worker is draining" }) }; // granted before the coordinator knew
      this.#sayAgain(attempt);
    }
  }

  #start(attempt) {
    if (!this.#ready || !this.#attempts.has(attempt.leaseId)) return; // after the reconnect, or it has ended
    const id = this.#send({ reports: { reports: [{ start: attempt.report() }] } });
    this.#sent.set(id, performance.now());
  }

  #judged(verdict, askedAt) {
    const attempt = this.#attempts.get(verdict.leaseId);
    if (!attempt) return;
    if (verdict.error) { // no verdict: the same again after a growing wait, until the lease has run out (K5)
      const wait = Math.min(30_000, 500 * 2 ** ++attempt.unanswered);
      setTimeout(() => this.#sayAgain(attempt), Math.max(wait, millis(verdict.error.retryAfter)));
    } else if (verdict.kind === "REPORT_KIND_COMPLETE" && verdict.reason === "REASON_RESULT_TOO_LARGE") { // the lease lives on
      attempt.fails("CONFIGURATION", verdict.detail);
      this.#report(attempt);
    } else if (verdict.kind !== "REPORT_KIND_START") {
      this.emit("verdict", verdict);
      this.#discard(attempt, verdict.verdict === COMMITTED ? "committed" : `${verdict.verdict} ${verdict.reason}`);
    } else if (verdict.verdict !== COMMITTED) {
      this.#discard(attempt, verdict.reason);
    } else if (!attempt.running && askedAt !== undefined) { // else it was sent on an earlier stream, and the start was repeated on this one
      attempt.running = true;
      attempt.renewed(askedAt, verdict);
      if (verdict.shouldCancel) attempt.cancel(verdict.cancelReason);
      this.#schedule(); // it may ask for heartbeats sooner
      this.#execute(attempt);
    }
  }

  async #execute(attempt) {
    const { task } = attempt;
    try {
      const output = await this.handlers[task.spec.type](task, {
        attempt: attempt.number,
        fencingToken: attempt.fencingToken, // a string: it is for outside systems, which refuse a smaller number than one they have seen
        signal: attempt.signal,
        progress: (fraction, message) => this.#progress(attempt, { fraction, message }),
        print: (text) => this.#print(attempt, text),
      });
      const bytes = Buffer.from(output ?? "");
      if (bytes.length > MOST_OUTPUT) attempt.fails("CONFIGURATION", `the output has ${bytes.length} bytes; the limit is ${MOST_OUTPUT}`);
      else attempt.outcome = { complete: attempt.report({ output: bytes }) };
    } catch (err) {
      attempt.fails(attempt.cancelled ? "CANCELLED" : (err?.category ?? "USER_CODE"), String(err?.message ?? err).slice(0, MOST_MESSAGE));
    }
    this.#report(attempt);
  }

  #report(attempt) {
    if (this.#ready && this.#attempts.has(attempt.leaseId)) this.#send({ reports: { reports: [attempt.outcome] } });
  }

  #cancel(cancel) {
    const attempt = this.#attempts.get(cancel.leaseId);
    if (!attempt) return;
    if (millis(cancel.grace) > 0) {
      attempt.cancel(cancel.detail); // it may still report
      this.#heartbeat(); // the answer tells how long the lease lives now: attempt_timeout and deadline no longer cut it (T7)
    } else this.#discard(attempt, cancel.reason);
  }

  // discard forgets an attempt: it has its verdict, or the right to one is gone (K2).
  #discard(attempt, why) {
    attempt.end(why);
    this.#attempts.delete(attempt.leaseId);
    this.emit("ended", attempt.task, why);
    this.#leaveWhenIdle();
  }

  #leaveWhenIdle() {
    if (!this.#draining || this.#attempts.size > 0 || !this.#ready) return;
    this.#send({ goodbye: { reason: "drained" } });
    this.#stream.end();
  }

  // --- Heartbeats and feedback ---

  // live are the attempts that still run. Once a handler has returned, nothing renews its lease any more (K4).
  #live() {
    return [...this.#attempts.values()].filter((a) => a.running && !a.outcome);
  }

  // schedule sends the next heartbeat as early as any lease asks for.
  #schedule() {
    clearTimeout(this.#beat);
    const every = Math.min(millis(this.#session.heartbeatInterval), ...this.#live().map((a) => a.heartbeatEvery));
    this.#beat = setTimeout(() => this.#heartbeat(), this.#lastBeat + every - performance.now());
  }

  #heartbeat() {
    const id = this.#send({
      heartbeat: {
        healthy: true, // without it there is no new work
        metrics: { inflight: this.#attempts.size },
        leases: this.#live().map((a) => a.report({ progress: a.progress })),
      },
    });
    this.#lastBeat = performance.now();
    this.#sent.set(id, this.#lastBeat);
    this.#schedule();
  }

  #renewed(leases, askedAt) {
    let again = false;
    for (const ack of leases) {
      const attempt = this.#attempts.get(ack.leaseId);
      if (!attempt || ack.error || askedAt === undefined) continue; // no verdict: the next heartbeat asks again
      if (ack.verdict === COMMITTED) {
        attempt.renewed(askedAt, ack);
        if (ack.shouldCancel && !attempt.cancelled) attempt.cancel(ack.cancelReason);
      } else if (ack.reason === "REASON_INVALID_REQUEST" && attempt.progress) {
        this.log(`${attempt.task.taskId}: ${ack.detail}`); // renewed nothing, and does not say that the lease is lost: a bare heartbeat tells
        attempt.progress = null;
        again = true;
      } else if (ack.reason !== "REASON_ALREADY_REPORTED") {
        this.#discard(attempt, ack.reason);
      }
    }
    if (again) this.#heartbeat();
  }

  #progress(attempt, progress) {
    attempt.progress = progress;
    this.#feedback(attempt, { progress: progress.fraction, message: progress.message });
  }

  #print(attempt, text) {
    this.#feedback(attempt, { chunks: [{ channel: "stdout", index: attempt.chunks++, text }] });
  }

  // feedback is for whoever watches; it may be lost with the stream.
  #feedback(attempt, item) {
    if (!this.#ready || performance.now() < this.#quiet || this.#stream.writableLength > MOST_WAITING) return;
    this.#send({ feedback: { items: [{ taskId: attempt.task.taskId, leaseId: attempt.leaseId, ...item }] } });
  }
}
