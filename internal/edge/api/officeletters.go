package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/office"
)

// Bounds of one page of letters. A stream has none of them: it ends with its client.
const (
	defaultLetters  = 100
	lettersBytes    = 256 << 20
	lettersTime     = 2 * time.Second
	letterPageBytes = 4 << 20
)

// shownBody is how much of a body one letter shows.
const shownBody = 64 << 10

// ndjson is the content type of a stream: one JSON value a line.
const ndjson = "application/x-ndjson"

// progressEvery is how often a stream says how far it is.
const progressEvery = 250 * time.Millisecond

// listLetters answers with a page, or streams all letters that the filters select.
func (s *server) listLetters(r *request) (any, error) {
	queue, err := r.letterQueue()
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query of the address cannot be read: " + err.Error())
	}
	streams := strings.Contains(r.Header.Get("Accept"), ndjson)
	ask := office.LettersRequest{Cursor: q.Get("cursor"), Limit: defaultLetters, Bytes: lettersBytes, Answer: letterPageBytes, Time: lettersTime, By: r.user}
	most := maxPage
	if streams {
		ask.Limit, ask.Bytes, ask.Answer, ask.Time, most = 0, 0, 0, 0, 1<<31-1
	}
	if n, err := officeLimit(q, most); err != nil {
		return nil, err
	} else if n > 0 {
		ask.Limit = n
	}
	if ask.Oldest, err = officeOrder(q, "newest", "oldest"); err != nil {
		return nil, err
	}
	if ask.Reveal, err = r.revealed(q, "letters"); err != nil {
		return nil, err
	}
	for _, name := range []string{"cursor", "limit", "order", "reveal"} {
		delete(q, name)
	}
	if ask.Query, err = letter.ParseQuery(string(r.vhost()), q, r.s.b.Now()); err != nil {
		return nil, err
	}
	if streams {
		if name := ask.Query.Asks(s.Office.Masks().Mask(r.params["vhost"])); name != "" && !ask.Reveal {
			return nil, wouldTell(name, r.params["vhost"]) // before the stream begins
		}
		return s.streamLetters(r, queue, ask), nil
	}
	items := []office.Row{}
	end, err := s.Office.Letters(r.Context(), queue, ask, func(row *office.Row) bool {
		items = append(items, *row)
		return true
	}, nil)
	switch {
	case r.Context().Err() != nil:
		return nil, nobodyWaits
	case err != nil:
		return nil, asJobFailure(err)
	}
	return map[string]any{"items": items, "next": end.Next, "examined": end.Examined, "stopped": end.Stopped}, nil
}

// streamLetters writes {"letter": …} for each letter, {"progress": …} now and then, and {"end": …} or {"error": …} last.
func (s *server) streamLetters(r *request, queue broker.QueueInfo, ask office.LettersRequest) written {
	return func(out *responder) {
		var gone *failure // what ends it
		out.Header().Set("Content-Type", ndjson)
		out.Header().Set("Vary", "accept, accept-encoding, origin")
		out.begin(http.StatusOK)
		flusher := http.NewResponseController(out.ResponseWriter)
		var lines bytes.Buffer
		flush := func() error {
			_, err := out.Write(lines.Bytes())
			lines.Reset()
			return err
		}
		line := func(what string, v any) bool {
			if writeJSON(&lines, map[string]any{what: v}) != nil {
				return false
			}
			lines.WriteByte('\n')
			return true
		}
		told := time.Now()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		// Between two slices, when others may look: a client that reads slowly, or a backend that thinks, keeps nobody from it.
		reached, err := s.Office.Letters(ctx, queue, ask, func(row *office.Row) bool { return line("letter", row) }, func(examined, total int) {
			at := time.Now()
			tell := at.Sub(told) >= progressEvery
			if tell {
				told = at
				line("progress", map[string]int{"examined": examined, "total": total})
			}
			if gone = r.goesOn(); gone != nil || lines.Len() >= 32<<10 && flush() != nil || tell && (flush() != nil || flusher.Flush() != nil) {
				cancel()
			}
		})
		if gone != nil {
			err = gone
		}
		if err != nil {
			f := asFailure(asJobFailure(err))
			line("error", map[string]any{"error": f.kind, "reason": f.reason})
		} else {
			line("end", reached)
		}
		_ = flush()
	}
}

// wholeLetter is all of one letter in JSON.
type wholeLetter struct {
	office.Row
	Timeline   []office.Stop     `json:"timeline"`
	RejectedBy rejectedBy        `json:"rejected_by"`
	Cause      map[string]string `json:"cause"`
	Properties map[string]any    `json:"properties"`
	Headers    any               `json:"headers"`
	Body       letterBody        `json:"body"`
	Replay     replayForecast    `json:"replay"`
	From       string            `json:"from,omitempty"`        // the queue that a job took it from
	EditedFrom string            `json:"edited_from,omitempty"` // the id of its original in the archive
	// ReplayedFrom is the queue that the last replay took it from; OlderHeaders: its headers tell of an error of before that.
	ReplayedFrom string `json:"replayed_from,omitempty"`
	OlderHeaders bool   `json:"older_headers,omitempty"`

	Discarded *discarded `json:"discarded,omitempty"` // of a letter in the archive, while its job is known
}

// discarded is how a letter came to the archive.
type discarded struct {
	Job    string `json:"job"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	Rule   string `json:"rule,omitempty"`  // whose rule did it, with the rights of By
	AtMS   int64  `json:"at_ms,omitempty"` // when the job began; 0: it is not known
}

// discardOf tells of the job that discarded a letter, nil if none is known.
func (r *request) discardOf(w *office.Whole, reveal bool) *discarded {
	if w.Queue != broker.Archive || w.Job == nil {
		return nil
	}
	id, err := strconv.ParseUint(*w.Job, 10, 64)
	if err != nil {
		return nil
	}
	j, ok := r.s.Office.Jobs.Job(id)
	if !ok || j.VHost != string(w.VHost) || j.Action != letters.Discard {
		return nil
	}
	shown := r.showJob(&j, reveal)
	d := &discarded{Job: *w.Job, By: shown.By, Reason: shown.Reason, Rule: shown.Rule}
	if d.Rule == "" { // that of a rule goes on and on
		d.AtMS = shown.BeganMS
	}
	return d
}

// rejectedBy is who made the letter die the last time, as far as it is known.
type rejectedBy struct {
	ConsumerTag   string `json:"consumer_tag,omitempty"`
	Connection    string `json:"connection,omitempty"`
	Name          string `json:"connection_name,omitempty"` // what the client calls its connection
	Peer          string `json:"peer,omitempty"`
	User          string `json:"user,omitempty"`
	Product       string `json:"product,omitempty"`
	Version       string `json:"version,omitempty"`
	DeliveryCount uint32 `json:"delivery_count,omitempty"`
}

type letterBody struct {
	Bytes    int    `json:"bytes"`
	Encoding string `json:"encoding"` // json, text or base64
	Text     string `json:"text"`
	Cut      bool   `json:"cut"`
	Section  string `json:"section,omitempty"` // amqp-value or amqp-sequence: text is what it says, and bytes are those that it is encoded in
}

type replayForecast struct {
	Exchange string   `json:"exchange"`
	Keys     []string `json:"routing_keys"`
	Queues   []string `json:"queues"`
	Problem  *string  `json:"problem"`
}

func (s *server) getLetter(r *request) (any, error) {
	query, err := r.officeQuery("reveal")
	if err != nil {
		return nil, err
	}
	queue, err := r.letterQueue()
	if err != nil {
		return nil, err
	}
	reveal, err := r.revealed(query, "letter")
	if err != nil {
		return nil, err
	}
	w, err := s.Office.Letter(r.link(), queue, r.params["id"], shownBody, reveal)
	if err != nil {
		return nil, letterMissing(r, err)
	}
	a := wholeLetter{
		Row: w.Row, Timeline: w.Timeline, Body: showBody(w.Body, w.Size, w.Cut),
		Cause: map[string]string{"class": w.Cause.Class, "error": w.Cause.Error, "detail": w.Cause.Detail, "from": w.Cause.From},
		From:  w.From, EditedFrom: w.EditedFrom, ReplayedFrom: w.ReplayedFrom, OlderHeaders: w.OlderHeaders,
		Replay: replayForecast{Exchange: w.Replay.Exchange, Keys: orEmpty(w.Replay.Keys), Queues: orEmpty(w.Replay.Queues)},
	}
	a.Body.Section = w.Section
	a.Discarded = r.discardOf(&w, reveal)
	if w.Replay.Problem != "" {
		a.Replay.Problem = &w.Replay.Problem
	}
	by := &w.RejectedBy
	a.RejectedBy = rejectedBy{by.ConsumerTag, by.Connection, by.Name, by.Peer(), by.User, by.Product, by.Version, by.DeliveryCount}
	properties, err := showProperties(w.Properties)
	if err != nil {
		return nil, err
	}
	if a.Properties = properties; w.Mask != nil {
		hidden, err := showPropertiesBehind(w.Mask, w.Properties)
		if err != nil {
			return nil, err
		}
		a.Properties, a.Masked = hidden, w.Masked || !reflect.DeepEqual(hidden, properties)
	}
	a.Headers = map[string]any{}
	if h, ok := a.Properties["headers"]; ok {
		a.Headers = h
		delete(a.Properties, "headers")
	}
	return a, nil
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// showBody is the first part of a body of size bytes; cut: there is more.
func showBody(part []byte, size int, cut bool) letterBody {
	b := letterBody{Bytes: size, Cut: cut}
	text := part
	for n := 0; b.Cut && n < utf8.UTFMax-1 && len(text) > 0 && !utf8.Valid(text); n++ {
		text = text[:len(text)-1] // it was cut within a character
	}
	switch {
	case !utf8.Valid(text) || slices.Contains(text, 0):
		b.Encoding, b.Text = "base64", base64.StdEncoding.EncodeToString(part)
	case !b.Cut && json.Valid(text):
		b.Encoding, b.Text = "json", string(text)
	default:
		b.Encoding, b.Text = "text", string(text)
	}
	return b
}

// getLetterBody answers with the raw body, or a range of it. Whatever it is, a browser only stores it.
func (s *server) getLetterBody(r *request) (any, error) {
	queue, err := r.letterQueue()
	if err != nil {
		return nil, err
	}
	query, err := r.officeQuery("reveal")
	if err != nil {
		return nil, err
	}
	reveal, err := r.revealed(query, "body")
	if err != nil {
		return nil, err
	}
	body, died, masked, err := s.Office.Body(queue, r.params["id"], reveal)
	if err != nil {
		return nil, letterMissing(r, err)
	}
	return written(func(out *responder) {
		h := out.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", `attachment; filename="`+r.params["id"]+`"`)
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		if masked {
			h.Set("Bartleby-Masked", "true") // what is hidden may change
		} else {
			h.Set("ETag", `"`+r.params["id"]+`"`) // the body of a letter never changes
		}
		out.status = http.StatusOK
		http.ServeContent(out.ResponseWriter, r.Request, "", time.UnixMilli(died), bytes.NewReader(body))
	}), nil
}
