package openapi

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// envelope is the common part of answers.
type envelope struct {
	RequestID string `json:"RequestId"`
	// Only some actions answer with Code, Message and Success.
	Code    int    `json:",omitempty"`
	Message string `json:",omitempty"`
	Success bool   `json:",omitempty"`
	Data    any    `json:",omitempty"`
}

// fault is the answer to a refused request.
type fault struct {
	RequestID string `json:"RequestId"`
	HostID    string `json:"HostId"`
	Code      string
	Message   string
}

// answer writes the answer to the request.
func (c *call) answer(w http.ResponseWriter, known action, data any, refused *refusal) {
	status, body := http.StatusOK, any(nil)
	if refused != nil {
		status, body = refused.status, fault{c.id, c.r.Host, refused.code, refused.message}
	} else {
		e := envelope{RequestID: c.id, Data: data}
		if known.says200 {
			e.Code, e.Message, e.Success = http.StatusOK, "operation success.", true
		}
		body = e
	}
	text, err := json.Marshal(body)
	if err != nil { // there is nothing in it that could not be written
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json;charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Acs-Request-Id", c.id)
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that has gone needs no answer
}
