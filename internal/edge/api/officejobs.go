package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/office"
)

// jobRoutes are the resources of the jobs of the Dead Letter Office (docs/internals/office.md).
func (s *server) jobRoutes() []route {
	if s.Office == nil {
		return nil
	}
	return []route{
		{"POST", "office/jobs", managing, s.postJob},
		{"GET", "office/jobs", managing, s.listJobs},
		{"GET", "office/jobs/{id}", managing, s.getJob},
		{"POST", "office/jobs/{id}/pause", managing, s.pauseJob},
		{"POST", "office/jobs/{id}/resume", managing, s.resumeJob},
		{"POST", "office/jobs/{id}/cancel", managing, s.cancelJob},
		{"GET", "office/jobs/{id}/events", managing, s.watchJob},
	}
}

// asJobFailure translates an error of a job: whoever sends letters back learns which exchange or queue is refused.
func asJobFailure(err error) error {
	var e *office.Error
	var refused *topology.Error
	switch {
	case errors.As(err, &e) && e.Kind == office.NotFound:
		return &failure{http.StatusNotFound, "not_found", e.Text}
	case errors.As(err, &e) && e.Kind == office.Forbidden:
		return &failure{http.StatusForbidden, "forbidden", e.Text}
	case errors.As(err, &e) && e.Kind == office.Conflict:
		return &failure{http.StatusConflict, "conflict", e.Text}
	case errors.As(err, &e) && e.Kind == office.Stale:
		return &failure{http.StatusPreconditionFailed, "precondition_failed", e.Text}
	case errors.As(err, &e):
		return badRequest(e.Text)
	case errors.As(err, &refused) && refused.Kind == topology.AccessRefused:
		return notAuthorised(refused.Text)
	}
	return err
}

// seesVHost says whether the user may see the virtual host, which exists.
func (r *request) seesVHost(name message.VHost) (sees bool) {
	r.eachVHost(func(v *topology.VHost) { sees = sees || v.Name == name })
	return sees
}

// jobRequest reads the body: a filter's value is a text, a number or a list of them.
func (r *request) jobRequest() (q office.Request, err error) {
	var body struct {
		office.Request
		Filter map[string]any `json:"filter"`
	}
	d := json.NewDecoder(bytes.NewReader(r.raw))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(&body); err != nil {
		return q, badRequest("the body is no request for a job: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	q = body.Request
	q.By = r.actor()
	for _, name := range slices.Sorted(maps.Keys(body.Filter)) {
		values, isList := body.Filter[name].([]any)
		if !isList {
			values = []any{body.Filter[name]}
		}
		for _, v := range values {
			text := ""
			switch v := v.(type) {
			case string:
				text = v
			case json.Number:
				text = v.String()
			case nil:
				continue
			default:
				return q, badRequest(fmt.Sprintf("filter '%s': its value must be a text, a number or a list of them", name))
			}
			if q.Filter == nil {
				q.Filter = map[string][]string{}
			}
			q.Filter[name] = append(q.Filter[name], text)
		}
	}
	if !r.seesVHost(message.VHost(q.VHost)) {
		return q, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("vhost: there is no virtual host '%s', or you may not see it", q.VHost)}
	}
	return q, nil
}

// postJob plans a job, or starts one that was planned.
func (s *server) postJob(r *request) (any, error) {
	query, err := r.officeQuery("dry_run", "reveal")
	if err != nil {
		return nil, err
	}
	q, err := r.jobRequest()
	if err != nil {
		return nil, err
	}
	if q.Reveal, err = r.revealedIn(query, "job", message.VHost(q.VHost), strings.Join(q.Queues, " ")+q.Queue); err != nil {
		return nil, err
	}
	link := r.linkTo(message.VHost(q.VHost))
	mask := s.maskFor(q.VHost, q.Reveal)
	switch dry := query.Get("dry_run"); dry {
	case "true":
		plan, err := s.Office.Jobs.Dry(r.Context(), link, &q)
		r.did = []any{slog.Group("job", "dry_run", true, "action", string(q.Action), "vhost", q.VHost, "queues", strings.Join(q.Queues, " "), "count", plan.Count)}
		if err != nil {
			return nil, asJobFailure(err)
		}
		return plan.Behind(mask), nil
	case "", "false":
	default:
		return nil, badRequest(fmt.Sprintf("dry_run '%s' must be true or false", dry))
	}
	j, err := s.Office.Jobs.Start(r.Context(), link, &q)
	if err != nil {
		r.did = []any{slog.Group("job", "action", string(q.Action), "vhost", q.VHost, "queues", strings.Join(q.Queues, " "))}
		return nil, asJobFailure(err)
	}
	r.did = s.jobDone(&j)
	return withStatus{http.StatusCreated, j.Behind(mask)}, nil
}

// jobDone is what the audit log shows of a job, behind the mask: who reads the log need not have the tag reveal.
func (s *server) jobDone(done *office.Job) []any {
	shown := s.jobBehind(done, false)
	j := &shown
	options, _ := json.Marshal(j.Options)
	filter, _ := json.Marshal(j.Filter)
	return []any{slog.Group("job", "id", j.ID, "action", string(j.Action), "vhost", j.VHost, "queues", strings.Join(j.Queues, " "), "filter", string(filter),
		"options", string(options), "planned", j.Planned, "moved", j.Moved, "reason", j.Reason)}
}

func (s *server) listJobs(r *request) (any, error) {
	q, err := r.officeQuery("limit", "cursor", "state", "reveal")
	if err != nil {
		return nil, err
	}
	reveal, err := r.revealedIn(q, "jobs", "", "")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	r.eachVHost(func(v *topology.VHost) { seen[string(v.Name)] = true })
	all := slices.DeleteFunc(s.Office.Jobs.List(), func(j office.Job) bool { return (j.Outlived || !seen[j.VHost]) && !r.may(monitoring) })
	if q.Has("limit") || q.Has("cursor") || q.Has("state") {
		page, err := r.pageOfJobs(all, q, reveal)
		if err != nil {
			return nil, err
		}
		return page, nil
	}
	list := make([]shownJob, 0, len(all))
	for i := range all {
		list = append(list, r.showJob(&all[i], reveal))
	}
	return list, nil
}

// job is the job that the path names.
func (s *server) job(r *request) (office.Job, error) {
	id, err := strconv.ParseUint(r.params["id"], 10, 64)
	if err != nil {
		return office.Job{}, badRequest(fmt.Sprintf("'%s' is no id of a job, which is a number", r.params["id"]))
	}
	j, ok := s.Office.Jobs.Job(id)
	if !ok || !r.may(monitoring) && (j.Outlived || !r.seesVHost(message.VHost(j.VHost))) {
		return j, &failure{http.StatusNotFound, "not_found", fmt.Sprintf("there is no job %d", id)}
	}
	return j, nil
}

func (s *server) getJob(r *request) (any, error) {
	j, err := s.job(r)
	if err != nil {
		return nil, err
	}
	return r.showJob(&j, false), nil
}

// mayStop refuses users who have not started the job and are no policymakers.
func (r *request) mayStop(j *office.Job) error {
	if r.local || j.IsBy(r.user) || r.may(policies) {
		return nil
	}
	return notAuthorised(fmt.Sprintf("job %d is the job of user '%s'; others need the tag policymaker", j.ID, j.By))
}

func (s *server) pauseJob(r *request) (any, error)  { return s.stopJob(r, s.Office.Jobs.Pause) }
func (s *server) cancelJob(r *request) (any, error) { return s.stopJob(r, s.Office.Jobs.Cancel) }
func (s *server) stopJob(r *request, stop func(uint64, office.Actor) (office.Job, error)) (any, error) {
	j, err := s.job(r)
	if err == nil {
		err = r.mayStop(&j)
	}
	if err == nil {
		j, err = stop(j.ID, r.actor())
	}
	if err != nil {
		return nil, asJobFailure(err)
	}
	r.did = s.jobDone(&j)
	return r.showJob(&j, false), nil
}

// resumeJob goes on with a job, with the rights of the user: the job is the user's from now on.
func (s *server) resumeJob(r *request) (any, error) {
	j, err := s.job(r)
	if err == nil {
		err = r.mayStop(&j)
	}
	if err == nil && !r.seesVHost(message.VHost(j.VHost)) {
		err = &failure{http.StatusNotFound, "not_found", fmt.Sprintf("vhost: there is no virtual host '%s', or you may not see it", j.VHost)}
	}
	if err == nil {
		j, err = s.Office.Jobs.Resume(j.ID, r.linkTo(message.VHost(j.VHost)), r.actor())
	}
	if err != nil {
		return nil, asJobFailure(err)
	}
	r.did = s.jobDone(&j)
	return r.showJob(&j, false), nil
}

// watchJob answers with server-sent events for as long as the job goes on.
func (s *server) watchJob(r *request) (any, error) {
	j, err := s.job(r)
	if err != nil {
		return nil, err
	}
	return written(func(out *responder) { // it may not be called
		place := s.watchers.Enter(r.user)
		if place == nil {
			out.fail(&failure{http.StatusServiceUnavailable, "too_many_watchers", fmt.Sprintf("%d requests watch jobs already, and nobody has two more than you; ask for /api/office/jobs/%d now and then instead", maxWatchers, j.ID)})
			return
		}
		defer place.Leave()
		s.writeEvents(out, r, j.ID, place.Yield())
	}), nil
}

// How often a job is looked at for its watchers, how long it is watched after its end, since its letters still have outcomes,
// how often a silent stream says that it lives, and how long a watcher may take to read an event.
const watchEvery, watchAfter, watchAlive, watchPatience = 250 * time.Millisecond, time.Minute, 15 * time.Second, 10 * time.Second

// maxWatchers is how many requests may watch jobs: each looks at its job four times a second, and has a connection.
const maxWatchers = 256

// stream writes server-sent events to a watcher that reads them: for one that does not, writing fails after watchPatience.
type stream struct {
	out     *responder
	control *http.ResponseController
}

func newStream(out *responder) *stream {
	out.Header().Set("Content-Type", "text/event-stream")
	out.Header().Set("Cache-Control", "no-store")
	out.Header().Set("X-Accel-Buffering", "no") // of nginx, which would hold events back
	out.begin(http.StatusOK)
	return &stream{out, http.NewResponseController(out.ResponseWriter)}
}

// say writes an event, or a comment without a name.
func (w *stream) say(event string, data []byte) error {
	// Writers without deadlines belong to tests.
	if err := w.control.SetWriteDeadline(time.Now().Add(watchPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	text := fmt.Sprintf("event: %s\ndata: %s\n\n", event, data)
	if event == "" {
		text = fmt.Sprintf(": %s\n\n", data)
	}
	if _, err := w.out.Write([]byte(text)); err != nil {
		return err
	}
	return w.control.Flush()
}

// watchAsk is how often it is asked anew what a watcher may see of a job, where that takes a while.
const watchAsk = time.Second

// watched is the job that the path names, as the user may see it now: rights may have changed since the request began.
func (r *request) watched() (shown shownJob, err error) {
	j, err := r.s.job(r)
	if err != nil {
		return shown, err
	}
	r.sights = nil
	return r.showJob(&j, false), nil
}

// writeEvents writes server-sent events: "job" with the job, whenever what the user may see of it has changed, and "end". That nothing is written tells
// nothing of what is hidden.
func (s *server) writeEvents(out *responder, r *request, id uint64, yield <-chan struct{}) {
	to := newStream(out)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var shown shownJob
	var seen, text, last []byte // the job as it is, as it may be seen, and as it was written
	var asked, said time.Time
	for {
		j, ok := s.Office.Jobs.Job(id)
		now, err := json.Marshal(s.jobBehind(&j, false))
		silent := time.Since(said) >= watchAlive
		if ok && err == nil && (silent || !bytes.Equal(now, seen) && (!r.mayHide(&j) || time.Since(asked) >= watchAsk)) {
			seen, asked = now, time.Now()
			if shown, err = r.watched(); err == nil {
				text, err = json.Marshal(shown)
			}
		}
		if gone := r.goesOn(); !ok || err != nil || gone != nil {
			_ = to.say("end", []byte("{}"))
			return
		}
		switch {
		case !bytes.Equal(text, last):
			err = to.say("job", text)
			last, said = text, time.Now()
		case silent:
			err = to.say("", []byte("alive"))
			said = time.Now()
		}
		if err != nil {
			return // the watcher has gone, or does not read
		}
		if bytes.Equal(now, seen) && shown.EndedMS != 0 && (shown.Outcomes.Waiting == 0 || time.Since(time.UnixMilli(shown.EndedMS)) >= watchAfter) {
			_ = to.say("end", []byte("{}"))
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.Office.Jobs.Closed():
			return
		case <-yield: // somebody who watches fewer jobs has come
			return
		}
	}
}
