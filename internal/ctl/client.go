package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	defaultURL       = "http://127.0.0.1:15672"
	userVariable     = "BARTLEBY_USER"
	passwordVariable = "BARTLEBY_PASSWORD"
	urlVariable      = "BARTLEBY_URL"
	dataDirVariable  = "BARTLEBY_DATA_DIR"
	accessFile       = "ctl.json"
)

// client calls the management API.
type client struct {
	base           string // without /api
	user, password string
	token          string // takes the place of user and password
	http           http.Client
}

// newClient finds the node and the way in: what was given, else what a data
// directory says, else the default user of a new node.
func newClient(o *options) (*client, error) {
	c := &client{
		base: cmp.Or(o.url, os.Getenv(urlVariable)), user: cmp.Or(o.user, os.Getenv(userVariable)),
		password: cmp.Or(o.password, os.Getenv(passwordVariable)),
	}
	c.http.Timeout = time.Minute
	if o.timeout > 0 {
		c.http.Timeout = time.Duration(o.timeout * float64(time.Second))
	}
	if c.base == "" && c.user == "" {
		found, err := c.useDataDir(o.dataDir)
		if found || err != nil {
			return c, err
		}
	}
	c.base = strings.TrimSuffix(cmp.Or(c.base, defaultURL), "/")
	if c.user == "" {
		c.user, c.password = "guest", "guest"
	}
	return c, nil
}

// useDataDir reads the file that a running node leaves in its data directory. The
// token goes only to the address beside it.
func (c *client) useDataDir(given string) (found bool, err error) {
	dir := cmp.Or(given, os.Getenv(dataDirVariable), "data")
	text, err := os.ReadFile(filepath.Join(dir, accessFile))
	switch {
	case errors.Is(err, os.ErrNotExist) && given == "":
		return false, nil
	case errors.Is(err, os.ErrNotExist):
		return false, fail(exitUnavailable, "no node runs on data directory %s: it has no file %s", dir, accessFile)
	case errors.Is(err, os.ErrPermission) && given == "":
		return false, nil // another user's node; there are other ways in
	case err != nil:
		return false, fail(exitNoPerm, "%v", err)
	}
	var access struct{ URL, Token string }
	if err := json.Unmarshal(text, &access); err != nil || access.URL == "" || access.Token == "" {
		return false, fail(exitData, "%s in %s cannot be read", accessFile, dir)
	}
	c.base, c.token = strings.TrimSuffix(access.URL, "/"), access.Token
	return true, nil
}

// apiError is a refusal of the API.
type apiError struct {
	status int
	kind   string
	reason string
}

// Error returns the reason.
func (e *apiError) Error() string { return e.reason }

// is says whether err is a refusal with the status.
func is(err error, status int) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == status
}

// maxReply bounds what is read of an answer, in bytes.
const maxReply = 1 << 30

// do sends a request and decodes the answer into reply, which may be nil. path is
// below /api, made with path.
func (c *client) do(ctx context.Context, method, path string, body, reply any) error {
	return c.doWith(ctx, method, path, body, reply, http.Header{})
}

func (c *client) doWith(ctx context.Context, method, path string, body, reply any, header http.Header) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/api/"+path, content)
	if err != nil {
		return fail(exitUsage, "%v", err)
	}
	req.Header = header
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	} else {
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return c.unreachable(err)
	}
	if resp.StatusCode >= 300 {
		return refusal(resp.StatusCode, text)
	}
	if reply == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(reply); err != nil {
		return fail(exitSoftware, "%s %s: the answer cannot be read: %v", method, path, err)
	}
	return nil
}

func (c *client) unreachable(err error) error {
	var e interface{ Timeout() bool }
	if errors.As(err, &e) && e.Timeout() {
		return failPlainly(exitTempFail, "Error: operation on node at %s timed out. Timeout value used: %d", c.base, c.http.Timeout.Milliseconds())
	}
	return failPlainly(exitUnavailable, "Error: unable to perform an operation on the node at %s: %v", c.base, err)
}

func refusal(status int, text []byte) error {
	e := &apiError{status: status, reason: http.StatusText(status)}
	var reply struct {
		Error  string          `json:"error"`
		Reason json.RawMessage `json:"reason"`
	}
	if json.Unmarshal(text, &reply) == nil {
		e.kind = reply.Error
		var reason string
		if json.Unmarshal(reply.Reason, &reason) == nil {
			e.reason = reason
		} else if len(reply.Reason) > 0 {
			e.reason = string(reply.Reason)
		}
	}
	return e
}

// explain turns a refusal that the verb did not expect into a failure.
func explain(err error) error {
	var e *apiError
	if !errors.As(err, &e) {
		return err
	}
	switch e.status {
	case http.StatusUnauthorized:
		if e.kind == "not_authorized" {
			return fail(exitNoPerm, "the management API does not accept this user and password")
		}
		return fail(exitNoPerm, "%s", e.reason)
	case http.StatusNotFound:
		return fail(exitData, "%s", e.reason)
	}
	return fail(exitUnavailable, "%s", e.reason)
}

// path joins the segments of a path, encoded.
func path(segments ...string) string {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}

func (i *invocation) get(path string, reply any) error {
	return i.api.do(i.ctx, http.MethodGet, path, nil, reply)
}

func (i *invocation) put(path string, body any) error {
	if body == nil {
		body = struct{}{}
	}
	return i.api.do(i.ctx, http.MethodPut, path, body, nil)
}

func (i *invocation) post(path string, body, reply any) error {
	if body == nil {
		body = struct{}{}
	}
	return i.api.do(i.ctx, http.MethodPost, path, body, reply)
}

func (i *invocation) delete(path string) error {
	return i.api.do(i.ctx, http.MethodDelete, path, nil, nil)
}

// inVHost explains an error of a request about the chosen virtual host, which may
// be what is missing.
func (i *invocation) inVHost(err error) error {
	if !is(err, http.StatusNotFound) && !is(err, http.StatusBadRequest) {
		return explain(err)
	}
	var names []struct{ Name string }
	if i.get("vhosts?columns=name", &names) != nil {
		return explain(err)
	}
	for _, v := range names {
		if v.Name == i.vhost {
			return explain(err)
		}
	}
	return noVHost(i.vhost)
}

// object is a JSON object of the API.
type object = map[string]any

// sprint prints a JSON scalar.
func sprint(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// close deletes a connection with a reason that its client is told.
func (c *client) close(ctx context.Context, path, reason string) error {
	return c.doWith(ctx, http.MethodDelete, path, nil, nil, http.Header{"X-Reason": {strings.Join(strings.Fields(reason), " ")}})
}
