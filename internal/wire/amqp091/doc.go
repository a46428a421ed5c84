// Package amqp091 is the wire codec of AMQP 0-9-1 as RabbitMQ speaks it: frames,
// methods, content headers, field tables and reply codes, between bytes and values.
//
// It serves the server, the load generator and the tests alike, so it knows both
// directions of every method. It owns no state: a decoder reads the bytes it is
// given, an encoder appends to the buffer it is given and returns it. It does no
// I/O and holds no policy: which method may come when, what a header means and which
// error closes what is for the callers.
//
// Peer input never makes it panic, and what it allocates is bounded by the bytes
// that actually arrived, never by a length they announce.
//
// There are two forms for what is hot. Every method is a struct with Decode and
// Append, generated from spec/amqp091.txt. The path of a message (publish, deliver,
// ack and their content) has hand-written forms on the same bytes that allocate
// nothing: [ParsePublish], [ParseProps], [AppendDeliver], [AppendBody] and their kin.
package amqp091

//go:generate go run ../../spec/gen091 -table ../../spec/amqp091.txt -out .
