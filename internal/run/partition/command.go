package partition

import (
	"encoding/binary"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
)

// A command is what a group of replicas decides at once: an entry of its log.
// Whatever depends on who leads was found out before and stands in it: the
// moment, where the dead go. It is a version byte, three numbers of 8 bytes, little
// endian: the process that proposed it (Options.Origin), the number of the proposal
// there, the moment in milliseconds since 1970; and operations: an opcode and its
// operands. Integers are uvarints, "bytes" a length and so many bytes, queues their
// incarnations, consumers the numbers they were attached with.
//
//	create    queue | vhost bytes | name bytes | config | settings
//	delete    queue
//	configure queue | settings
//	publish   ttl+1 | priority+1 | record bytes | n | n × queue
//	delayed   delay | as in publish                  publish, to be delivered only after so many milliseconds
//	ack       queue | consumer | first id | count
//	reject    queue | consumer | id | failed
//	return    queue | consumer | id | kind
//	attach    queue | consumer | flags | priority, zigzag | prefetch | timeout | credit | tag bytes
//	detach    queue | consumer
//	credit    queue | consumer | n
//	get       queue | consumer | no ack
//	purge     queue
//	tick      queue                       what is due happens
//	touch     queue                       somebody used it (DL-8.12)
//	dead      queue | how | outcome | history bytes | n | n × target | n | n × id
//	take      queue | id | history bytes | n | n × target     a move that somebody asked for: to other groups it is offered
//	gone      process                     its consumers are, and what they held comes back
//	outIn     source | answered | first number | n | n × (target queue | flags | deliveries | history bytes | record bytes)
//	          what an outbox of another log sends; the source has acted on all answers up to answered. Record bytes that are none are
//	          those of the entry before; its history is left out if the flags (mailAgain) say that it is that of the entry before
//	outAck    destination | up to | n | n × (number | answer)  its answer: all up to it were taken, but for these
//	reroute   destination | number | size | priority+1 | n | n × target     where an entry stranded in an outbox goes now
//	close     destination                 it is gone for good: what is in the outbox for it is stranded
//	quit      n | n × (queue | consumer) | n | n × (queue | consumer | id)
//	          these consumers are detached, these deliveries come back, and what else the consumers hold
//	relocate  as reroute                  somebody asked for it: what a full target refuses is stranded again
//	aside     queue | consumer | id       its record cannot be read: it leaves. Consumer 0: nobody has it
//	asideSent destination | number        likewise of an entry stranded in an outbox
//	leave     number | queues | n | n × (queue | consumer) | n | n × (queue | consumer | id)
//	          as quit, but with others in between: the queues are hushed, until so many of those of that number are done
//
// A target is a destination, 0 meaning this group, and a queue.
//
// The commands of a process are numbered from 1 in each group; see forward.go. Those of
// version 1 are taken whatever their number. Version 3 has aside and quit, and with it the
// group's clock may go back (application.moment). Before version 4 what was taken for another
// group left at once, and was stranded there if it was refused. Before version 5 all expired heads
// of a strict queue died at once, and for a get all that was due (queue.Pages.AllHeads), and each tick of a command
// handled a slice. Before version 6 dead letters that were stranded had the TTL of the queue they went to (DL-22.8), and a tick
// took back all deliveries that were out for too long (queue.Pages.AllTimeouts), which did not count in the slice. Before version 7 a
// single active consumer whose delivery had timed out stayed the active one (queue.Pages.StaleActive), and each copy of a dead letter whose
// queue was gone was stranded, though others had theirs, and each entry of an outIn had its own record and history. Version 7 has leave.
const (
	commandVersion  = 7
	numberedVersion = 2
	setBackVersion  = 3
	offerVersion    = 4
	headsVersion    = 5
	restsVersion    = 6
	timeoutsVersion = 6
	activeVersion   = 7
	sharedVersion   = 7
	againVersion    = 7
)

const (
	cmdCreate = iota + 1
	cmdDelete
	cmdConfigure
	cmdPublish
	cmdAck
	cmdReject
	cmdReturn
	cmdAttach
	cmdDetach
	cmdCredit
	cmdGet
	cmdPurge
	cmdTick
	cmdTouch
	cmdDead
	cmdTake
	cmdGone
	cmdOutIn
	cmdOutAck
	cmdReroute
	cmdDelayed
	cmdClose
	cmdRelocate
	cmdAside
	cmdAsideSent
	cmdQuit
	cmdLeave

	cmdEnd // behind the last
)

// The flags of an attach.
const (
	attachNoAck = 1 << iota
	attachExclusive
)

// The flags of a config.
const (
	configStrict = 1 << iota
	configSingleActive
	configCountNack
)

// The flags of settings.
const (
	settingsDeadLetter = 1 << iota
	settingsAtLeastOnce
	settingsDeadKey
	settingsRules // the rules follow
)

// The flags of rules.
const (
	rulesExpireDead = 1 << iota
	rulesResetCounts
)

// commandWriter builds a command. Acknowledgements of consecutive entries become
// one operation.
type commandWriter struct {
	b []byte

	acks        uint64 // of the run that is open, 0 = none is
	ackQueue    uint64
	ackConsumer uint64
	ackFirst    queue.ID
}

// commandHead is the length of what a command begins with, momentAt where the moment is.
const (
	commandHead = 1 + 3*8
	momentAt    = 1 + 2*8
)

// begin begins a command at the moment given.
func (w *commandWriter) begin(origin uint64, now int64) {
	w.b = append(w.b[:0], commandVersion)
	w.b = binary.LittleEndian.AppendUint64(w.b, origin)
	w.b = binary.LittleEndian.AppendUint64(w.b, 0)
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(now))
	w.acks = 0
}

// numbered gives the command its number and returns it; it is valid until the next begin.
func (w *commandWriter) numbered(number uint64) []byte {
	w.endAcks()
	binary.LittleEndian.PutUint64(w.b[9:], number)
	return w.b
}

// full says that the command has grown so large that no more is to be added to it: a group takes
// no more than a frame of the journal. It is asked wherever what came before and what follows
// need not be one command.
func (w *commandWriter) full() bool { return len(w.b) >= frameBytes }

func (w *commandWriter) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *commandWriter) text(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *commandWriter) raw(b []byte) {
	w.uint(uint64(len(b)))
	w.b = append(w.b, b...)
}

// record writes a message's record, which has its check from here on: what lies on disk is
// sealed, whoever published it. REQUIRES: r is whole; it is not changed, since others read it.
func (w *commandWriter) record(r message.Record) {
	w.raw(r)
	if !r.Sealed() {
		message.Record(w.b[len(w.b)-len(r):]).Seal()
	}
}

func (w *commandWriter) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

// op begins an operation on a queue.
func (w *commandWriter) op(code byte, q uint64) {
	w.endAcks()
	w.b = append(w.b, code)
	w.uint(q)
}

func (w *commandWriter) endAcks() {
	if w.acks == 0 {
		return
	}
	n := w.acks
	w.acks = 0
	w.op(cmdAck, w.ackQueue)
	w.uint(w.ackConsumer)
	w.uint(uint64(w.ackFirst))
	w.uint(n)
}

func (w *commandWriter) ack(q, consumer uint64, id queue.ID) {
	if w.acks > 0 && w.acks < maxRun && w.ackQueue == q && w.ackConsumer == consumer && w.ackFirst+queue.ID(w.acks) == id {
		w.acks++
		return
	}
	w.endAcks()
	w.acks, w.ackQueue, w.ackConsumer, w.ackFirst = 1, q, consumer, id
}

func (w *commandWriter) publish(ttl int64, priority int, delay int64, record []byte) {
	w.endAcks()
	if delay > 0 {
		w.b = append(w.b, cmdDelayed)
		w.span(delay)
	} else {
		w.b = append(w.b, cmdPublish)
	}
	w.span(min(ttl, moment.Last) + 1)
	w.small(priority + 1)
	w.record(record)
}

// publication is the operands of a publish, but for its queues.
type publication struct {
	ttl, delay int64
	priority   int
	record     []byte
	at         int // where the record begins
}

// publication reads the operands of a publish with that code.
func (r *commandReader) publication(code byte) (p publication) {
	if code == cmdDelayed {
		p.delay = r.time()
	}
	p.ttl, p.priority = r.time()-1, r.int()-1
	p.record, p.at = r.record()
	return p
}

// span writes a span or a moment, which is never negative.
func (w *commandWriter) span(v int64) { w.uint(uint64(max(v, 0))) }

// small writes a number from 0 to 2^31-1; what is more is as good as that.
func (w *commandWriter) small(v int) { w.uint(uint64(min(max(v, 0), math.MaxInt32))) }

func (w *commandWriter) config(c queue.Config) {
	var flags byte
	if c.Strict {
		flags |= configStrict
	}
	if c.SingleActive {
		flags |= configSingleActive
	}
	if c.CountNack {
		flags |= configCountNack
	}
	w.b = append(w.b, flags)
}

// settings writes limits with their signs: below 0 is none, and nobody has checked
// how far below.
func (w *commandWriter) settings(s *queue.Settings, d *DeadLetter) {
	var flags byte
	if s.DeadLetter {
		flags |= settingsDeadLetter
	}
	if s.AtLeastOnce {
		flags |= settingsAtLeastOnce
	}
	if d.HasKey {
		flags |= settingsDeadKey
	}
	if s.Rules != (deadletter.Rules{}) {
		flags |= settingsRules
	}
	w.b = append(w.b, flags)
	for _, v := range []int64{s.TTL, s.Expires, s.MaxLength, s.MaxBytes, s.DeliveryLimit, s.ConsumerTimeout} {
		w.b = binary.AppendVarint(w.b, v)
	}
	w.b = append(w.b, byte(s.Overflow), byte(s.Retry.Type))
	w.span(s.Retry.Min)
	w.span(s.Retry.Max)
	w.uint(math.Float64bits(s.Retry.Multiplier))
	w.uint(math.Float64bits(s.Retry.Jitter))
	w.text(d.Exchange)
	w.text(d.Key)
	if flags&settingsRules != 0 {
		w.rules(&s.Rules)
	}
}

func (w *commandWriter) rules(r *deadletter.Rules) {
	w.text(string(r.Profile))
	var flags byte
	if r.ExpireDead {
		flags |= rulesExpireDead
	}
	if r.ResetCounts {
		flags |= rulesResetCounts
	}
	w.b = append(w.b, flags)
	w.span(r.MaxHops)
	w.span(r.Retention)
	w.text(r.LimitReason)
}

// target is where a death, or a move, leads.
type target struct {
	log   uint64 // 0: this group; else the destination's number
	queue uint64
}

// commandReader reads what commandWriter wrote. After a fault it returns zeros and
// bad is set.
type commandReader struct {
	frameReader
	version byte // of the command
	targets []target
}

// head reads what a command begins with. ok is false if this release cannot read it.
func (r *commandReader) head(data []byte) (origin, number uint64, now int64, ok bool) {
	r.all, r.at, r.bad = data, commandHead, false
	if len(data) < commandHead || data[0] == 0 || data[0] > commandVersion {
		return 0, 0, 0, false
	}
	le := binary.LittleEndian
	r.version = data[0]
	origin, number, now = le.Uint64(data[1:]), le.Uint64(data[9:]), int64(le.Uint64(data[momentAt:]))
	return origin, number, now, now >= 0
}

func (r *commandReader) text() string {
	b, _ := r.bytes()
	return string(b)
}

// wide reads a number of 64 bits with a sign.
func (r *commandReader) wide() int64 {
	v, n := binary.Varint(r.all[min(r.at, len(r.all)):])
	if n <= 0 {
		r.tear()
		return 0
	}
	r.at += n
	return v
}

// int reads a number that is not negative.
func (r *commandReader) int() int {
	v := r.uint()
	if v > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(v)
}

// record reads a whole message record and where it begins.
func (r *commandReader) record() (b []byte, at int) {
	b, at = r.bytes()
	if !r.bad && message.CheckRecord(b) != nil {
		r.bad = true
	}
	return b, at
}

func (r *commandReader) config() queue.Config {
	flags := r.byte()
	return queue.Config{
		Type: queue.Quorum, Durable: true, MaxPriority: -1,
		Strict: flags&configStrict != 0, SingleActive: flags&configSingleActive != 0, CountNack: flags&configCountNack != 0,
	}
}

func (r *commandReader) settings() (s queue.Settings, d DeadLetter) {
	flags := r.byte()
	s.DeadLetter, s.AtLeastOnce = flags&settingsDeadLetter != 0, flags&settingsAtLeastOnce != 0
	d.HasKey = flags&settingsDeadKey != 0
	s.TTL, s.Expires, s.MaxLength = r.wide(), r.wide(), r.wide()
	s.MaxBytes, s.DeliveryLimit, s.ConsumerTimeout = r.wide(), r.wide(), r.wide()
	s.Overflow, s.Retry.Type = queue.Overflow(r.byte()), queue.RetryType(r.byte())
	if s.Overflow > queue.RejectPublishDLX || s.Retry.Type > queue.RetryReturned {
		r.bad = true
	}
	s.Retry.Min, s.Retry.Max = r.time(), r.time()
	s.Retry.Multiplier, s.Retry.Jitter = math.Float64frombits(r.uint()), math.Float64frombits(r.uint())
	d.Exchange, d.Key = r.text(), r.text()
	if flags&settingsRules != 0 {
		s.Rules = r.rules()
	}
	return s, d
}

func (r *commandReader) rules() (rules deadletter.Rules) {
	profile, ok := deadletter.ParseProfile(r.text())
	flags := r.byte()
	r.bad = r.bad || !ok
	return deadletter.Rules{
		Profile: profile, ExpireDead: flags&rulesExpireDead != 0, ResetCounts: flags&rulesResetCounts != 0,
		MaxHops: r.time(), Retention: r.time(), LimitReason: r.text(),
	}
}

// list reads targets; they are valid until the next call.
func (r *commandReader) list() []target {
	r.targets = r.targets[:0]
	for range r.count(2) {
		r.targets = append(r.targets, target{r.uint(), r.uint()})
	}
	return r.targets
}
