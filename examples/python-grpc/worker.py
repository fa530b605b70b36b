"""A worker that makes gRPC calls, for tasks that count: the payload 30 counts to 30. Put your own work in the place of work()."""

import argparse
import concurrent.futures
import logging
import math
import os
import random
import signal
import socket
import threading
import time
import uuid

import grpc
import retry_pb2
from google.protobuf.duration_pb2 import Duration
from lessor.v1 import report_pb2, task_pb2, worker_service_pb2, worker_service_pb2_grpc

# docs/workers.md says what each is for, and wait_for_ready in the calls.
CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
]
CODES = grpc.StatusCode
MAY_HELP = {CODES.UNAVAILABLE, CODES.DEADLINE_EXCEEDED, CODES.RESOURCE_EXHAUSTED, CODES.INTERNAL, CODES.CANCELLED}  # docs/errors.md
CALL = 10.0  # seconds that one call may take
REPORT = 60.0  # seconds for which a report is repeated, or longer if its lease lives
MESSAGE = 4 << 20  # bytes of the largest message that every coordinator reads
WAIT = 20  # seconds that a request for work waits
log = logging.getLogger("worker")


def work(payload, stop, news):
    """Your work: the payload in, the output out, both bytes. Once stop is set, it returns soon, with anything, and has no more effects.
    What it puts into news goes with each heartbeat from then on: progress, metrics, checkpoint."""
    goal = int(payload)
    for count in range(goal):
        news["progress"] = task_pb2.Progress(fraction=count / goal, message=f"{count} of {goal}")
        if stop.wait(0.1):
            break
    return payload


def seconds(duration):
    return duration.ToTimedelta().total_seconds()


def details(error):
    """What the coordinator says about an error for programs: messages of google.rpc."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return retry_pb2.Status.FromString(value).details
    return []


def retry_delay(error):
    """How many seconds to wait at least, as the coordinator says in the google.rpc.RetryInfo of an error; 0 if it does not."""
    for detail in details(error):
        if detail.type_url.endswith("/google.rpc.RetryInfo"):
            return seconds(retry_pb2.RetryInfo.FromString(detail.value).retry_delay)
    return 0


def repeat(call, until, pause=time.sleep, hopeless=lambda error: False):
    """Make a call again until it is answered. Its error is raised if a repeat cannot help, or would come after until, or if pause returns true."""
    wait = 0.2
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            delay = max(wait * random.uniform(0.8, 1.2), retry_delay(error))
            if error.code() not in MAY_HELP or hopeless(error) or time.monotonic() + delay > until or pause(delay):
                raise
            log.warning("%s: %s; tried again after %.1f s", error.code(), error.details(), delay)
        wait = min(2 * wait, 5)


class Attempt:
    """One granted task, from its start to its report."""

    def __init__(self, workers, assignment):
        self.workers, self.assignment = workers, assignment
        self.name = {"task_id": assignment.task.task_id, "lease_id": assignment.lease_id, "attempt": assignment.attempt}
        # When the lease ends, on this machine's own clock. Not counted from before the Lease, which may have waited longer than the lease lives;
        # from here it is too late by the time that the assignment was under way. So this only bounds the start, whose answer says how long it is.
        self.ends = time.monotonic() + seconds(assignment.expires_in)
        self.stop, self.done, self.news = threading.Event(), threading.Event(), {}

    def run(self):
        try:
            if repeat(self.start, self.ends):
                threading.Thread(target=self.heartbeats, daemon=True).start()
                self.report(*self.outcome())
        except grpc.RpcError as error:  # nobody heard it: the lease runs out, and the task goes to somebody
            log.error("%s: %s: %s", self.assignment.attempt_id, error.code(), error.details())

    def start(self):
        return self.renew(self.workers.Start, report_pb2.StartRequest(**self.name))

    def heartbeat(self):
        return self.renew(self.workers.Heartbeat, report_pb2.HeartbeatRequest(**self.news, **self.name), report_pb2.HeartbeatRequest(**self.name))

    def renew(self, call, request, bare=None):
        """Returns whether the lease lives. It is counted from before the call: so it never seems to live longer than it does.
        A request that is refused for what it brings does not say whether the lease lives, and has not renewed it: the bare one does."""
        sent = time.monotonic()
        answer = call(request, timeout=min(CALL, self.left()), wait_for_ready=True)
        if bare and answer.reason == task_pb2.REASON_INVALID_REQUEST:
            log.error("%s: %s", self.assignment.attempt_id, answer.detail)
            return self.renew(call, bare)
        committed = answer.verdict == task_pb2.VERDICT_COMMITTED
        self.ends = sent + seconds(answer.expires_in) if committed else -math.inf
        if answer.HasField("cancel_grace_left"):
            self.ends = min(self.ends, sent + seconds(answer.cancel_grace_left))
        if answer.should_cancel:
            self.stop.set()
        if not committed and not self.done.is_set():  # once it is done, only the report was faster
            log.warning("%s: %s %s", self.assignment.attempt_id, task_pb2.Verdict.Name(answer.verdict), answer.detail)
        return committed

    def left(self):
        return max(self.ends - time.monotonic(), 0)

    def heartbeats(self):
        interval = seconds(self.assignment.heartbeat_interval)
        try:
            while not self.done.wait(min(interval, self.left())) and self.left():
                repeat(self.heartbeat, self.ends, self.done.wait)
        except grpc.RpcError:
            pass  # the lease cannot be renewed any more
        if not self.done.wait(self.left()):
            self.stop.set()

    def outcome(self):
        """Do the work. Returns its output and its error, None if there is none."""
        output = error = None
        try:
            output = bytes(work(self.assignment.task.spec.payload, self.stop, self.news))
        except Exception as err:
            error = failure("USER_CODE", repr(err))
        self.done.set()
        if self.stop.is_set():
            error = failure("CANCELLED", "stopped")
        return output, error

    def report(self, output, error):
        if not self.left():
            log.warning("%s: the lease is lost", self.assignment.attempt_id)
            return
        if error:
            call, request = self.workers.Fail, report_pb2.FailRequest(error=error, **self.name)
        else:
            call, request = self.workers.Complete, report_pb2.CompleteRequest(output=output, **self.name)

        def too_large(error):  # for a message; any other such error has details
            return request.ByteSize() > MESSAGE and error.code() == CODES.RESOURCE_EXHAUSTED and not details(error)

        until = max(self.ends, time.monotonic() + REPORT)
        try:
            answer = repeat(lambda: call(request, timeout=CALL, wait_for_ready=True), until, hopeless=too_large)
        except grpc.RpcError as err:
            if not too_large(err):
                raise
            self.report(None, failure("CONFIGURATION", f"an output of {len(output)} bytes: {err.details()}"))
            return
        level = logging.ERROR if answer.verdict == task_pb2.VERDICT_REJECTED else logging.INFO
        log.log(level, "%s: %s %s", self.assignment.attempt_id, task_pb2.Verdict.Name(answer.verdict), answer.detail)
        if answer.reason == task_pb2.REASON_RESULT_TOO_LARGE:  # the lease lives on
            self.report(None, failure("CONFIGURATION", answer.detail))


def failure(category, message):
    return task_pb2.TaskError(category="ERROR_CATEGORY_" + category, message=message[:10_000])


class Worker:
    """Takes one task after the other, until it is told to end. What runs then is finished."""

    def __init__(self, addr, name, queues):
        self.workers = worker_service_pb2_grpc.WorkerServiceStub(grpc.insecure_channel(addr, CHANNEL))
        self.name, self.queues = name, queues
        self.ending, self.asking = threading.Event(), None

    def run(self):
        while not self.ending.is_set():
            # With the same request_id, an answer that was lost comes again.
            request = worker_service_pb2.LeaseRequest(
                worker_id=self.name, queues=self.queues, wait=Duration(seconds=WAIT), request_id=str(uuid.uuid4())
            )
            try:
                answer = repeat(lambda: self.ask(request), math.inf, self.ending.wait)
            except (grpc.RpcError, grpc.FutureCancelledError):
                if not self.ending.is_set():
                    raise
            else:
                for assignment in answer.assignments:
                    Attempt(self.workers, assignment).run()

    def ask(self, request):
        self.asking = self.workers.Lease.future(request, timeout=WAIT + CALL, wait_for_ready=True)
        if self.ending.is_set():
            self.asking.cancel()
        return self.asking.result()

    def end(self, number, _):
        signal.signal(number, signal.SIG_DFL)  # the second one kills
        self.ending.set()
        if self.asking:
            self.asking.cancel()  # the coordinator then grants us nothing


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--addr", default="127.0.0.1:7420", help="gRPC of the coordinator")
    parser.add_argument("--queue", action="append", required=True, help="where to take tasks from; repeatable")
    parser.add_argument("--name", default=os.environ.get("LESSOR_WORKER_ID") or socket.gethostname(), help="name of this worker")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    worker = Worker(args.addr, args.name, args.queue)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.end)
    # The main thread does nothing but wait, so that it holds no lock that end() needs. It wakes up often, as it may not notice a signal in its sleep.
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        running = threads.submit(worker.run)
        while not running.done():
            concurrent.futures.wait([running], timeout=0.5)
        running.result()


if __name__ == "__main__":
    main()
