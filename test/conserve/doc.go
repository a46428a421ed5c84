// Package conserve plays random clients against a real node and keeps a ledger outside of
// it: whatever features meet, each message must be in one place for each queue that it was
// routed to, or its way out must be known. It is told of no fault in particular.
//
// An episode is a list of operations that follows from a seed (episode.go): declarations,
// publishes, deliveries settled in every way, transactions, deletes, ends of channels, of
// sockets and of the node. A generator gives each episode only some of all features, so
// that these meet often, and it draws what comes next near to what came before. A player
// (play.go) says the operations in their order, over raw frames (client.go): many in one
// write, or one cut in two. Nothing waits for an answer unless an operation says so. Then
// all is let come to rest, and every queue is emptied. A list that fails is shrunk
// (shrink.go), and the command that plays what is left is printed. Which deliveries have
// come when something is settled is a matter of time, so a command may need some tries.
//
// Some operations lose messages only if they follow each other at once, on the same queue, and
// meet too seldom by chance. So every other episode has a theme (theme.go): its operations come
// in scenes that concentrate on deletions behind rejections, on shovels into queues with limits,
// on targets that refuse what must arrive before the node stops, or on declarations before it is
// killed. A seed below 100000 has the theme that its last digit names. The ledger knows of no
// theme. README.md tells which faults have been found so, and by which seeds.
//
// In half of the episodes some of the clients speak AMQP 1.0 (ten.go, playten.go), to the same queues: they are those of a seed of
// AMQP 0-9-1 alone with 1000000000000000 added (mix.go), so what fails shows whether it needs both protocols. They declare, delete and
// purge by requests to the management node, publish settled and unsettled, over links to a queue, to an exchange and to none, in
// pieces, give credit, drain, settle one delivery or a range by every outcome, end links, sessions and connections, in frames and
// windows of all sizes. A session is a channel to the ledger, a link a consumer, an outcome a confirm (released: a return); histories
// are compared whichever protocol shows them, so a dead letter that crosses protocols must have the same. Most outcomes
// modified have annotations (annotate.go), which quorum queues merge into the message. With 1000000000000000 added once more
// to the seed there are scenes behind the operations in which messages of a quorum queue are annotated again and again.
//
// The ledger (ledger.go) hears what every client says and is told. Its clock counts these
// events. An act, such as a delete, took place between the time it was sent and the time
// when its channel had an answer to it or to something later; until then it may have, or
// may still. The ledger complains at once, or when all is known, if:
//
//   - content is not what was published (BR-8.4, DL-6.10), or nobody has published it;
//   - a copy is delivered while another client has it, after it was settled, or a second
//     time without the flag (BR-9.4, BR-9.15, DL-2.5, BR-4.5);
//   - what was rolled back, not committed, refused or returned can be seen (BR-8.2, BR-8.9,
//     BR-8.11), or a return follows its confirm (BR-8.2);
//   - more deliveries count as failed than can have: one by basic.reject, by basic.nack with requeue, or by the end
//     of a channel or of a connection, however many channels that has (DL-11.3, DL-11.5);
//   - a single active consumer gets what its predecessor left behind later messages (BR-9.5);
//   - the server closes a connection, or a channel for no reason that the episode knows
//     (BR-4.1); answers in another order than it was asked, or not within some seconds;
//   - a link gets more messages than it has had credit for, or a session more transfers than its window has, a drain
//     ends with credit left, or before its last message; a history is not in the form of AMQP 1.0 (DL-14.1 to DL-14.4);
//   - a message lacks an annotation that an outcome modified has certainly given it in a quorum queue, or that it has come
//     with before, has the latest one from an earlier outcome, or has one that nobody gave it: after deaths and kills too, as a
//     message-annotation or as a header (DL-14.6);
//   - queues keep messages that nobody gets, once nobody is connected (BR-4.5);
//   - after the node was killed, a queue that was told to be declared is not there, one that
//     was told to be deleted is, or what was acknowledged comes again though a later confirm
//     of the same queue has reached the same channel (BR-14.1, BR-14.3).
//
// In the end a judge (judge.go) follows each message from each queue that it certainly was
// routed to: a message that was confirmed or committed or, while nothing is killed, that its
// channel has been answered after. It is found by the drain, or acknowledged, or it died,
// which its rejection or the queue's arguments and policies must allow (DL-1.1), and then the
// same is asked of each target (DL-6.1). x-death tells copies apart that came different ways.
// What is nowhere was dropped, deleted with its queue or purged. Each of these explains no
// more messages than the broker has counted: bartleby_dead_lettered_total by outcome
// (DL-18.4), delete-ok and purge-ok (BR-7.9, BR-7.10). Nothing of this explains a message
// that had been rejected on a channel before that channel deleted the queue: it was dead, and
// belonged to its target (DL-1.2, DL-2.2).
//
// Each place where a message may have been, a queue with the queues that it had died in before,
// is looked at once (explain.go): shovels and dead letters go in circles.
//
// Where the ledger cannot know it forgives. Deliveries without acknowledgement are lost with
// the socket. Over kills it holds only what is persistent, in durable queues, and promised
// (BR-14.3, DL-21.1). Where shovels and replays carry messages, histories do not tell copies
// apart, and the flag redelivered does not tell which delivery came first, as what is carried is
// new. A message that is routed to one queue is in one place at a time even so: each delivery
// held it until its client can have given it back, and where several may have been the last,
// each of them may be how it left. RabbitMQ, which must pass too, has some leave of its own, where l.peer says so.
package conserve
