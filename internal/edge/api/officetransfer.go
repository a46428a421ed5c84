package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/office"
)

// exportLetters streams the letters that the filters select, one a line. If it has to end early, the last line is {"error": …}, which no
// import takes for a letter.
func (s *server) exportLetters(r *request) (any, error) {
	queue, err := r.letterQueue()
	if err != nil {
		return nil, err
	}
	filters, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query of the address cannot be read: " + err.Error())
	}
	reveal, err := r.revealed(filters, "letters")
	if err != nil {
		return nil, err
	}
	if s.maskFor(string(r.vhost()), reveal) != nil {
		return nil, &failure{http.StatusForbidden, "forbidden", fmt.Sprintf("the masks of vhost '%s' hide parts of letters, and an export would come back without them: it needs ?reveal=true (--reveal), and the tag reveal", r.vhost())}
	}
	delete(filters, "reveal")
	told := []byte{}
	if len(filters) > 0 {
		told, _ = json.Marshal(office.HideFilter(s.maskFor(string(r.vhost()), false), filters)) // texts: never fails
	}
	query, err := letter.ParseQuery(string(r.vhost()), filters, r.s.b.Now())
	if err != nil {
		return nil, err
	}
	return written(func(out *responder) {
		out.Header().Set("Content-Type", ndjson)
		out.Header().Set("Content-Disposition", `attachment; filename="letters.ndjson"`)
		out.begin(http.StatusOK)
		n, err := s.Office.Export(r.Context(), queue, r.user, &query, func(line []byte) error {
			if gone := r.goesOn(); gone != nil {
				return gone
			}
			_, err := out.Write(line)
			return err
		})
		if n > 0 { // nobody learns from nothing, and many such requests would push everything else out of the audit
			s.Office.Record(office.Act{Actor: r.actor(), What: "letters.exported", VHost: string(r.vhost()), Object: string(r.queueName()), Count: uint64(n), Detail: cutDetail(string(told))})
		}
		if err != nil && r.Context().Err() == nil {
			f := asFailure(err)
			var last bytes.Buffer
			_ = writeJSON(&last, map[string]any{"error": f.kind, "reason": f.reason})
			last.WriteByte('\n')
			_, _ = out.Write(last.Bytes())
		}
	}), nil
}

// cutDetail is a text of a bounded length.
func cutDetail(text string) string { return text[:min(len(text), 1000)] }

// imports is how many imports there may be at once: each has a line in memory, which may be as long as the largest message.
const imports = 4

// importLetters puts the lines of an export into a queue. The body is not read before: it may have any length.
func (s *server) importLetters(r *request) (any, error) {
	if _, err := r.officeQuery(); err != nil {
		return nil, err
	}
	to, err := letters.As(r.link()).Importer(r.queueName(), r.local || r.may(administers))
	if err != nil {
		return nil, asJobFailure(err)
	}
	place := s.imports.Enter(r.user)
	if place == nil {
		return nil, &failure{http.StatusTooManyRequests, "too_many_imports", fmt.Sprintf("%d imports are under way, and nobody has two more than you: try again when one of them is over", imports)}
	}
	return written(func(out *responder) {
		defer place.Leave()
		result, err := s.Office.Import(r.Context(), to, stillKnown{r, r.arriving(out, r.Body, place)}, r.link().MaxMessageSize())
		if result.Imported > 0 {
			s.Office.Record(office.Act{Actor: r.actor(), What: "letters.imported", VHost: string(r.vhost()), Object: string(r.queueName()), Count: uint64(result.Imported)})
		}
		r.did = []any{"imported", result.Imported, "refused", len(result.Refused) + result.More}
		switch {
		case errors.Is(err, office.ErrAlarm):
			out.fail(&failure{http.StatusServiceUnavailable, "alarm", fmt.Sprintf("%v. Before that %d letters were imported", err, result.Imported)})
		case err != nil:
			out.fail(asFailure(asJobFailure(err)))
		default:
			out.json(http.StatusOK, result)
		}
	}), nil
}

// stillKnown is a body that may take long: it is asked again whether its user may still do it.
type stillKnown struct {
	of   *request
	body io.Reader
}

// Read implements io.Reader.
func (b stillKnown) Read(p []byte) (int, error) {
	if gone := b.of.goesOn(); gone != nil {
		return 0, gone
	}
	return b.body.Read(p)
}

// jobPage is a page of jobs.
type jobPage struct {
	Items []shownJob `json:"items"`
	Next  *string    `json:"next"`
	Total int        `json:"total"`
}

// shownJob is a job as one user sees it.
type shownJob struct {
	office.Job
	Hidden    bool `json:"filter_hidden,omitempty"` // the user may not read all its queues: filters tell of letters
	Uncounted bool `json:"counts_hidden,omitempty"` // nor what its rule has done with them
}

// mostReadable is how many queues of a job are looked at before its filter is hidden: each may be asked of a backend.
const mostReadable = 20

// mayHide says whether it depends on the user's rights to read queues what is shown of a job: to ask for these may take a while.
func (r *request) mayHide(j *office.Job) bool {
	return j.Rule != "" || len(j.Filter) > 0 && !r.local && !j.IsBy(r.user)
}

// hides says whether the user may not know the filter of a job, nor what it did if it is of a rule.
func (r *request) hides(j *office.Job) bool {
	if j.Rule != "" {
		return r.sight(message.VHost(j.VHost)).Hides(j)
	}
	if !r.mayHide(j) {
		return false
	}
	link := r.linkTo(message.VHost(j.VHost))
	return len(j.Queues) > mostReadable || slices.ContainsFunc(j.Queues, func(q string) bool { return !link.MayRead(message.QueueName(q)) })
}

// showJob is a job as the user sees it.
func (r *request) showJob(j *office.Job, reveal bool) shownJob {
	return showJob(r.s.jobBehind(j, reveal), r.hides(j))
}

// shownState is the state of showJob: which jobs a filter selects, and how many, tells nothing else than they do.
func (r *request) shownState(j *office.Job) office.State {
	if j.Rule != "" && r.hides(j) {
		return j.Uncounted().State
	}
	return j.State
}

// jobBehind is the job behind the mask of its virtual host.
func (s *server) jobBehind(j *office.Job, reveal bool) office.Job {
	if !reveal && (j.Outlived || !s.b.HasVHost(message.VHost(j.VHost), 0)) {
		return j.Ended()
	}
	return j.Behind(s.maskFor(j.VHost, reveal))
}

// showJob is a job without its filter if that is hidden.
func showJob(j office.Job, hidden bool) shownJob {
	switch {
	case hidden && j.Rule != "":
		return shownJob{j.Uncounted(), len(j.Filter) > 0, true}
	case hidden:
		j.Filter = nil
	}
	return shownJob{j, hidden, false}
}

// pageOfJobs is the page that limit and cursor ask for, newest first, of those that the user sees.
func (r *request) pageOfJobs(all []office.Job, q url.Values, reveal bool) (p jobPage, err error) {
	limit, err := officeLimit(q, maxPage)
	if err != nil {
		return p, err
	}
	if limit == 0 {
		limit = defaultJobs
	}
	if state := q.Get("state"); state != "" {
		all = slices.DeleteFunc(all, func(j office.Job) bool { return string(r.shownState(&j)) != state })
	}
	p.Total = len(all)
	if cursor := q.Get("cursor"); cursor != "" {
		id, err := strconv.ParseUint(cursor, 10, 64)
		if err != nil {
			return p, badRequest(fmt.Sprintf("cursor '%s' is none; it must be next of the page before", strings.ToValidUTF8(cursor, "?")))
		}
		all = slices.DeleteFunc(all, func(j office.Job) bool { return j.ID >= id })
	}
	p.Items = []shownJob{}
	for i := range all[:min(limit, len(all))] {
		p.Items = append(p.Items, r.showJob(&all[i], reveal))
	}
	if len(all) > limit {
		next := fmt.Sprint(all[limit-1].ID)
		p.Next = &next
	}
	return p, nil
}

const defaultJobs = 100
