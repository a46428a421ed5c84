// Package peer says to a node whatever a client may say, and looks whether the node bears it.
//
// The bytes of a fuzzer's input choose methods of the protocol, all that there are, with their
// arguments, properties and headers (script_test.go). An argument is what a good client would
// say, or one of its extremes: 0, 1, the largest and the smallest of every width, no number,
// nothing, 255 bytes, another type (values_test.go). Arguments that mean something only
// together are chosen together, and policies are set with them. A story takes a message
// through what may befall it: it is published, delivered, and comes back or dies. Frames are
// well-formed; many leave in one write, or are cut anywhere, and the connection ends in order,
// in the middle of a frame, or by a reset.
//
// Whatever was said (peer_test.go):
//
//   - no session ends by a bug, nor with 541;
//   - every method is answered, or the connection ends;
//   - a queue whose declaration was answered is there if nothing that was said may have ended
//     it, and a consumer is not cancelled or timed out if nothing may have (promise_test.go);
//   - a bystander with queues of its own is served within two seconds;
//   - a node that is killed, and one that stops, starts again from what was written, has what
//     the bystander and the script were told to be safe, and `bartleby journal check` finds no
//     damage.
//
// A panic in what connections share ends the process, which the fuzzer reports with the input.
// Disks are in memory (node_test.go), so that a node starts in some milliseconds.
//
// What it finds is shown on the code of 5eaefb7, by inputs that know of no fault (-seeds 1
// -first N; on that code amqp091.MaxDepth is to be written as 100):
//
//	N          fault
//	4          a name of 255 bytes ends the process
//	63         a consumer's priority beyond 32 bits: no replica can apply the command
//	30         the node hangs: unroutable publishes among others in confirm mode
//	71         a BCC header of more than 64 KiB: consumers get properties that are none
//	3086       the same, persistent: the node does not start again
//	5256       x-expires near 2^63: the queue is gone at once
//	1370       x-consumer-timeout near 2^63: the consumer is timed out at once
//
// A change of what is chosen changes what a number means. Retries whose moment overflows
// (x-delayed-retry-min near 2^63) were not reached by the first 5,600 numbers: one of a few
// hundred scripts returns a message to a queue with delayed retry, and few of these have
// extremes for it.
package peer
