// Package wire writes and reads the messages of lessor.v1 with code that was generated for them, where grpc's own codec goes by reflection.
//
// What is read is the same, byte for byte and error for error. The generated code is laxer than protobuf: it takes strings that are no UTF-8, numbers
// that are too long, and groups that do not end. So it only gets what a shape has found to be plain: known fields of the right type, and all strings
// UTF-8. Anything else, a field of a newer version included, is read by protobuf itself, which takes or refuses it.
//
// What is written is the same message, with three exceptions that matter to nobody who makes messages of values: a double of minus zero is left out as
// zero is; what is unknown in a timestamp or a duration is left out; and a string that is no UTF-8 is sent, and refused by who reads it.
package wire
