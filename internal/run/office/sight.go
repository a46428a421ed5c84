package office

import (
	"slices"
	"unicode/utf8"

	"bartleby.mq/internal/core/expression"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
)

// A Sight is what a user may know of what rules do: how many letters a rule has found tells what is in the queues that it is for, so it is for those who
// may read all of them, and those of which it has taken letters before they were deleted.
type Sight struct {
	conn   *broker.Connection
	all    bool                // the user is an administrator
	unread []message.QueueName // queues that the user may not read
	none   bool                // there are too many of these
	reads  map[string]bool     // whether the user may read a queue, which may be gone; it was asked
}

// mostUnread is how many queues that a user may not read are compared with rules. One who may not read more sees of no rule what it does. mostGone is about
// how many queues that were deleted a backend is asked.
const mostUnread, mostGone = 1000, 20

// SightOf returns what the user of a connection may know, in its virtual host. One goroutine at a time uses it.
func (r *Rules) SightOf(c *broker.Connection) *Sight {
	s := &Sight{conn: c, all: c.Administers(), reads: map[string]bool{}}
	s.unread, s.none = c.Unreadable(mostUnread)
	return s
}

// sees says whether the user may know what is done by a rule for queues like these, a regular expression, which has taken letters of the queues in took.
func (s *Sight) sees(queues string, took names) bool {
	switch {
	case s.all:
		return true
	case s.none || !took.whole():
		return false
	}
	pattern, err := expression.CompileName(queues)
	return err == nil && !slices.ContainsFunc(s.unread, func(q message.QueueName) bool { return pattern.MatchString(string(q)) }) &&
		!slices.ContainsFunc(took, func(q string) bool { return !s.mayRead(q) })
}

// mayRead says whether the user may read a queue, which need not be there. Of too many it says no.
func (s *Sight) mayRead(q string) bool {
	may, asked := s.reads[q]
	if most := mostUnread; !asked {
		if s.conn.Elsewhere() {
			most = mostGone
		}
		if len(s.reads) >= most {
			return false
		}
		may = s.conn.MayRead(message.QueueName(q))
		s.reads[q] = may
	}
	return may
}

// names are the queues of which a rule has taken letters, each once. They are kept when the queues are gone, since what the rule has done there is still
// counted. nil: it is not known which; an earlier release has counted.
type names []string

// mostNames is how many queues the names of a rule are; with one more they are not whole.
const mostNames = 100

func (n names) whole() bool { return n != nil && len(n) <= mostNames }

// with is the names with others. If either is not whole, it is not.
func (n names) with(more ...string) names {
	for _, q := range more {
		switch {
		case !n.whole() || slices.Contains(n, q):
		case !utf8.ValidString(q): // the record, which is JSON, would have another name
			return nil
		default:
			n = append(slices.Clip(n), q)
		}
	}
	return n
}

// SeenBy is the book as the user sees it: of a rule for queues that the user may not read, only what was set.
func (b RuleBook) SeenBy(s *Sight) RuleBook {
	b.Rules = slices.Clone(b.Rules)
	for i := range b.Rules {
		if v := &b.Rules[i]; !s.sees(v.Queues, v.took) {
			*v = RuleShown{Rule: v.Rule, State: "off", By: v.By, SetMS: v.SetMS, Job: v.Job, Hidden: true, revealed: v.revealed}
			if v.On {
				v.State = "on"
			}
		}
	}
	return b
}

// Hides says whether the user may not know what the job has done: it is of a rule for queues that the user may not read, or has taken letters of such.
func (s *Sight) Hides(j *Job) bool {
	queues := "" // all
	if j.RuleQueues != nil {
		queues = *j.RuleQueues
	}
	if j.Outlived { // the user's rights are for another virtual host
		return j.Rule != "" && !s.all
	}
	return j.Rule != "" && !s.sees(queues, j.took)
}

// Uncounted is the job of a rule without what it has done.
func (j Job) Uncounted() Job {
	shown := Job{
		ID: j.ID, Action: j.Action, VHost: j.VHost, Queues: j.Queues, Options: j.Options, State: j.State, By: j.By, Rule: j.Rule, RuleQueues: j.RuleQueues,
		MadeMS: j.MadeMS, BeganMS: j.BeganMS, EndedMS: j.EndedMS, local: j.local,
	}
	if shown.State == Halted { // a letter may have halted it
		shown.State = Running
	}
	return shown
}
