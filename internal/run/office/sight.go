package office

import (
	"regexp"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
)

// A Sight is what a user may know of what rules do: how many letters a rule has found tells what is in the queues that it is for, so it is for those who
// may read all of them.
type Sight struct {
	unread []message.QueueName // queues that the user may not read
	none   bool                // there are too many of these
}

// mostUnread is how many queues that a user may not read are compared with rules. One who may not read more sees of no rule what it does.
const mostUnread = 1000

// SightOf returns what the user of a connection may know, in its virtual host.
func (r *Rules) SightOf(c *broker.Connection) *Sight {
	unread, more := c.Unreadable(mostUnread)
	return &Sight{unread, more}
}

// sees says whether the user may know what is done by a rule for queues like these, a regular expression.
func (s *Sight) sees(queues string) bool {
	if s.none {
		return false
	}
	pattern, err := regexp.Compile(queues)
	return err == nil && !slices.ContainsFunc(s.unread, func(q message.QueueName) bool { return pattern.MatchString(string(q)) })
}

// SeenBy is the book as the user sees it: of a rule for queues that the user may not read, only what was set.
func (b RuleBook) SeenBy(s *Sight) RuleBook {
	b.Rules = slices.Clone(b.Rules)
	for i := range b.Rules {
		if v := &b.Rules[i]; !s.sees(v.Queues) {
			*v = RuleShown{Rule: v.Rule, State: "off", By: v.By, SetMS: v.SetMS, Job: v.Job, Hidden: true, revealed: v.revealed}
			if v.On {
				v.State = "on"
			}
		}
	}
	return b
}

// Hides says whether the user may not know what the job has done: it is of a rule for queues that the user may not read.
func (s *Sight) Hides(j *Job) bool {
	queues := "" // all
	if j.RuleQueues != nil {
		queues = *j.RuleQueues
	}
	return j.Rule != "" && !s.sees(queues)
}

// Uncounted is the job of a rule without what it has done.
func (j Job) Uncounted() Job {
	shown := Job{
		ID: j.ID, Action: j.Action, VHost: j.VHost, Queues: j.Queues, Options: j.Options, State: j.State, By: j.By, Rule: j.Rule, RuleQueues: j.RuleQueues,
		MadeMS: j.MadeMS, BeganMS: j.BeganMS, EndedMS: j.EndedMS,
	}
	if shown.State == Halted { // a letter may have halted it
		shown.State = Running
	}
	return shown
}
