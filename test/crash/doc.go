// Package crash kills a server again and again while messages die in it, and
// looks where each message is afterwards (DL-21.2, DL-21.3). It is all tests.
//
// A life is one data directory. It is a sequence of rounds: start the server, let
// publishers and consumers work for a short time, kill the server from outside or
// let it kill itself at a failpoint, or have an operation on a file fail, once or from
// then on; then the server goes on or ends with a line that says why. Every few rounds there is an audit: all
// queues are drained and each message is compared with what the clients know of
// it. Then the life goes on with the same directory.
//
// In each round each publisher and consumer speaks AMQP 0-9-1 or AMQP 1.0, and so does each audit: dead letters cross protocols,
// and the node is killed while clients of either wait for it. What follows is the same for both: an outcome is a confirm.
//
// In a third of the rounds the system's clock steps, back or forth by 10 s, 50 s, 2 h or 5 years, while the server runs, between a
// kill and the next start, or both. All of the above stays true; and probes, which wait for a TTL, a delay, a retry or a consumer
// timeout of a tenth of a second, come whatever the clock shows, also in the life after.
//
// What clients know, and what follows from it:
//
//   - Confirmed, or in a committed transaction: the message is somewhere, once,
//     unless a consumer has sent an ack for it. An ack sent may be lost with the
//     server, so such a message is there once or not at all.
//   - Sent and not confirmed: once or not at all. Refused by basic.nack, or rejected: not at all.
//   - Seen by an audit: gone. The audit ends with a confirmed publish, which is in
//     the journal behind all the acks of the audit; so no later audit may see it.
//   - The place implies the history: a message in the dead letter queue has died
//     once in the source, and so on. Counts never exceed what consumers asked for.
//
// A message that fans out has several lines, one for each place its copies may
// come to rest in. A copy on its way covers the lines it will still divide into;
// each line is covered once.
package crash
