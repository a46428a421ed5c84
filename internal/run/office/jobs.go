package office

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/share"
	"bartleby.mq/internal/safety/bug"
)

// Failpoints of a slice of a job.
const (
	FailJobMoved    = "job-moved"    // the letters of a slice have moved, and the record does not say so
	FailJobRecorded = "job-recorded" // the record of a slice is written
)

// JobFailpoints lists them.
var JobFailpoints = []string{FailJobMoved, FailJobRecorded}

// Jobs are the jobs of a node. Any number of goroutines may use them.
//
// A job is one record in the store, written after each slice. Invariant: what the record counts was found in front of its
// cursor, and what the job has moved is in the tallies of the partitions. So a job that ends anywhere goes on from its
// record: letters of an unfinished slice that have moved are not met again, and the others are.
type Jobs struct {
	office *Office
	b      *broker.Broker
	log    *slog.Logger
	fail   func(string)
	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	jobs  map[uint64]*job
	last  uint64
	plans map[string]*plan
}

// job is a job in memory.
type job struct {
	r    record             // guarded by Jobs.mu
	conn *broker.Connection // the rights of who started it
	wake context.CancelFunc // ends a sleep of its goroutine; nil: it has none
}

// keptJobs is how many finished jobs are kept, activeJobs how many may be unfinished, and userJobs how many of these one user may have.
// Whoever has fewer than ownJobs may begin another although activeJobs are unfinished: others cannot take that.
const keptJobs, activeJobs, userJobs, ownJobs = 1000, 200, 50, 4

const jobPrefix = "job/"

func jobKey(id uint64) []byte {
	return fmt.Appendf(nil, "%s%s%016x", datadir.RecordPrefix, jobPrefix, id)
}

// newJobs reads the jobs of an office, and goes on with those that were running. Close ends them.
func newJobs(f *Office) (*Jobs, error) {
	m := &Jobs{office: f, b: f.b, log: f.Logger, fail: f.Failpoint, jobs: map[uint64]*job{}, plans: map[string]*plan{}}
	m.life, m.end = context.WithCancel(context.Background())
	err := m.b.RangeRecords(jobPrefix, func(key, value []byte) error {
		j := &job{}
		err := json.Unmarshal(value, &j.r)
		if j.r.ID = j.r.Number; err != nil || j.r.ID == 0 || j.r.Current > len(j.r.Places) {
			m.log.Error("The record of a job cannot be read: it is passed over", "key", string(key), "error", err)
			return nil
		}
		m.jobs[j.r.ID], m.last = j, max(m.last, j.r.ID)
		return nil
	})
	if err != nil {
		m.end()
		return nil, err
	}
	for id := range m.b.Node().JobTallies() {
		m.last = max(m.last, id)
	}
	m.forget()
	m.b.OnVHostEnd(m.endVHost)
	gone := map[message.VHost]bool{}
	for _, j := range m.jobs {
		if name := message.VHost(j.r.VHost); !j.r.Outlived && !m.b.HasVHost(name, 0) { // an earlier release left it
			gone[name] = true
		}
	}
	for name := range gone {
		m.endVHost(name, broker.Doer{})
		f.audit.endVHost(name, broker.Doer{})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.r.Rule != "" || j.r.State != Running && j.r.State != Planned && !(j.r.State == Halted && j.r.Alarm) {
			continue
		}
		if !j.r.Operator && (j.r.Account == "" || j.r.Account != m.b.AccountMark(j.r.By)) {
			// It may be another person of this name.
			j.r.Alarm = false
			err = m.set(j, Actor{}, Halted, fmt.Sprintf("the account of user '%s' is gone, or has another password than when the job began, and the node was restarted: resume goes on with the rights of who resumes", j.r.By))
			if err != nil {
				m.end()
				return nil, err
			}
			continue
		}
		m.start(j)
	}
	return m, nil
}

// Close ends the goroutines of jobs. Their records say where they go on.
func (m *Jobs) Close() {
	m.end()
	m.work.Wait()
}

// Closed is closed when the jobs end with their node.
func (m *Jobs) Closed() <-chan struct{} { return m.life.Done() }

// forget drops tallies of jobs that are not kept.
func (m *Jobs) forget() {
	m.mu.Lock()
	known := map[uint64]bool{}
	for id := range m.jobs {
		known[id] = true
	}
	last := m.last
	m.mu.Unlock()
	if err := m.b.Node().ForgetJobs(func(id uint64) bool { return known[id] || id > last }); err != nil {
		m.log.Debug("Tallies of forgotten jobs stay for now", "error", err)
	}
}

// Job returns a job.
func (m *Jobs) Job(id uint64) (Job, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, ok := m.jobs[id]
	if !ok {
		return Job{}, false
	}
	return m.show(&j.r), true
}

// List returns all jobs, newest first.
func (m *Jobs) List() (list []Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list = make([]Job, 0, len(m.jobs))
	for _, j := range m.jobs {
		list = append(list, m.show(&j.r))
	}
	slices.SortFunc(list, func(a, b Job) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// create makes a job of a request that was planned and checked, and starts it. stage, if it is not nil, is called when the record of
// the job is stored, with its number; if it fails, the job has failed.
func (m *Jobs) create(c *broker.Connection, r *Request, with *record, planned int, stage func(job uint64) error) (Job, error) {
	j, err := m.enrol(c, r, with, planned)
	if err != nil {
		return Job{}, err
	}
	if stage != nil {
		err = stage(j.r.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs[j.r.ID] = j
	m.tell(j, "")
	if err != nil {
		return Job{}, cmp.Or(m.set(j, Actor{}, Failed, err.Error()), err)
	}
	m.start(j)
	return m.show(&j.r), nil
}

// enrol stores the record of a new job, which nobody sees yet.
func (m *Jobs) enrol(c *broker.Connection, r *Request, with *record, planned int) (*job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	active, own := 0, 0
	for _, j := range m.jobs {
		if !j.r.State.over() && j.r.Rule == "" {
			active++
			if j.r.By == c.User {
				own++
			}
		}
	}
	switch {
	case active >= activeJobs && own >= ownJobs:
		return nil, refuse(Conflict, "%d jobs are not finished, which is as many as may be: wait for one, or cancel one", active)
	case own >= userJobs:
		return nil, refuse(Conflict, "%d jobs of user '%s' are not finished, which is as many as one user may have: wait for one, or cancel one", own, c.User)
	}
	now := m.office.now()
	j := &job{conn: c, r: record{
		Job: Job{
			ID: m.last + 1, Action: r.Action, VHost: r.VHost, Queues: r.Queues, Filter: r.Filter, IDs: len(r.IDs), Options: r.How, State: Running,
			By: c.User, Masked: !r.Reveal, Reason: r.Reason, MadeMS: now, BeganMS: now, Planned: planned,
		},
		Operator: c.IsOperator(), Account: m.b.AccountMark(c.User), Names: r.IDs, At: with.At, Places: with.Places, Archive: with.Archive, Since: with.Since,
	}}
	if r.ScheduleMS > now {
		j.r.State, j.r.BeganMS = Planned, 0
	}
	m.last++
	if err := m.storeWith(&j.r, m.act(&j.r, r.By, "made")); err != nil {
		return nil, err
	}
	return j, nil
}

// store writes the record of a job.
func (m *Jobs) store(r *record, sync bool) error {
	r.Number = r.ID
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return m.b.PutRecords(mutation.All([]mutation.Change{{Key: jobKey(r.ID), Value: value}}), sync)
}

// storeWith writes the record of a job and what was done to it.
func (m *Jobs) storeWith(r *record, act Act) error {
	r.Number = r.ID
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return m.office.audit.With(act, []mutation.Change{{Key: jobKey(r.ID), Value: value}})
}

// act is what the audit tells of a deed. Why somebody wanted the job stands in each entry.
func (m *Jobs) act(r *record, by Actor, deed string) Act {
	a := Act{Actor: by, What: "job." + deed, VHost: r.VHost, Object: strconv.FormatUint(r.ID, 10), Why: r.Reason}
	shown := m.show(r)
	a.Count = shown.Moved
	if by == (Actor{}) {
		a.For = r.By
	}
	told := map[string]any{"action": r.Action, "queues": r.Queues, "moved": shown.Moved, "stays": r.Stays, "outcomes": shown.Outcomes, "state": r.State, "state_why": r.Why}
	if deed == "made" {
		a.Count = uint64(r.Planned)
		told = map[string]any{"action": r.Action, "queues": r.Queues, "filter": hideFilter(m.office.masks.Mask(r.VHost), r.Filter, r.Masked), "ids": r.IDs, "options": r.Options}
	}
	if len(r.Queues) > actQueues {
		told["queues"] = append(slices.Clone(r.Queues[:actQueues]), fmt.Sprintf("and %d more", len(r.Queues)-actQueues))
	}
	text, _ := json.Marshal(told) // texts and numbers
	a.Detail = string(text)
	return a
}

// actQueues is how many queues of a job the audit names.
const actQueues = 20

// deeds are what the audit calls it that a job gets into a state.
var deeds = map[State]string{Planned: "resumed", Running: "resumed", Paused: "paused", Halted: "halted", Cancelled: "cancelled", Done: "done", Failed: "failed"}

// set changes the state of a job, for by, and stores it. REQUIRES: m.mu is held.
func (m *Jobs) set(j *job, by Actor, s State, why string) error {
	before := j.r.State
	alarm := by == Actor{} && j.r.Alarm // it comes and goes, and nobody has decided anything
	j.r.State, j.r.Why = s, why
	if s != Halted {
		j.r.Alarm = false
	}
	if s.over() {
		j.r.EndedMS, j.r.Names = m.office.now(), nil // nobody asks for them again
	}
	var err error
	if alarm {
		err = m.store(&j.r, true)
	} else {
		err = m.storeWith(&j.r, m.act(&j.r, by, deeds[s]))
	}
	if err != nil {
		return err
	}
	m.tell(j, before)
	m.log.Info("A job is "+string(s), "job", j.r.ID, "action", string(j.r.Action), "vhost", j.r.VHost, "queues", strings.Join(j.r.Queues, " "), "user", j.r.By, "why", why)
	if s.over() {
		return m.prune()
	}
	return nil
}

// prune drops the oldest finished jobs of who has most, if there are too many. REQUIRES: m.mu is held.
func (m *Jobs) prune() error {
	shelf := share.NewShelf[string, uint64](keptJobs)
	var gone []mutation.Change
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		if !m.jobs[id].r.State.over() {
			continue
		}
		for _, out := range shelf.Put(m.jobs[id].r.By, id, 1) {
			m.log.Info("There are too many finished jobs: the oldest of who has most is forgotten", "job", out, "user", m.jobs[out].r.By)
			delete(m.jobs, out)
			gone = append(gone, mutation.Change{Key: jobKey(out)})
		}
	}
	if len(gone) == 0 {
		return nil
	}
	m.work.Go(bug.Guarded(m.log, "forgetting jobs", m.forget))
	return m.b.PutRecords(mutation.All(gone), true)
}

// find returns a job for a change. REQUIRES: m.mu is held.
func (m *Jobs) find(id uint64) (*job, error) {
	j, ok := m.jobs[id]
	switch {
	case !ok:
		return nil, refuse(NotFound, "there is no job %d", id)
	case j.r.State.over():
		return nil, refuse(Conflict, "job %d is %s", id, j.r.State)
	case j.r.Rule != "":
		return nil, refuse(Conflict, "job %d is the work of rule '%s' of virtual host '%s': switch the rule off or on", id, j.r.Rule, j.r.VHost)
	}
	return j, nil
}

// Pause stops a job until it is resumed. The slice under way is finished.
func (m *Jobs) Pause(id uint64, by Actor) (Job, error) { return m.stop(id, by, Paused, "") }

// Cancel ends a job. What has moved stays where it is.
func (m *Jobs) Cancel(id uint64, by Actor) (Job, error) { return m.stop(id, by, Cancelled, "") }

func (m *Jobs) stop(id uint64, by Actor, s State, why string) (Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(id)
	if err != nil {
		return Job{}, err
	}
	if j.r.State != s {
		err = m.set(j, by, s, why)
	}
	if j.wake != nil {
		j.wake()
	} else if s == Cancelled && j.r.Action == letters.EditLetter {
		m.start(j) // its draft is in the archive
	}
	return m.show(&j.r), err
}

// Resume goes on with a job that is paused or halted, with the rights of c. One that its canary has halted goes on without
// a canary.
func (m *Jobs) Resume(id uint64, c *broker.Connection, by Actor) (Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(id)
	if err != nil {
		return Job{}, err
	}
	if j.r.State == Running || j.r.State == Planned {
		return m.show(&j.r), nil
	}
	if j.r.State == Halted && j.r.Canary != 0 {
		j.r.Canary, j.r.Sung = 0, true
	}
	j.conn, j.r.By, j.r.Operator, j.r.Account = c, c.User, c.IsOperator(), m.b.AccountMark(c.User)
	s := Running
	switch now := m.office.now(); {
	case j.r.BeganMS != 0:
	case j.r.Options.ScheduleMS > now:
		s = Planned
	default:
		j.r.BeganMS = now
	}
	if err := m.set(j, by, s, ""); err != nil {
		return Job{}, err
	}
	m.start(j)
	return m.show(&j.r), nil
}

// endVHost ends the jobs of a virtual host that is deleted. They stay to be looked at, and are none of a later virtual host of that name.
func (m *Jobs) endVHost(name message.VHost, _ broker.Doer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[id]
		if j == nil || j.r.VHost != string(name) || j.r.Outlived {
			continue
		}
		j.r.Outlived = true
		if j.r.State.over() {
			_ = m.store(&j.r, false) // an error ends the node; the deletion of the virtual host is written after it, and synced
			continue
		}
		_ = m.set(j, Actor{}, Cancelled, "its virtual host was deleted")
		if j.wake != nil {
			j.wake()
		}
	}
}

// start starts the goroutine of a job, unless it has one. REQUIRES: m.mu is held.
func (m *Jobs) start(j *job) {
	if m.life.Err() != nil {
		return
	}
	if j.conn == nil {
		if j.conn = m.b.As(j.r.By, message.VHost(j.r.VHost)); j.r.Operator {
			j.conn = m.b.AsOperator(j.r.By, message.VHost(j.r.VHost))
		}
	}
	if j.wake != nil {
		return
	}
	sleep, wake := context.WithCancel(m.life)
	j.wake = wake
	m.work.Go(bug.Guarded(m.log, "a job of the Dead Letter Office", func() { m.run(j, sleep) }))
}

// errStopped says that a job is not running any more.
var errStopped = errors.New("the job is not running")

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
