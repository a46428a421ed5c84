package office

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// State is where a job is in its life.
type State string

// The states.
const (
	Planned   State = "planned" // it begins at How.ScheduleMS
	Running   State = "running"
	Paused    State = "paused"    // somebody said so
	Halted    State = "halted"    // by its canary, by an alarm, or since something is in the way: Job.Why
	Cancelled State = "cancelled" // what has moved stays where it is
	Done      State = "done"
	Failed    State = "failed"
)

// over says whether a job in this state never moves anything again.
func (s State) over() bool { return s == Cancelled || s == Done || s == Failed }

// Order is which letters go first.
type Order string

// The orders. With Newest the newest slice of letters goes first, in which the oldest is the first.
const (
	Oldest Order = "oldest"
	Newest Order = "newest"
)

// Request asks for a job.
type Request struct {
	Action letters.Action      `json:"action"`
	VHost  string              `json:"vhost"`
	Queue  string              `json:"queue,omitempty"`
	Queues []string            `json:"queues,omitempty"`
	Filter map[string][]string `json:"filter,omitempty"` // see letter.ParseQuery
	IDs    []string            `json:"ids,omitempty"`    // of letters; none: all that the filter selects
	Edit   *letter.Edit        `json:"edit,omitempty"`   // of letters.EditLetter
	How
	Reason string `json:"reason,omitempty"` // why somebody wants that
	By     Actor  `json:"-"`                // for the audit
	Reveal bool   `json:"-"`                // letters are selected as they are, and not as they are behind the mask

	// Of a job that is to run: what the dry run said.
	Token       string `json:"token,omitempty"`
	Count       *int   `json:"count,omitempty"`
	AllowGrowth bool   `json:"allow_growth,omitempty"`
}

// How says where letters go, and how fast.
type How struct {
	ToQueue    string  `json:"to_queue,omitempty"`
	ToExchange *string `json:"to_exchange,omitempty"`
	RoutingKey *string `json:"routing_key,omitempty"`
	Then       Then    `json:"then,omitempty"` // of an edit
	Rate       int     `json:"rate,omitempty"` // letters a second; 0: as fast as it goes
	Order      Order   `json:"order,omitempty"`
	OrderBy    string  `json:"order_by,omitempty"`    // header.NAME: by its value, numbers first; with Newest the highest first
	StaggerMS  int64   `json:"stagger_ms,omitempty"`  // letters to one place go so far apart
	ScheduleMS int64   `json:"schedule_ms,omitempty"` // when the job begins; 0: at once
	Limit      int     `json:"limit,omitempty"`       // letters at most; 0: all
	Canary     *Canary `json:"canary,omitempty"`
	MaxReplays *uint64 `json:"max_replays,omitempty"` // nil: 3; 0: any number
}

// Then is what becomes of an edited letter.
type Then string

// The ways.
const (
	ThenReplay Then = "replay" // it is sent as by a replay
	ThenStay   Then = "stay"   // it lies in the same queue
)

// Canary moves the first few letters, waits, and goes on if few of them died again.
type Canary struct {
	First   int     `json:"first"`
	WaitMS  int64   `json:"wait_ms"`
	Percent float64 `json:"percent"` // more than this much halts the job
}

const defaultMaxReplays = 3

// Stays counts letters that a job has looked at and left.
type Stays struct {
	Examined   int `json:"examined"`
	Unroutable int `json:"unroutable"` // the exchange is gone or leads nowhere
	Refused    int `json:"refused"`    // a target is full, or was deleted
	NoOrigin   int `json:"no_origin"`
	TooOften   int `json:"too_often"` // it was replayed max_replays times before
	Gone       int `json:"gone"`      // it left the queue meanwhile
}

func (s *Stays) add(r *letters.ErrandSlice) {
	s.Examined += r.Examined
	s.Unroutable += r.Unroutable
	s.Refused += r.Refused
	s.NoOrigin += r.NoOrigin
	s.TooOften += r.TooOften
	s.Gone += r.Gone
}

// Outcomes are what became of the entries that a job has sent; one letter may have gone to several queues.
type Outcomes struct {
	Waiting      uint64 `json:"waiting"`
	Acknowledged uint64 `json:"acknowledged"`
	DiedAgain    uint64 `json:"died_again"`
	Expired      uint64 `json:"expired"`
	Dropped      uint64 `json:"dropped"`
	Removed      uint64 `json:"removed"`
}

// Job is a job as it is shown.
type Job struct {
	ID         uint64              `json:"id,string"` // text, as all ids
	Action     letters.Action      `json:"action"`
	VHost      string              `json:"vhost"`
	Queues     []string            `json:"queues"`
	Filter     map[string][]string `json:"filter,omitempty"`
	IDs        int                 `json:"ids,omitempty"` // how many letters were named
	Options    How                 `json:"options"`
	State      State               `json:"state"`
	Why        string              `json:"why,omitempty"`
	By         string              `json:"by"`
	Rule       string              `json:"rule,omitempty"`        // whose standing job it is: it moves what the rule says, and has no end of its own
	RuleQueues *string             `json:"rule_queues,omitempty"` // of a rule's job: the names of its queues, a regular expression; nil: it is of an earlier release
	Masked     bool                `json:"masked,omitempty"`      // letters are selected as they are behind the mask
	Reason     string              `json:"reason,omitempty"`
	MadeMS     int64               `json:"made_ms"`
	BeganMS    int64               `json:"began_ms,omitempty"`
	EndedMS    int64               `json:"ended_ms,omitempty"`
	LastMS     int64               `json:"last_ms,omitempty"` // when the rule last moved letters
	Planned    int                 `json:"planned"`
	Stays
	CanaryUntilMS int64    `json:"canary_until_ms,omitempty"` // the job waits for its canary's letters until then
	Moved         uint64   `json:"moved"`
	Outcomes      Outcomes `json:"outcomes"`
	Outlived      bool     `json:"vhost_deleted,omitempty"` // its virtual host was deleted: one of that name is another

	took  names // of a rule's job
	local bool  // By is Local
}

// record is what the store keeps of a job: one value, written after each slice. Moved and Outcomes are not in it: the
// partitions have them.
type record struct {
	Job
	Number   uint64   `json:"id"`                 // Job.ID, in the place of its text
	Operator bool     `json:"operator,omitempty"` // the operator of the node has started it
	Account  string   `json:"account,omitempty"`  // broker.AccountMark of who has started it; a restart compares
	Names    []string `json:"names,omitempty"`    // Request.IDs
	At       int64    `json:"at"`                 // when its filter began: ages count from then
	Places   []place  `json:"places"`             // a place for each queue
	Current  int      `json:"current"`            // index in Places
	Alarm    bool     `json:"alarm,omitempty"`    // it is halted by an alarm, and goes on when that ends
	Canary   int64    `json:"canary,omitempty"`   // when the canary's wait ends; 0: it does not wait
	Sung     bool     `json:"sung,omitempty"`     // the canary is over
	Took     names    `json:"took,omitzero"`      // of a rule's job

	// Of an edit: see letters.Edit.
	Archive uint64 `json:"archive,omitempty"`
	Since   uint64 `json:"since,omitempty"`
}

// place is how far a job is in a queue.
type place struct {
	Queue       string `json:"queue"`
	Incarnation uint64 `json:"incarnation"`
	Cursor      []byte `json:"cursor"` // letters behind it are still to be looked at; of a list, all that was there
	// Before is the letter of a list that went last: those that go before it are done. 0: none is.
	Before    uint64  `json:"before,omitempty"`
	BeforeKey sortKey `json:"before_key,omitzero"`
}

// Error is a request that cannot be carried out.
type Error struct {
	Kind ErrorKind
	Text string
}

// ErrorKind says what is wrong.
type ErrorKind uint8

// The kinds.
const (
	BadRequest ErrorKind = iota
	NotFound
	Conflict
	Forbidden
	Stale // what it is about has changed since it was read
)

func (e *Error) Error() string { return e.Text }

func refuse(kind ErrorKind, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// Bounds of a request.
const (
	maxJobQueues = 1000
	maxJobIDs    = 10_000
	maxReason    = 1000
	maxRate      = 1_000_000
	maxStagger   = int64(24 * time.Hour / time.Millisecond)
	maxSchedule  = int64(366 * 24 * time.Hour / time.Millisecond) // from now
)

// check makes the request whole, or says what is wrong with it.
func (r *Request) check() error {
	if r.Queue != "" {
		r.Queues, r.Queue = append([]string{r.Queue}, r.Queues...), ""
	}
	slices.Sort(r.Queues)
	r.Queues = slices.Compact(r.Queues)
	o := &r.How
	switch {
	case !slices.Contains(actions, r.Action):
		return refuse(BadRequest, "action: '%s' is none; it must be replay, move, discard, restore or edit", r.Action)
	case len(r.Queues) == 0:
		return refuse(BadRequest, "queue: it is missing; name the queue whose letters are meant, or several in queues")
	case len(r.Queues) > maxJobQueues:
		return refuse(BadRequest, "queues: %d are too many; at most %d are allowed", len(r.Queues), maxJobQueues)
	case len(r.IDs) > maxJobIDs:
		return refuse(BadRequest, "ids: %d are too many; at most %d are allowed. A filter selects any number", len(r.IDs), maxJobIDs)
	case len(r.Reason) > maxReason:
		return refuse(BadRequest, "reason: it has %d bytes; at most %d are allowed", len(r.Reason), maxReason)
	case o.Rate < 0 || o.Rate > maxRate:
		return refuse(BadRequest, "rate: %d is not allowed; it must be from 1 to %d letters a second, or 0 for no limit", o.Rate, maxRate)
	case o.Limit < 0:
		return refuse(BadRequest, "limit: %d is negative", o.Limit)
	case o.Order != "" && o.Order != Oldest && o.Order != Newest:
		return refuse(BadRequest, "order: '%s' is none; it must be oldest or newest", o.Order)
	case o.OrderBy != "" && (!strings.HasPrefix(o.OrderBy, orderByHeader) || len(o.OrderBy) <= len(orderByHeader) || len(o.OrderBy) > len(orderByHeader)+255):
		return refuse(BadRequest, "order_by: '%.300s' must be header.NAME", o.OrderBy)
	case o.StaggerMS < 0 || o.StaggerMS > maxStagger:
		return refuse(BadRequest, "stagger_ms: %d must be from 0 to %d", o.StaggerMS, maxStagger)
	case o.StaggerMS > 0 && o.Rate > 0:
		return refuse(BadRequest, "rate, stagger_ms: a job has one of them")
	case o.ScheduleMS < 0:
		return refuse(BadRequest, "schedule_ms: %d is no time; it is milliseconds since 1970", o.ScheduleMS)
	case r.Action == letters.Park && o.ToQueue == "":
		return refuse(BadRequest, "to_queue: it is missing; move needs the queue to move to")
	case r.Action == letters.Park && (o.ToExchange != nil || o.RoutingKey != nil):
		return refuse(BadRequest, "to_exchange, routing_key: move goes to a queue; replay goes to exchanges")
	case r.Action == letters.Restore && (o.ToExchange != nil || o.RoutingKey != nil):
		return refuse(BadRequest, "to_exchange, routing_key: restore goes to the queue that letters were discarded from, or to to_queue")
	case r.Action == letters.Discard && (o.ToQueue != "" || o.ToExchange != nil || o.RoutingKey != nil):
		return refuse(BadRequest, "to_queue, to_exchange, routing_key: discard goes to the queue %s", broker.Archive)
	}
	if err := r.checkEdit(); err != nil {
		return err
	}
	if c := o.Canary; c != nil {
		switch {
		case r.Action != letters.Replay:
			return refuse(BadRequest, "canary: only a replay can have one")
		case c.First < 1:
			return refuse(BadRequest, "canary: first must be at least 1")
		case c.WaitMS < 0 || c.WaitMS > (7*24*time.Hour).Milliseconds():
			return refuse(BadRequest, "canary: wait_ms must be from 0 to %d", (7 * 24 * time.Hour).Milliseconds())
		case !(c.Percent >= 0 && c.Percent <= 100):
			return refuse(BadRequest, "canary: percent must be from 0 to 100")
		}
	}
	return nil
}

var actions = []letters.Action{letters.Replay, letters.Park, letters.Discard, letters.Restore, letters.EditLetter}

// errand is what the broker does for the request.
func (o *How) errand(action letters.Action, job uint64) letters.Errand {
	e := letters.Errand{Job: job, Action: action, To: letters.Destination{Queue: message.QueueName(o.ToQueue), Key: o.RoutingKey}, MaxReplays: defaultMaxReplays, Stay: o.Then == ThenStay, Spread: o.StaggerMS > 0}
	if o.MaxReplays != nil {
		e.MaxReplays = *o.MaxReplays
	}
	if o.ToExchange != nil {
		x := message.ExchangeName(*o.ToExchange)
		if x == "amq.default" {
			x = ""
		}
		e.To.Exchange = &x
	}
	return e
}

func outcomesOf(t *partition.JobTally) Outcomes {
	return Outcomes{t.Waiting(), t.Acknowledged, t.DiedAgain, t.Expired, t.Dropped, t.Removed}
}

// cursor reads the place's cursor.
func (p *place) cursor() (queue.Cursor, error) { return queue.ParseCursor(p.Cursor) }

// IsBy says whether a user has begun the job, or resumed it last. Nobody is Local by name.
func (j *Job) IsBy(user string) bool { return j.By == user && !j.local }

// show is the job with what the partitions know of it.
func (m *Jobs) show(r *record) Job {
	j := r.Job
	j.Queues, j.Filter = slices.Clone(j.Queues), maps.Clone(j.Filter)
	t := m.b.Node().JobTally(j.ID)
	if j.local = r.Operator; j.local {
		j.By = Local
	}
	if j.Moved = t.Moved; j.State == Running {
		j.CanaryUntilMS = r.Canary
	}
	j.Outcomes, j.took = outcomesOf(&t), r.Took
	return j
}
