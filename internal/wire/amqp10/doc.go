// Package amqp10 is the wire codec of AMQP 1.0 (OASIS standard, parts 1 to 5): frames, performatives,
// SASL frames, delivery states, termini, message sections and the type system below them, between bytes
// and values.
//
// It serves the server and the tests alike, so it knows both directions of everything. It owns no
// state: a decoder reads the bytes it is given, an encoder appends to the buffer it is given and
// returns it. It does no I/O and holds no policy: which frame may come when, what an annotation means
// and which error closes what is for the callers.
//
// Whatever is read is a view. A [Value], and every []byte of a decoded struct, aliases the bytes it was
// read from: copy what is to be kept. Reading a value finds where it ends and looks no deeper, so that
// what nobody asks for costs nothing; [Value.Check] and [Message.Check] look at everything.
//
// Peer input never makes it panic. Sizes and counts are held against the bytes that actually arrived,
// values are nested 100 deep at most, and no decoder allocates by a number that a peer announces.
//
// Composite types (performatives, outcomes, termini) are structs with Decode and Append, generated from
// spec/amqp10.txt.
package amqp10

//go:generate go run ../../../spec/gen10 -table ../../../spec/amqp10.txt -out .
