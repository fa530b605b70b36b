// Package reqcodec decodes requests, so that a bad one costs little and is answered like any other
// mistake of its caller.
//
// A message can take a hundred times its size when it is decoded: bounds.go refuses it before (X5).
// A message that cannot be decoded, for example because of invalid UTF-8, is the caller's fault.
// But protobuf refuses it before any handler runs and without naming the field, and grpc-go then
// answers INTERNAL, as if it were the coordinator's fault. So the handlers of the services are
// wrapped (guard.go), and the codec never returns a decoding error to grpc (request.go). A request
// that cannot be decoded gets INVALID_ARGUMENT with the path of the field. A report, Start or
// Heartbeat gets the verdict that the rules have for a malformed field (V1).
package reqcodec
