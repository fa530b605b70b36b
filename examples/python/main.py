"""A worker for tasks that count: the payload {"to": 30} counts to 30. Put your own handler in the place of count.

    python3 main.py --addr http://127.0.0.1:7421 --queue numbers     leases by long poll, one task after the other
    python3 main.py --envelope FILE                                  runs the one task of an assignment; - is standard input
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import time

import lessor

POLL_MS = 20_000


def count(task):
    """The handler: the task in, its output out. It goes on from where an earlier attempt has come to."""
    if not isinstance(task.payload, dict) or not isinstance(task.payload.get("to"), int):
        raise lessor.Failure("DATA_QUALITY", 'the payload is not of the form {"to": 30}')
    to, done = task.payload["to"], (task.checkpoint or {}).get("done", 0)
    for n in range(done + 1, to + 1):
        time.sleep(task.payload.get("each", 0.1))
        task.progress(100 * n / to, f"{n} of {to}", checkpoint={"done": n})
    return {"counted": to, "from": done}


class Signals:
    """SIGTERM and SIGINT end a wait for work at once, and let what runs finish. The second one kills."""

    def __init__(self):
        self._came = self._waiting = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def _take(self, number, _):
        signal.signal(number, signal.SIG_DFL)
        self._came = True
        if self._waiting:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interrupt(self):
        """Raise KeyboardInterrupt when a signal comes, or has come. A task that was granted just then goes to others once its lease has run out."""
        self._waiting = True
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False


def serve(args, signals):
    """Take tasks until a signal comes; what runs then is finished. False where the coordinator will never give it any."""
    credential = lessor.Credential(os.environ.get("LESSOR_TOKEN"), os.environ.get("LESSOR_TOKEN_FILE"))
    while True:
        try:
            with signals.interrupt():
                envelope = lessor.lease(args.addr, args.name, args.queue, args.poll_ms, credential.token())
        except KeyboardInterrupt:
            return True
        except lessor.NoVerdict as err:  # the coordinator is away
            say("no answer", reason=str(err))
            continue
        except (lessor.Refused, OSError) as err:  # a credential that has ended, a queue with a bad name, no such token file
            say("refused", reason=str(err))
            return False
        if envelope:
            run(envelope, args.name)


def run(envelope, name):
    """Run one attempt, and say how it ended."""
    try:
        state = lessor.Attempt(envelope, name).run(count)
    except lessor.NoVerdict as err:  # the lease runs out, and another attempt follows
        state = None
        say("not heard", attempt=envelope["attemptId"], reason=str(err))
    except lessor.Refused as err:  # a fault of this worker, in this attempt; the next one may be well
        state = None
        say("refused", attempt=envelope["attemptId"], reason=str(err))
    say("ended", attempt=envelope["attemptId"], state=state or "LOST")
    return state


def say(what, **more):
    print(json.dumps({"event": what, **more}), flush=True)


def read(name):
    with sys.stdin if name == "-" else open(name, encoding="utf-8") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addr", default="http://127.0.0.1:7421", help="HTTP of the coordinator")
    parser.add_argument("--queue", action="append", help="where to take tasks from; repeatable")
    parser.add_argument("--envelope", metavar="FILE", help="an assignment to run")
    parser.add_argument("--name", default=socket.gethostname(), help="name of this worker")
    parser.add_argument("--poll-ms", type=int, default=POLL_MS, help="how long one request for work waits")
    args = parser.parse_args()
    if args.envelope:
        sys.exit(0 if run(read(args.envelope), args.name) == "SUCCEEDED" else 1)
    if not args.queue:
        parser.error("name a --queue or an --envelope")
    signals = Signals()
    say("serving", queues=args.queue)
    sys.exit(0 if serve(args, signals) else 1)


if __name__ == "__main__":
    main()
