"""A client of Lessor's HTTP API, for workers: leases, heartbeats, reports. Standard library only.

What it holds to, as every worker must:

- An attempt begins once its start is COMMITTED, and stops when its lease has run out on this machine's own monotonic clock, counted from
  before the request that renewed it: the clocks of two machines are never compared.
- 409 and 410 are verdicts: the result is discarded and nothing is tried again. So are 400, 401, 403 and 413, which are faults of the worker.
- Only what has no verdict (no connection, 408, 429, 5xx) is repeated: unchanged, with backoff, a bounded number of times.
"""

import base64
import http.client
import json
import logging
import random
import threading
import time
import traceback
import urllib.error
import urllib.request

TRIES = 8  # of a request without a verdict; with the backoff below that is about half a minute
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 10.0  # seconds
LONGEST_WAIT = 60.0  # that a Retry-After is heeded for
REQUEST_TIMEOUT = 15.0
MOST_TEXT = 10_000  # characters of a message or a stack trace; one of more than 64 KiB is refused
log = logging.getLogger("lessor")


class Refused(Exception):
    """A verdict that is not COMMITTED, or a request that will never be accepted. It is not repeated."""

    def __init__(self, status, body):
        super().__init__(f"{status} {body.get('error')}: {body.get('message')}")
        self.status, self.body = status, body

    @property
    def lost(self):
        """The attempt is not ours any more: stop, discard, no outside effects."""
        return self.status in (409, 410)


class NoVerdict(Exception):
    """Nobody knows whether the request was heard. The coordinator may have said when to ask again."""

    def __init__(self, message, retry_after=0.0):
        super().__init__(message)
        self.retry_after = retry_after


class Stopped(Exception):
    """Raised inside of a handler that is to stop: it was cancelled, or its lease is lost."""


class Failure(Exception):
    """Raised by a handler to say how it failed: USER_CODE, DATA_QUALITY, INFRASTRUCTURE, CONFIGURATION or TIMEOUT."""

    def __init__(self, category, message):
        super().__init__(message)
        self.category = category


def post(url, body, token=None, timeout=REQUEST_TIMEOUT):
    """Say something once. Returns the answer of a 200 or 201; raises Refused or NoVerdict."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        return answer_to(request, timeout)
    except (OSError, http.client.HTTPException, ValueError) as err:  # no connection, a broken one, half an answer
        raise NoVerdict(f"{url}: {err}") from err


def answer_to(request, timeout):
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as err:
        with err:
            text = err.read()
        if err.code in (408, 429) or err.code >= 500:
            raise NoVerdict(f"{err.code}", seconds(err.headers.get("Retry-After"))) from err
        try:
            raise Refused(err.code, json.loads(text)) from None
        except ValueError:
            raise Refused(err.code, {"error": "unknown", "message": text[:200]}) from None


def seconds(text):
    """A Retry-After, which the coordinator says in seconds; 0 for none."""
    return float(text) if text and text.isdecimal() else 0.0


def insist(say, tries=TRIES, give_up=lambda: False, pause=None):
    """Repeat what has no verdict, unchanged. pause(seconds) waits in between; by default time.sleep."""
    wait = FIRST_BACKOFF
    for left in range(tries - 1, -1, -1):
        try:
            return say()
        except NoVerdict as err:
            if not left or give_up():
                raise
            after = max(wait * random.uniform(0.8, 1.2), min(err.retry_after, LONGEST_WAIT))
            log.warning("no verdict, again in %.1f s: %s", after, err)
        (pause or time.sleep)(after)
        wait = min(2 * wait, LONGEST_BACKOFF)


class Credential:
    """What a coordinator that asks for credentials is shown: a token, or one in a file that is read again each time, so that it can be replaced."""

    def __init__(self, token=None, file=None):
        self._token, self._file = token, file

    def token(self):
        if not self._file:
            return self._token and self._token.strip()
        with open(self._file, encoding="ascii") as file:
            return file.read().strip()


def lease(base_url, worker_id, queues, wait_ms, token=None):
    """Ask for one task; None where there was none in time. A repeat with the same requestId gets the same task."""
    ask = {"workerId": worker_id, "queues": queues, "maxTasks": 1, "waitMs": wait_ms, "requestId": f"{random.getrandbits(64):x}"}
    timeout = wait_ms / 1000 + REQUEST_TIMEOUT
    granted = insist(lambda: post(base_url + "/v1/leases", ask, token, timeout))["assignments"]
    return granted[0] if granted else None


class Attempt:
    """One granted task, from its envelope (an assignment, as JSON) to its report."""

    def __init__(self, envelope, worker_id):
        self.envelope, self.worker_id = envelope, worker_id
        self.url = f"{envelope['callbackBaseUrl']}/v1/tasks/{envelope['taskId']}"
        self.token = envelope["taskToken"]
        # An envelope may have been under way for a while, so how much of its lease is left is not known: the start tells.
        self.expires = time.monotonic() + envelope["expiresInMs"] / 1000
        self.cancelled, self.lost = threading.Event(), threading.Event()
        self.reason = ""
        self._progress, self._checkpoint = {}, None
        self._done = threading.Event()

    @property
    def payload(self):
        return content(self.envelope, "payload")

    @property
    def checkpoint(self):
        """What the last attempt has left for this one."""
        return content(self.envelope, "checkpoint")

    def progress(self, pct, message="", checkpoint=None):
        """Tell how far it is, with the next heartbeat. Raises Stopped when there is no point in going on: call it often."""
        json.dumps([pct, checkpoint], allow_nan=False)  # what is no JSON raises here, in the handler, and does not end the heartbeats
        self._progress = {"progressPct": pct, "message": str(message)[:MOST_TEXT]}
        if checkpoint is not None:
            self._checkpoint = checkpoint
        if self.lost.is_set() or time.monotonic() >= self.expires:
            self.lost.set()
            raise Stopped("the lease is lost")
        if self.cancelled.is_set():
            raise Stopped(self.reason)

    def run(self, handler):
        """Start, run the handler beside the heartbeats, report. Returns the final state, None where the attempt was lost."""
        if not self._start():
            return None
        beats = threading.Thread(target=self._beat, daemon=True)
        beats.start()
        try:
            report = self._work(handler)
        finally:
            self._done.set()
            beats.join()
        return None if report is None else self._report(report)

    def _start(self):
        try:
            self._renew("started", {})
        except Refused as err:
            return self._refused(err)
        return True

    def _work(self, handler):
        """Run the handler; its report, or None where there is nobody to report to."""
        try:
            output = as_field("output", handler(self))
        except Stopped:
            if self.lost.is_set():
                return None
            return {"outcome": "CANCELLED", "cancelledDuringPhase": "running", "partialProgress": self._progress}
        except Failure as err:
            return {"outcome": "FAILED", "error": {"category": err.category, "message": str(err)[:MOST_TEXT]}}
        except Exception as err:  # whatever the handler did not expect
            message, trace = f"{type(err).__name__}: {err}"[:MOST_TEXT], "".join(traceback.format_tb(err.__traceback__))[-MOST_TEXT:]
            return {"outcome": "FAILED", "error": {"category": "USER_CODE", "message": message, "stackTrace": trace}}
        return None if self.lost.is_set() else {"outcome": "SUCCEEDED", **output}

    def _report(self, report):
        try:
            return insist(lambda: self._say("completed", report))["finalState"]
        except Refused as err:
            if err.status == 413 and report["outcome"] == "SUCCEEDED":  # the lease lives on
                return self._report({"outcome": "FAILED", "error": {"category": "CONFIGURATION", "message": str(err)}})
            self._refused(err)
            return None

    def _beat(self):
        """Heartbeats, until the handler is done or the attempt is lost."""
        while not self._done.wait(self.envelope["heartbeatIntervalMs"] / 1000):
            beat = dict(self._progress)
            if self._checkpoint is not None:
                beat["checkpoint"] = self._checkpoint
            try:
                self._renew_with(beat)
            except Refused as err:
                self._refused(err)
                return
            except NoVerdict:
                pass  # the next one will tell, or the lease runs out

    def _renew_with(self, beat):
        """A heartbeat that is refused for what it brings has renewed nothing, and does not say whether the lease lives: a bare one does."""
        try:
            self._renew("heartbeat", beat)
        except Refused as err:
            if err.status not in (400, 413) or not beat:
                raise
            log.error("%s", err)
            self._renew("heartbeat", {})

    def _renew(self, verb, said):
        asked = time.monotonic()
        over = lambda: self._done.is_set() or time.monotonic() >= self.expires
        answer = insist(lambda: self._say(verb, said), give_up=over, pause=self._done.wait)  # the report must not wait for a heartbeat's backoff
        self.expires = asked + min(answer["expiresInMs"], answer.get("cancelGraceLeftMs", answer["expiresInMs"])) / 1000
        self.token = answer["taskToken"]
        if answer["shouldCancel"]:
            self.reason = answer.get("cancelReason", "")
            self.cancelled.set()

    def _say(self, verb, said):
        claim = {"attempt": self.envelope["attempt"], "attemptId": self.envelope["attemptId"], "workerId": self.worker_id}
        return post(f"{self.url}/{verb}", {**claim, **said}, self.token)

    def _refused(self, err):
        """The attempt is lost. Where the fault is the worker's, its owner is to know."""
        self.lost.set()
        if not err.lost:
            raise err
        return False


def as_field(name, value):
    """A value as a field of a body: any JSON, or bytes. Raises TypeError or ValueError for what is neither."""
    if isinstance(value, bytes):
        return {name + "Base64": base64.b64encode(value).decode()}
    json.dumps(value, allow_nan=False)
    return {name: value}


def content(envelope, name):
    """A value that was sent as JSON, or the bytes that were not."""
    raw = envelope.get(name + "Base64")
    return envelope.get(name) if raw is None else base64.b64decode(raw)
