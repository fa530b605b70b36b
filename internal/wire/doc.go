// Package wire encodes and decodes the messages of lessor.v1 with generated code, where grpc's own
// codec uses reflection.
//
// Decoding gives the same message or error as protobuf. The generated code is laxer than protobuf:
// it takes strings that are not UTF-8, numbers that are too long, and groups that do not end. So it
// only gets messages that a shape has found to be plain: known fields of the right type, and all
// strings UTF-8. Protobuf itself decodes or refuses any other, also one with a field of a newer
// version.
//
// Encoding gives the same message as protobuf, with three exceptions that do not matter to a
// program that fills in ordinary values: a double of minus zero is left out like zero; unknown
// fields in a timestamp or a duration are left out; and a Codec sends a string that is not UTF-8,
// which its receiver refuses.
//
// It also has what both sides of a worker's stream must do alike with their frames.
package wire
