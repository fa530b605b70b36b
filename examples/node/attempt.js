// Attempt is one granted task: from its dispatch until its outcome has a verdict, or its lease is lost.
import { millis } from "./api.js";

export class Attempt {
  #expiry = null;
  #stop = new AbortController();

  // lost is called when the lease ran out on this machine's own clock.
  constructor(assignment, lost) {
    this.task = assignment.task;
    this.leaseId = assignment.leaseId;
    this.number = assignment.attempt;
    this.fencingToken = assignment.fencingToken;
    this.heartbeatEvery = millis(assignment.heartbeatInterval);
    this.running = false; // Start was committed
    this.outcome = null; // the report to send, once the handler has returned
    this.cancelled = false; // a cancel was asked; the lease still lives
    this.progress = null;
    this.unanswered = 0; // how often the coordinator could not judge a report
    this.chunks = 0;
    this.lost = lost;
  }

  get signal() {
    return this.#stop.signal;
  }

  // renewed counts a lease from before the request that renewed it: so it never seems to live longer than it does (A8). In
  // a cancel, it ends with what is left of the grace (T7), which may be 0, if that is earlier.
  renewed(askedAt, { expiresIn, cancelGraceLeft }) {
    clearTimeout(this.#expiry);
    const lives = Math.min(millis(expiresIn), millis(cancelGraceLeft ?? expiresIn));
    const left = askedAt + lives - performance.now();
    this.#expiry = setTimeout(() => this.lost(this), left);
  }

  cancel(reason) {
    this.cancelled = true;
    this.#stop.abort(new Error(reason || "cancelled"));
  }

  // end lets go of everything: the outcome is known, or nobody wants it any more.
  end(reason) {
    clearTimeout(this.#expiry);
    this.#stop.abort(new Error(reason));
  }

  // fails makes a failure the outcome.
  fails(category, message) {
    this.outcome = { fail: this.report({ error: { category: `ERROR_CATEGORY_${category}`, message } }) };
  }

  // report names the attempt in whatever is said about it.
  report(fields) {
    return { taskId: this.task.taskId, leaseId: this.leaseId, attempt: this.number, ...fields };
  }
}
