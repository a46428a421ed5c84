package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"

	"bartleby.mq/internal/core/declare"
)

// responder writes one response.
type responder struct {
	http.ResponseWriter
	status int    // 0 until it is written
	route  string // the pattern of the path
}

// created is the answer of a request that made something; location, if not
// empty, says where, relative to the request.
type created struct{ location string }

// putDone is the answer of a PUT (BR-15.2).
func putDone(isNew bool, err error) (any, error) {
	if err == nil && isNew {
		return created{}, nil
	}
	return nil, err
}

// put carries out a PUT of what is declared.
func (r *request) put(c declare.Command) (any, error) {
	did, err := r.admin().Do(c)
	return putDone(did.Created, err)
}

// drop carries out a DELETE of what is declared.
func (r *request) drop(c declare.Command) (any, error) {
	did, err := r.admin().Do(c)
	if err == nil && !did.Existed {
		return nil, notFound
	}
	return nil, err
}

// set carries out a change of which the answer says only that it was made.
func (r *request) set(c declare.Command) (any, error) {
	_, err := r.admin().Do(c)
	return nil, err
}

// jsonText is an answer that is JSON already.
type jsonText []byte

// plainText is an answer that is no JSON.
type plainText string

// withStatus is an answer with a status other than 200.
type withStatus struct {
	status int
	body   any
}

// withTag is an answer with an ETag.
type withTag struct {
	tag  string // without quotes
	body any
}

// written is an answer that writes itself, mostly in parts.
type written func(out *responder)

// answer writes what a handler returned: nil is 204.
func (out *responder) answer(r *request, v any) {
	if v != nil {
		if bad := cmp.Or(r.checkQuery(), r.checkPaging()); bad != nil {
			out.fail(bad)
			return
		}
	}
	switch v := v.(type) {
	case nil:
		out.begin(http.StatusNoContent)
	case created:
		if v.location != "" {
			out.Header().Set("Location", v.location)
		}
		out.begin(http.StatusCreated)
	case written:
		v(out)
	case plainText:
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out.begin(http.StatusOK)
		_, _ = out.Write([]byte(v)) // as in json
	case withStatus:
		out.json(v.status, v.body)
	case withTag:
		out.Header().Set("ETag", `"`+v.tag+`"`)
		out.answer(r, v.body)
	case withCookie:
		http.SetCookie(out, v.cookie)
		out.answer(r, v.body)
	case list:
		dear := r.rt.readsAll() || r.query().Has("name") // what is listed is made and matched now
		if dear && !r.s.reads.Begin(r.user, r.Context().Done(), nil) {
			out.fail(nobodyWaits)
			return
		}
		page, err := v.page(r.Context(), r.query(), r.shown)
		if dear {
			r.s.reads.End()
		}
		if err != nil {
			out.fail(err)
			return
		}
		out.json(http.StatusOK, page)
	case map[string]any:
		query := r.query()
		if r.s.b.Strict && r.URL.Query().Has("page") {
			query.Del("columns") // as RabbitMQ, if it does not fail
		}
		wanted, err := columnsOf(query)
		if err != nil {
			out.fail(err)
			return
		}
		out.json(http.StatusOK, r.shown(v, wanted))
	default:
		out.json(http.StatusOK, v)
	}
}

func (out *responder) fail(f *failure) {
	if f.kind == "" {
		out.begin(f.status)
		return
	}
	out.json(f.status, map[string]any{"error": f.kind, "reason": f.reason})
}

func (out *responder) begin(status int) {
	out.status = status
	out.WriteHeader(status)
}

func (out *responder) json(status int, v any) {
	out.Header().Set("Content-Type", "application/json")
	out.Header().Set("Vary", "accept, accept-encoding, origin")
	out.begin(status)
	if text, ok := v.(jsonText); ok {
		_, _ = out.Write(text)
		return
	}
	var b bytes.Buffer
	if err := writeJSON(&b, v); err != nil {
		return // our own values: nothing in them cannot be encoded
	}
	_, _ = out.Write(b.Bytes()) // a client that went away is no error of ours
}

// writeJSON appends the JSON of a value as answers have it.
func writeJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline
	return nil
}
