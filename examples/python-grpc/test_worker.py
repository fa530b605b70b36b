"""The worker against the real coordinator: build it first (make build), and make the stubs. python3 -m unittest"""

import json
import os
import re
import subprocess
import tempfile
import threading
import unittest
import unittest.mock

import grpc
import worker
from google.protobuf.duration_pb2 import Duration
from lessor.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc, worker_service_pb2, worker_service_pb2_grpc

BINARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bin", "lessor")
worker.log.disabled = True


class Counting:
    """The calls of a worker. It counts those of Complete, and lets the first ones fail with errors. It keeps the verdicts on heartbeats."""

    def __init__(self, workers, errors=()):
        self.workers, self.errors, self.completed = workers, list(errors), 0
        self.renewed, self.verdicts = threading.Event(), []

    def __getattr__(self, name):
        return getattr(self.workers, name)

    def Complete(self, *args, **options):
        self.completed += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.workers.Complete(*args, **options)

    def Heartbeat(self, *args, **options):
        answer = self.workers.Heartbeat(*args, **options)
        self.verdicts.append(answer.verdict)
        if answer.verdict == task_pb2.VERDICT_COMMITTED:
            self.renewed.set()
        return answer


class Refused(grpc.RpcError):
    """RESOURCE_EXHAUSTED, as the coordinator says it of anything but a message that is too large: with details."""

    def code(self):
        return worker.CODES.RESOURCE_EXHAUSTED

    def details(self):
        return "too much waits"

    def trailing_metadata(self):
        status = worker.retry_pb2.Status()
        status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo")
        return (("grpc-status-details-bin", status.SerializeToString()),)


class Attempts(unittest.TestCase):
    def setUp(self):
        data = tempfile.TemporaryDirectory(prefix="lessor-python-grpc-")
        self.addCleanup(data.cleanup)
        serve = [BINARY, "serve", "--data", data.name, "--listen", "127.0.0.1:0", "--http", "", "--json", "--limit-output", "8MiB"]
        self.process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait, 30)
        self.addCleanup(self.process.terminate)
        self.channel = grpc.insecure_channel(json.loads(self.process.stdout.readline())["grpc"], worker.CHANNEL)
        self.addCleanup(self.channel.close)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(self.channel)

    def attempt(self, work, errors=(), **spec):
        """Execute a task. Returns the calls that the worker has made, and what became of the task."""
        submit = task_service_pb2.SubmitTaskRequest(task={"queue": "q", **spec})
        task = self.tasks.SubmitTask(submit, timeout=30).task.task_id
        calls = Counting(worker_service_pb2_grpc.WorkerServiceStub(self.channel), errors)
        granted = calls.Lease(worker_service_pb2.LeaseRequest(worker_id="w", queues=["q"]), timeout=30)
        with unittest.mock.patch.object(worker, "work", lambda payload, stop, news: work(calls, stop, news)):
            worker.Attempt(calls, granted.assignments[0]).run()
        return calls, self.tasks.GetTask(task_service_pb2.GetTaskRequest(task_id=task), timeout=30).task

    def test_too_large_for_a_message(self):
        """K5: an output that fits into no message is not sent again: the attempt fails at once, and is not retried."""
        calls, task = self.attempt(lambda *_: bytes(32 << 20))
        self.assertEqual(calls.completed, 1)
        self.assertEqual(task.state, task_pb2.TASK_STATE_FAILED)
        self.assertEqual(task.error.category, task_pb2.ERROR_CATEGORY_CONFIGURATION)
        self.assertRegex(task.error.message, re.escape(str(32 << 20)))

    def test_refused_for_a_while(self):
        """K5: a large output that the coordinator refuses for another reason is sent again."""
        calls, task = self.attempt(lambda *_: bytes(6 << 20), [Refused()])
        self.assertEqual((calls.completed, task.state), (2, task_pb2.TASK_STATE_COMPLETED))

    def test_too_large_a_checkpoint(self):
        """A heartbeat that is refused for its checkpoint does not end the attempt: a bare one, right after it, renews the lease."""

        def work(calls, stop, news):
            news["checkpoint"] = bytes((64 << 10) + 1)
            calls.renewed.wait(30)
            return b""

        calls, task = self.attempt(work, heartbeat_interval=Duration(nanos=50_000_000), heartbeat_timeout=Duration(seconds=30))
        self.assertEqual(calls.verdicts[:2], [task_pb2.VERDICT_REJECTED, task_pb2.VERDICT_COMMITTED])
        self.assertEqual(task.state, task_pb2.TASK_STATE_COMPLETED)


if __name__ == "__main__":
    unittest.main()
