package partition

import (
	"encoding/binary"
	"math"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
)

// A command is one entry of a group's log. Everything that depends on the leader was decided before and is in the
// command: the time, the targets of the dead. It is a version byte; three little-endian numbers of 8 bytes: the
// process that proposed it (Options.Origin), the number of the proposal there, the time in milliseconds since 1970;
// and operations. An operation is an opcode and operands. Integers are uvarints. "bytes" is a length and that many
// bytes. Queues are incarnations. Consumers are the numbers they were attached with.
//
//	create    queue | vhost bytes | name bytes | config | settings
//	delete    queue
//	configure queue | settings
//	publish   ttl+1 | priority+1 | record bytes | n | n × queue
//	delayed   delay | as in publish                  a publish to be delivered only after "delay" milliseconds
//	ack       queue | consumer | first id | count
//	reject    queue | consumer | id | flags | note bytes, if a flag says so: deadletter.Note. Another flag (settleAgain) says that the
//	          note is the last one of this command: one outcome may end very many deliveries
//	return    queue | consumer | id | kind with flags | note bytes and a wait, if flags say so
//	attach    queue | consumer | flags | priority, zigzag | prefetch | timeout | credit | tag bytes
//	detach    queue | consumer
//	credit    queue | consumer | n
//	get       queue | consumer | no ack
//	purge     queue
//	tick      queue                       one slice of the work that is due
//	touch     queue                       note a use (DL-8.12)
//	dead      queue | how | outcome | history bytes | n | n × target | n | n × id
//	take      queue | id | history bytes | n | n × target     an operator's move; the entry is offered if a target is in another log
//	gone      process                     the process died: its consumers are detached, and their deliveries come back
//	outIn     source | answered | first number | n | n × (target queue | flags | deliveries | history bytes | record bytes)
//	          entries from an outbox of another log, which has acted on all answers up to "answered". Empty record bytes mean
//	          the record of the entry before; a flag (mailAgain) says that the history is that of the entry before
//	outAck    destination | up to | n | n × (number | answer)  the answer: all up to this number were taken, except for the n listed
//	reroute   destination | number | size | priority+1 | n | n × target     where an entry stranded in an outbox goes now
//	close     destination                 the destination is gone for good: the outbox to it is stranded
//	quit      n | n × (queue | consumer) | n | n × (queue | consumer | id)
//	          these consumers are detached; these deliveries come back, and everything else that the consumers hold
//	relocate  as reroute                  an operator asked for it: what a full target refuses is stranded again
//	aside     queue | consumer | id       the entry's record cannot be read, so it leaves. Consumer 0: nobody has it
//	asideSent destination | number        the same for an entry stranded in an outbox
//	forget    n | n × job                 the tallies of these jobs are dropped
//	breaker   queue                       its breaker is closed by hand
//	leave     number | queues | n | n × (queue | consumer) | n | n × (queue | consumer | id)
//	          like quit, but other commands come in between: the departure "number" keeps its queues hushed until "queues" of
//	          them are done
//
// A target is a destination and a queue. Destination 0 is this group.
//
// In each group the commands of a process are numbered from 1; see forward.go. A command is applied by the rules of its version, which
// replicas must agree on: who changes a rule raises the number, and keeps the rule before for commands that were decided under it.
const commandVersion = 1

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
	cmdForget
	cmdFlow
	cmdCloseBreaker

	cmdEnd // one more than the last
)

// The flags of an attach.
const (
	attachNoAck = 1 << iota
	attachExclusive
	attachCredited
)

// The flags of a reject and a return. The others are one byte: those of a reject, or the kind of a return.
const (
	rejectFailed = 1

	settleNote  = 1 << 7
	settleWait  = 1 << 6
	settleAgain = 1 << 5
)

// The flags of a config.
const (
	configStrict = 1 << iota
	configSingleActive
	configFlags = 1<<iota - 1
)

// The flags of settings.
const (
	settingsDeadLetter = 1 << iota
	settingsAtLeastOnce
	settingsDeadKey
	settingsRules // the rules follow
	settingsCountNack
	settingsLostAndFound
	settingsBreaker // it follows the rules
	settingsFlags   = 1<<iota - 1
)

// The flags of rules.
const (
	rulesExpireDead = 1 << iota
	rulesResetCounts
	rulesFlags = 1<<iota - 1
)

// commandWriter builds a command. Acknowledgements of consecutive entries become one operation.
type commandWriter struct {
	b []byte

	acks        uint64 // of the open run, 0 = none
	ackQueue    uint64
	ackConsumer uint64
	ackFirst    queue.ID

	// noted is the stored form of the command's last note, empty if it has none; stored is scratch space for the next one.
	noted, stored []byte
}

// commandHead is the length of a command's head, momentAt the offset of the time in it.
const (
	commandHead = 1 + 3*8
	momentAt    = 1 + 2*8
)

// begin begins a command at the given time.
func (w *commandWriter) begin(origin uint64, now int64) {
	w.b = append(w.b[:0], commandVersion)
	w.b = binary.LittleEndian.AppendUint64(w.b, origin)
	w.b = binary.LittleEndian.AppendUint64(w.b, 0)
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(now))
	w.acks, w.noted = 0, w.noted[:0]
}

// numbered gives the command its number and returns it. It is valid until the next begin.
func (w *commandWriter) numbered(number uint64) []byte {
	w.endAcks()
	binary.LittleEndian.PutUint64(w.b[9:], number)
	return w.b
}

// full says that nothing more should be added: a group takes no command larger than a frame of the journal. Callers
// ask wherever the operations before and after need not be one command.
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

// record writes a message's record and seals the copy, because every record on disk is sealed. REQUIRES: r is whole.
// r itself is not changed: others may be reading it.
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

// publication has the operands of a publish, except its queues.
type publication struct {
	ttl, delay int64
	priority   int
	record     []byte
	at         int // offset of the record
}

// publication reads the operands of a publish; code says whether it is delayed.
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

// small writes a number from 0 to 2^31-1; a larger one becomes 2^31-1.
func (w *commandWriter) small(v int) { w.uint(uint64(min(max(v, 0), math.MaxInt32))) }

func (w *commandWriter) config(c queue.Config) {
	var flags byte
	if c.Strict {
		flags |= configStrict
	}
	if c.SingleActive {
		flags |= configSingleActive
	}
	w.b = append(w.b, flags)
}

// settings writes limits with their signs: any negative number means no limit.
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
	if s.CountNack {
		flags |= settingsCountNack
	}
	if s.LostAndFound {
		flags |= settingsLostAndFound
	}
	if s.Breaker.On() {
		flags |= settingsBreaker
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
	if flags&settingsBreaker != 0 {
		w.span(s.Breaker.Deaths)
		w.span(s.Breaker.Percent)
		w.span(s.Breaker.Window)
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

// target is where a death or a move goes.
type target struct {
	log   uint64 // 0: this group; else the number of the destination
	queue uint64
}

// commandReader reads what commandWriter wrote. After a fault it returns zeros, and bad is set.
type commandReader struct {
	frameReader
	note    *deadletter.Note // the command's last one, nil if there is none
	targets []target
}

// head reads the head of a command. ok is false if this release cannot read the command.
func (r *commandReader) head(data []byte) (origin, number uint64, now int64, ok bool) {
	r.all, r.at, r.bad, r.note = data, commandHead, false, nil
	if len(data) < commandHead || data[0] != commandVersion {
		return 0, 0, 0, false
	}
	le := binary.LittleEndian
	origin, number, now = le.Uint64(data[1:]), le.Uint64(data[9:]), int64(le.Uint64(data[momentAt:]))
	return origin, number, now, now >= 0
}

func (r *commandReader) text() string {
	b, _ := r.bytes()
	return string(b)
}

// wide reads a signed number of 64 bits.
func (r *commandReader) wide() int64 {
	v, n := binary.Varint(r.all[min(r.at, len(r.all)):])
	if n <= 0 {
		r.tear()
		return 0
	}
	r.at += n
	return v
}

// int reads a number from 0 to 2^31-1.
func (r *commandReader) int() int {
	v := r.uint()
	if v > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(v)
}

// record reads a whole message record and its offset.
func (r *commandReader) record() (b []byte, at int) {
	b, at = r.bytes()
	if !r.bad && message.CheckRecord(b) != nil {
		r.bad = true
	}
	return b, at
}

// flags reads flags. One that is not among those known is a fault: a later release has written it.
func (r *commandReader) flags(known byte) byte {
	flags := r.byte()
	r.bad = r.bad || flags&^known != 0
	return flags
}

func (r *commandReader) config() queue.Config {
	flags := r.flags(configFlags)
	return queue.Config{
		Type: queue.Quorum, Durable: true, MaxPriority: -1,
		Strict: flags&configStrict != 0, SingleActive: flags&configSingleActive != 0,
	}
}

func (r *commandReader) settings() (s queue.Settings, d DeadLetter) {
	flags := r.flags(settingsFlags)
	s.DeadLetter, s.AtLeastOnce, s.CountNack = flags&settingsDeadLetter != 0, flags&settingsAtLeastOnce != 0, flags&settingsCountNack != 0
	d.HasKey, s.LostAndFound = flags&settingsDeadKey != 0, flags&settingsLostAndFound != 0
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
	if flags&settingsBreaker != 0 {
		s.Breaker = queue.Breaker{Deaths: r.time(), Percent: r.time(), Window: r.time()}
		r.bad = r.bad || !s.Breaker.Valid()
	}
	return s, d
}

func (r *commandReader) rules() (rules deadletter.Rules) {
	profile, ok := deadletter.ParseProfile(r.text())
	flags := r.flags(rulesFlags)
	r.bad = r.bad || !ok
	return deadletter.Rules{
		Profile: profile, ExpireDead: flags&rulesExpireDead != 0, ResetCounts: flags&rulesResetCounts != 0,
		MaxHops: r.time(), Retention: r.time(), LimitReason: r.text(),
	}
}

// list reads targets. They are valid until the next call.
func (r *commandReader) list() []target {
	r.targets = r.targets[:0]
	for range r.count(2) {
		r.targets = append(r.targets, target{r.uint(), r.uint()})
	}
	return r.targets
}
