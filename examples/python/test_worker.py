"""The worker against the real coordinator: build it first (make build). python3 -m unittest"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import lessor
import main

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.join(HERE, "..", "..", "bin", "lessor")
lessor.log.disabled = True
PATIENCE = 30  # seconds, for what must happen
SILENCE_MS = 30_000  # of a worker that lives, on a machine that stands still for seconds now and then


class Coordinator:
    """A process of lessor serve, which may be killed and started again on the same data and port."""

    def __init__(self, *flags):
        self.data = tempfile.TemporaryDirectory(prefix="lessor-python-")
        self.http, self.flags = "127.0.0.1:0", flags
        self.start()

    def start(self):
        args = ["serve", "--data", self.data.name, "--listen", "127.0.0.1:0", "--http", self.http, "--json", "--log-level", "error", *self.flags]
        self.process = subprocess.Popen([BINARY, *args], stdout=subprocess.PIPE)
        self.http = json.loads(self.process.stdout.readline())["http"]
        self.url = "http://" + self.http

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def close(self):
        self.kill()
        self.data.cleanup()

    def submit(self, queue, payload, **more):
        return lessor.post(self.url + "/v1/tasks", {"queue": queue, "payload": payload, **more})["task"]["taskId"]

    def cancel(self, task):
        return lessor.post(f"{self.url}/v1/tasks/{task}:cancel", {"reason": "not needed"})

    def get(self, task):
        with urllib.request.urlopen(f"{self.url}/v1/tasks/{task}") as answer:
            return json.load(answer)["task"]

    def until(self, task, accept):
        """The events of the task up to the first that is accepted."""
        with urllib.request.urlopen(f"{self.url}/v1/tasks/{task}/events", timeout=PATIENCE) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if accept(event):
                        return event
        raise AssertionError("the stream ended before")


def became(state):
    return lambda event: event.get("event") and event["state"] == state


class Worker:
    """A process of main.py, and what it says."""

    def __init__(self, *args, stdin=None):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "main.py"), "--poll-ms", "1000", *args],
                                        stdin=subprocess.PIPE if stdin else None, stdout=subprocess.PIPE, text=True)
        if stdin:
            self.process.stdin.write(stdin)
            self.process.stdin.close()

    def heard(self, event):
        for line in self.process.stdout:
            said = json.loads(line)
            if said["event"] == event:
                return said
        raise AssertionError(f"it ended without {event}")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class WorkerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.coordinator = Coordinator()
        cls.addClassCleanup(cls.coordinator.close)

    def worker(self, *args, **more):
        worker = Worker("--addr", self.coordinator.url, *args, **more)
        self.addCleanup(worker.close)
        return worker

    def test_it_leases_and_completes(self):
        task = self.coordinator.submit("q1", {"to": 3})
        self.worker("--queue", "q1")
        self.coordinator.until(task, became("COMPLETED"))
        done = self.coordinator.get(task)
        self.assertEqual((done["output"], done["attempt"]), ({"counted": 3, "from": 0}, 1))
        self.assertIn("STARTED", [event["type"] for event in done["history"]])

    def test_its_heartbeats_renew_the_lease(self):
        task = self.coordinator.submit("q10", {"to": 10_000}, heartbeatIntervalMs=100, heartbeatTimeoutMs=SILENCE_MS)
        self.worker("--queue", "q10")
        self.coordinator.until(task, became("RUNNING"))
        renewals, deadline = set(), time.monotonic() + PATIENCE
        while len(renewals) < 3 and time.monotonic() < deadline:
            held = self.coordinator.get(task)
            self.assertEqual((held["state"], held["attempt"]), ("RUNNING", 1))
            renewals.update({held["lease"].get("heartbeatAt")} - {None})
            time.sleep(0.02)
        self.assertEqual(len(renewals), 3)

    def test_it_is_handed_its_envelope(self):
        task = self.coordinator.submit("q2", {"to": 2})
        envelope = lessor.lease(self.coordinator.url, "w", ["q2"], 0)
        worker = self.worker("--envelope", "-", stdin=json.dumps(envelope))
        self.assertEqual(worker.heard("ended")["state"], "SUCCEEDED")
        self.assertEqual(worker.process.wait(PATIENCE), 0)
        self.assertEqual(self.coordinator.get(task)["state"], "COMPLETED")

    def test_should_cancel_stops_it(self):
        task = self.coordinator.submit("q3", {"to": 10_000}, heartbeatIntervalMs=50, heartbeatTimeoutMs=SILENCE_MS)
        worker = self.worker("--queue", "q3")
        self.coordinator.until(task, became("RUNNING"))
        self.coordinator.cancel(task)
        self.assertEqual(worker.heard("ended")["state"], "CANCELLED")
        self.assertEqual(self.coordinator.get(task)["partialProgress"].keys(), {"progressPct", "message"})

    def test_409_before_the_start_begins_nothing(self):
        task = self.coordinator.submit("q4", {"to": 10_000})
        envelope = lessor.lease(self.coordinator.url, "w", ["q4"], 0)
        self.coordinator.cancel(task)
        self.assertIsNone(lessor.Attempt(envelope, "w").run(lambda _: self.fail("the handler ran")))
        self.assertEqual(self.coordinator.get(task)["state"], "CANCELLED")

    def test_410_stops_it_and_nothing_is_reported(self):
        task = self.coordinator.submit("q5", {}, heartbeatIntervalMs=50, heartbeatTimeoutMs=200)
        attempt = lessor.Attempt(lessor.lease(self.coordinator.url, "w", ["q5"], 0), "w")

        def pause(running):  # as a machine that slept: no heartbeat, and its own clock stood still
            running._say = lambda verb, said: self.fail("it was reported") if verb == "completed" else say(verb, said)
            with unittest.mock.patch.object(lessor, "post", side_effect=lessor.NoVerdict("asleep")):
                self.coordinator.until(task, lambda event: event.get("event", {}).get("type") == "LEASE_ENDED")
            running.expires = float("inf")
            self.assertTrue(running.lost.wait(PATIENCE))
            return "too late"

        say = attempt._say
        self.assertIsNone(attempt.run(pause))
        self.assertEqual(self.coordinator.get(task)["attempt"], 1)

    def test_a_lease_that_ran_out_by_its_own_clock_stops_it(self):
        attempt = lessor.Attempt({"callbackBaseUrl": "", "taskId": "t", "taskToken": "", "expiresInMs": 0}, "w")
        with self.assertRaises(lessor.Stopped):
            attempt.progress(1)
        self.assertTrue(attempt.lost.is_set())

    def test_the_end_of_the_grace_is_the_end_of_the_lease(self):
        envelope = {"callbackBaseUrl": "", "taskId": "t", "taskToken": "", "attempt": 1, "expiresInMs": 60_000, "heartbeatIntervalMs": 60_000}
        attempt, said = lessor.Attempt(envelope, "w"), []

        def say(verb, _):
            said.append(verb)
            return {"expiresInMs": 60_000, "taskToken": "", "shouldCancel": True, "cancelGraceLeftMs": 0}

        attempt._say = say
        self.assertIsNone(attempt.run(lambda running: running.progress(1)))
        self.assertEqual(said, ["started"])

    def test_a_bad_payload_fails_for_good(self):
        task = self.coordinator.submit("q6", {"to": "many"})
        worker = self.worker("--queue", "q6")
        self.assertEqual(worker.heard("ended")["state"], "FAILED")
        failed = self.coordinator.get(task)
        self.assertEqual((failed["state"], failed["error"]["category"]), ("FAILED", "DATA_QUALITY"))

    def test_an_output_that_is_too_large_fails_the_task(self):
        for size in (2 << 20, 6 << 20):  # over the limit of an output, and of a body
            task = self.coordinator.submit("q11", {})
            attempt = lessor.Attempt(lessor.lease(self.coordinator.url, "w", ["q11"], 0), "w")
            self.assertEqual(attempt.run(lambda _: "x" * size), "FAILED")
            failed = self.coordinator.get(task)
            self.assertEqual((failed["state"], failed["error"]["category"]), ("FAILED", "CONFIGURATION"))

    def test_a_checkpoint_that_is_too_large_does_not_end_the_attempt(self):
        for size in (100_000, 6 << 20):  # over the limit of a checkpoint, and of a body
            self.coordinator.submit("q14", {}, heartbeatIntervalMs=50, heartbeatTimeoutMs=SILENCE_MS)
            attempt, renewed = lessor.Attempt(lessor.lease(self.coordinator.url, "w", ["q14"], 0), "w"), threading.Event()
            say = attempt._say

            def saying(verb, said):
                answer = say(verb, said)
                if verb == "heartbeat":
                    renewed.set()
                return answer

            def handle(running):
                running.progress(1, checkpoint="x" * size)
                self.assertTrue(renewed.wait(PATIENCE))

            attempt._say = saying
            self.assertEqual(attempt.run(handle), "SUCCEEDED")

    def test_an_output_may_be_bytes(self):
        task = self.coordinator.submit("q12", {})
        attempt = lessor.Attempt(lessor.lease(self.coordinator.url, "w", ["q12"], 0), "w")
        self.assertEqual(attempt.run(lambda _: b"\xff\x00"), "SUCCEEDED")
        self.assertEqual(lessor.content(self.coordinator.get(task), "output"), b"\xff\x00")

    def test_what_is_no_json_is_a_failure_of_the_handler(self):
        for handler in (lambda _: {1, 2}, lambda _: float("nan"), lambda attempt: attempt.progress(1, checkpoint={1, 2})):
            task = self.coordinator.submit("q13", {}, retryPolicy={"maxAttempts": 1})
            attempt = lessor.Attempt(lessor.lease(self.coordinator.url, "w", ["q13"], 0), "w")
            self.assertEqual(attempt.run(handler), "FAILED")
            self.assertEqual(self.coordinator.get(task)["error"]["category"], "USER_CODE")

    def test_a_report_does_not_wait_for_the_backoff_of_a_heartbeat(self):
        envelope = {"callbackBaseUrl": "", "taskId": "t", "taskToken": "", "attempt": 1, "expiresInMs": 60_000, "heartbeatIntervalMs": 1}
        attempt, beaten = lessor.Attempt(envelope, "w"), threading.Event()

        def say(verb, _):
            if verb == "heartbeat":
                beaten.set()
                raise lessor.NoVerdict("overloaded", retry_after=45)
            return {"expiresInMs": 60_000, "taskToken": "", "shouldCancel": False, "finalState": "SUCCEEDED"}

        attempt._say = say
        with unittest.mock.patch.object(time, "sleep") as slept:
            self.assertEqual(attempt.run(lambda _: beaten.wait(PATIENCE)), "SUCCEEDED")
        slept.assert_not_called()

    def test_a_refused_attempt_does_not_end_the_worker(self):
        envelope = {"callbackBaseUrl": self.coordinator.url, "taskId": "t1", "taskToken": "old", "attempt": 1, "attemptId": "t1-1", "expiresInMs": 1}
        with unittest.mock.patch.object(main, "say") as said:
            self.assertIsNone(main.run(envelope, "w"))
        self.assertEqual([call.args[0] for call in said.call_args_list], ["refused", "ended"])

    def test_the_next_attempt_goes_on_from_the_checkpoint(self):
        # So many steps that the first worker is far from their end when it is killed, on a busy machine, too.
        task = self.coordinator.submit("q7", {"to": 40}, heartbeatIntervalMs=50, heartbeatTimeoutMs=3_000, retryPolicy={"maxLosses": 1000})
        first = self.worker("--queue", "q7")
        self.coordinator.until(task, lambda event: event.get("progress", {}).get("progressPct", 0) > 0)
        first.close()  # kill -9
        self.worker("--queue", "q7")
        self.coordinator.until(task, became("COMPLETED"))
        done = self.coordinator.get(task)
        self.assertGreaterEqual(done["attempt"], 2)  # more where the machine stood still for three seconds
        self.assertGreater(done["output"]["from"], 0)

    def test_sigterm_finishes_what_runs(self):
        task = self.coordinator.submit("q8", {"to": 10})
        worker = self.worker("--queue", "q8")
        self.coordinator.until(task, became("RUNNING"))
        worker.process.send_signal(signal.SIGTERM)
        self.assertEqual(worker.heard("ended")["state"], "SUCCEEDED")
        self.assertEqual(worker.process.wait(PATIENCE), 0)

    def test_sigterm_ends_a_wait_for_work(self):
        asked = threading.Event()

        class Silent(BaseHTTPRequestHandler):
            def do_POST(self):
                asked.set()
                self.rfile.read()  # until the worker hangs up

        server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        worker = Worker("--addr", f"http://127.0.0.1:{server.server_port}", "--queue", "q", "--poll-ms", "3600000")
        self.addCleanup(worker.close)
        self.assertTrue(asked.wait(PATIENCE))
        worker.process.send_signal(signal.SIGTERM)
        self.assertEqual(worker.process.wait(PATIENCE), 0)

    def test_a_long_message_of_an_error_is_cut(self):
        task = self.coordinator.submit("q11", None, retryPolicy={"maxAttempts": 1})

        def fails(_):
            raise RuntimeError("x" * 200_000)

        self.assertEqual(lessor.Attempt(lessor.lease(self.coordinator.url, "w", ["q11"], 1000), "w").run(fails), "FAILED")
        error = self.coordinator.get(task)["error"]
        self.assertEqual(error["message"][:15], "RuntimeError: x")
        self.assertIn("in fails", error["stackTrace"])

    def test_a_coordinator_that_is_killed_and_comes_back_is_a_blink(self):
        coordinator = Coordinator()
        self.addCleanup(coordinator.close)
        task = coordinator.submit("q9", {"to": 20}, heartbeatIntervalMs=100, heartbeatTimeoutMs=SILENCE_MS)
        worker = Worker("--addr", coordinator.url, "--queue", "q9")
        self.addCleanup(worker.close)
        coordinator.until(task, became("RUNNING"))
        coordinator.kill()
        coordinator.start()
        self.assertEqual(worker.heard("ended")["state"], "SUCCEEDED")
        self.assertEqual(coordinator.get(task)["attempt"], 1)


class CredentialTest(unittest.TestCase):
    """The credential lies in a file that can be replaced; without a good one the worker ends with words, not with a traceback."""

    def test_a_new_token_takes_the_place_of_the_old_one(self):
        with tempfile.NamedTemporaryFile("w", suffix=".token") as file:
            credential = lessor.Credential("unused", file.name)
            for token in ("one", "two"):
                file.seek(0)
                file.write(token + "\n")
                file.flush()
                self.assertEqual(credential.token(), token)
        self.assertEqual(lessor.Credential("static\n").token(), "static")  # no header can have a line end, and the error would print the token
        self.assertIsNone(lessor.Credential().token())

    def test_without_a_good_credential_it_ends(self):
        coordinator = Coordinator("--auth")
        self.addCleanup(coordinator.close)
        for args in ({}, {"LESSOR_TOKEN": "lsr_bad"}, {"LESSOR_TOKEN_FILE": "/nonexistent"}):
            with unittest.mock.patch.dict(os.environ, args):
                worker = Worker("--addr", coordinator.url, "--queue", "q")
            self.addCleanup(worker.close)
            self.assertTrue(worker.heard("refused")["reason"])
            self.assertEqual(worker.process.wait(PATIENCE), 1)


class Scripted(BaseHTTPRequestHandler):
    """Answers as the server's list says; a None hangs up without a word, and a status below zero within its answer."""

    def do_POST(self):
        self.server.heard.append(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answers.pop(0)
        if status is None:
            return
        self.send_response(abs(status))
        if status < 0:
            self.send_header("Content-Length", "1000")
        if status == 429:
            self.send_header("Retry-After", "45")
        self.end_headers()
        self.wfile.write(json.dumps({"error": "scripted", "message": ""}).encode())

    def log_message(self, *_):
        pass


class InsistTest(unittest.TestCase):
    """What has no verdict is repeated, unchanged, a bounded number of times; what has one is not."""

    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
        self.server.heard = []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.slept = self.enterContext(unittest.mock.patch.object(time, "sleep"))

    def say(self, *answers):
        self.server.answers = list(answers)
        return lessor.insist(lambda: lessor.post(f"http://127.0.0.1:{self.server.server_port}/", {"attempt": 1}))

    def test_no_verdict_is_repeated_unchanged(self):
        self.assertEqual(self.say(None, 503, 408, 500, -200, -503, -409, 200)["error"], "scripted")
        self.assertEqual(set(self.server.heard), {b'{"attempt": 1}'})
        self.assertEqual(len(self.server.heard), 8)

    def test_retry_after_is_heeded(self):
        self.say(429, 503, 200)
        first, second = (call.args[0] for call in self.slept.call_args_list)
        self.assertGreaterEqual(first, 45)
        self.assertLess(second, 45)

    def test_it_is_bounded(self):
        with self.assertRaises(lessor.NoVerdict):
            self.say(*[503] * 100)
        self.assertEqual(len(self.server.heard), lessor.TRIES)

    def test_a_verdict_is_final(self):
        for status in (400, 401, 403, 409, 410, 413):
            self.server.heard.clear()
            with self.assertRaises(lessor.Refused) as refused:
                self.say(status, 200)
            self.assertEqual((refused.exception.lost, len(self.server.heard)), (status in (409, 410), 1))


if __name__ == "__main__":
    unittest.main()
