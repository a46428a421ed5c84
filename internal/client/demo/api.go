package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// api is the management API as the story needs it.
type api struct {
	base, user, password string
}

// letter is a message as the story shows it.
type letter struct {
	ID, Payload, Error string
	Deaths             []death
}

type death struct {
	Count    int      `json:"count"`
	Queue    string   `json:"queue"`
	Reason   string   `json:"reason"`
	Exchange string   `json:"exchange"`
	Keys     []string `json:"routing-keys"`
}

type replayed struct {
	Examined, Matched, Replayed int
	To                          map[string]int
}

// errNotFound is the answer about what does not exist.
var errNotFound = errors.New("it does not exist")

func (a *api) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.base+"/api"+path, body)
	if err != nil {
		return err
	}
	req.SetBasicAuth(a.user, a.password)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s %s: %w", method, path, errNotFound)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

func (a *api) putVHost(ctx context.Context, name, user string) error {
	if err := a.call(ctx, http.MethodPut, "/vhosts/"+url.PathEscape(name), map[string]any{}, nil); err != nil {
		return err
	}
	return a.call(ctx, http.MethodPut, "/permissions/"+url.PathEscape(name)+"/"+url.PathEscape(user),
		map[string]string{"configure": ".*", "write": ".*", "read": ".*"}, nil)
}

// messages is how many messages the queues of a virtual host hold; there is false if it does not exist.
func (a *api) messages(ctx context.Context, vhost string) (n int, there bool) {
	var queues []struct{ Messages int }
	err := a.call(ctx, http.MethodGet, "/queues/"+url.PathEscape(vhost), nil, &queues)
	for _, q := range queues {
		n += q.Messages
	}
	return n, err == nil
}

func (a *api) deleteVHost(ctx context.Context, name string) error {
	return a.call(ctx, http.MethodDelete, "/vhosts/"+url.PathEscape(name), nil, nil)
}

func queuePath(vhost, queue string) string {
	return "/queues/" + url.PathEscape(vhost) + "/" + url.PathEscape(queue)
}

// peek reads messages without changing anything about them.
func (a *api) peek(ctx context.Context, vhost, queue string, n int) ([]letter, error) {
	var got []struct {
		Payload    string `json:"payload"`
		Properties struct {
			MessageID string `json:"message_id"`
			Headers   struct {
				Error string  `json:"x-error"`
				Death []death `json:"x-death"`
			} `json:"headers"`
		} `json:"properties"`
	}
	err := a.call(ctx, http.MethodPost, queuePath(vhost, queue)+"/get",
		map[string]any{"count": n, "ackmode": "peek", "encoding": "auto"}, &got)
	if err != nil {
		return nil, err
	}
	letters := make([]letter, len(got))
	for i, g := range got {
		letters[i] = letter{g.Properties.MessageID, g.Payload, g.Properties.Headers.Error, g.Properties.Headers.Death}
	}
	return letters, nil
}

func (a *api) replay(ctx context.Context, vhost, queue string, dry bool) (r replayed, err error) {
	err = a.call(ctx, http.MethodPost, queuePath(vhost, queue)+"/replay", map[string]any{"dry_run": dry}, &r)
	return r, err
}

// jobNow is what a job of the Dead Letter Office has come to.
type jobNow struct {
	ID       string
	State    string
	Outcomes struct {
		Acknowledged int
		DiedAgain    int `json:"died_again"`
	}
}

// job plans a job and begins it as planned.
func (a *api) job(ctx context.Context, request map[string]any) (string, error) {
	var plan struct {
		Token string
		Count int
	}
	if err := a.call(ctx, http.MethodPost, "/office/jobs?dry_run=true", request, &plan); err != nil {
		return "", err
	}
	request["token"], request["count"] = plan.Token, plan.Count
	var j jobNow
	err := a.call(ctx, http.MethodPost, "/office/jobs", request, &j)
	return j.ID, err
}

func (a *api) jobNow(ctx context.Context, id string) (j jobNow, err error) {
	err = a.call(ctx, http.MethodGet, "/office/jobs/"+id, nil, &j)
	return j, err
}
