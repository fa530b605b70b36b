// The services of Lessor, made from the protos at run time, and the few types of protobuf that need a word.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const protos = fileURLToPath(new URL("../../proto", import.meta.url));

const { lessor } = grpc.loadPackageDefinition(
  loadSync(["lessor/v1/task_service.proto", "lessor/v1/worker_service.proto", "lessor/v1/admin_service.proto"], {
    includeDirs: [protos],
    longs: String, // 64-bit numbers do not fit into a number
    enums: String,
    defaults: true, // an empty list is [], an absent message null
    oneofs: true, // frame.payload names the payload that is set
  }),
);

// connect returns a client of each service, over one connection to address. It speaks plaintext, as the coordinator does on loopback, unless ca has the
// authority of the coordinator's certificate, in PEM. token, which needs TLS, returns the bearer token; it is asked for each call and stream, so that a
// token can be replaced.
export function connect(address, { ca, token } = {}) {
  let credentials = ca ? grpc.credentials.createSsl(ca) : grpc.credentials.createInsecure();
  if (token) credentials = grpc.credentials.combineChannelCredentials(credentials, bearer(token));
  const options = {
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 2_000, // a coordinator that restarts is soon back
    "grpc.max_receive_message_length": -1, // the coordinator's limits decide; without this a payload over 4 MiB ends every stream that brings it
  };
  return {
    tasks: new lessor.v1.TaskService(address, credentials, options),
    workers: new lessor.v1.WorkerService(address, credentials, options),
    admin: new lessor.v1.AdminService(address, credentials, options),
  };
}

function bearer(token) {
  return grpc.credentials.createFromMetadataGenerator((_, done) => {
    try {
      const metadata = new grpc.Metadata();
      metadata.set("authorization", `Bearer ${token()}`);
      done(null, metadata);
    } catch (err) {
      done(err);
    }
  });
}

// millis of a google.protobuf.Duration; an absent one is 0.
export const millis = (d) => (d ? Number(d.seconds ?? 0) * 1000 + (d.nanos ?? 0) / 1e6 : 0);

// call makes a unary call and returns a promise of its answer.
export const call = (client, method, request) =>
  new Promise((resolve, reject) => client[method](request, (err, answer) => (err ? reject(err) : resolve(answer))));
