package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/controlsocket"
)

const (
	defaultURL       = "http://127.0.0.1:15672"
	userVariable     = "BARTLEBY_USER"
	passwordVariable = "BARTLEBY_PASSWORD"

	passwordFileVariable = "BARTLEBY_PASSWORD_FILE"
	urlVariable          = "BARTLEBY_URL"
	dataDirVariable      = "BARTLEBY_DATA_DIR"
	// ownDataDir is the default data directory, relative to where the node was started;
	// systemDataDir is the data directory of packages.
	ownDataDir    = "data"
	systemDataDir = "/var/lib/bartleby"
)

// client calls the management API.
type client struct {
	base           string // without /api
	where          string // the node, for error messages
	dir            string // the data directory of the control socket; "": base is used
	named          bool   // an address or a data directory was given, not found
	guessed        bool   // nothing was given or found: base is the default address
	user, password string
	http           http.Client
}

// newClient finds the node and how to connect: by flags, then by the environment, then by a
// usual data directory, otherwise as the default user of a new node.
func newClient(o *options) (*client, error) {
	password, err := o.secret()
	if err != nil {
		return nil, err
	}
	c := &client{
		base: cmp.Or(o.url, os.Getenv(urlVariable)), user: cmp.Or(o.user, os.Getenv(userVariable)),
		password: password, named: o.url != "" || o.dataDir != "" || os.Getenv(urlVariable) != "",
	}
	c.http.Timeout = time.Minute
	if o.timeout > 0 {
		c.http.Timeout = time.Duration(o.timeout * float64(time.Second))
	}
	if o.dataDir != "" {
		if o.url != "" || o.user != "" {
			return nil, fail(exitUsage, "--data-dir connects as the node's owner; it cannot be combined with --url or --user")
		}
		c.useDataDir(o.dataDir)
		return c, nil
	}
	if c.base == "" && c.user == "" {
		if dir := findDataDir(); dir != "" {
			c.useDataDir(dir)
			return c, nil
		}
		c.guessed = true
	}
	if c.base == "" && c.user != "" { // the node is the same; only the rights are those of the user
		if dir := findDataDir(); dir != "" {
			c.base = listenerOf(dir)
			c.guessed = c.base == ""
		}
	}
	c.base = strings.TrimSuffix(cmp.Or(c.base, defaultURL), "/")
	c.where = c.base
	if c.user == "" {
		c.user, c.password = "guest", "guest"
	}
	return c, nil
}

// listenerOf asks the node of a data directory for the address of its management API, "" if it has none without TLS or does not answer.
func listenerOf(dir string) string {
	c := &client{}
	c.useDataDir(dir)
	c.http.Timeout = 5 * time.Second
	var o struct {
		Listeners []struct {
			Protocol string
			Host     string `json:"ip_address"`
			Port     int
		}
	}
	if err := c.do(context.Background(), http.MethodGet, "overview", nil, &o); err != nil {
		return ""
	}
	for _, l := range o.Listeners {
		if l.Protocol != "http" {
			continue
		}
		if ip, err := netip.ParseAddr(l.Host); err == nil && ip.IsUnspecified() {
			l.Host = "127.0.0.1"
		}
		return "http://" + net.JoinHostPort(l.Host, strconv.Itoa(l.Port))
	}
	return ""
}

// findDataDir returns the node's data directory if no flag names it. A directory in the
// environment counts even if no node runs on it, because its user does not mean another node
// on this machine. Otherwise it is a usual directory on which a node runs that this user may
// use. It does not trust a working directory that another user has filled.
func findDataDir() string {
	if dir := os.Getenv(dataDirVariable); dir != "" {
		return dir
	}
	switch {
	case controlsocket.Mine(ownDataDir):
		return ownDataDir
	case controlsocket.Lets(systemDataDir):
		return systemDataDir
	}
	return ""
}

// useDataDir sends every request through the control socket of a data directory.
func (c *client) useDataDir(dir string) {
	c.base, c.where, c.dir = "http://node", "data directory "+dir, dir
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true, // they are of no use here
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return controlsocket.Dial(ctx, dir) },
	}
}

// secret is the password: from the flag, the file of the other flag, or the environment.
func (o *options) secret() (string, error) {
	file := cmp.Or(o.passwordFile, os.Getenv(passwordFileVariable))
	if o.password != "" || file == "" {
		return cmp.Or(o.password, os.Getenv(passwordVariable)), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fail(exitNoPerm, "password file: %v", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
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

// maxReply is the maximal size of an answer, in bytes.
const maxReply = 1 << 30

// do sends a request and decodes the answer into reply, which may be nil. path is
// below /api, made with path.
func (c *client) do(ctx context.Context, method, path string, body, reply any) error {
	return c.doWith(ctx, method, path, body, reply, http.Header{})
}

func (c *client) doWith(ctx context.Context, method, path string, body, reply any, header http.Header) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	text, err := c.send(ctx, method, path, content, header)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			return c.unreachable(err)
		}
		return err
	}
	if reply == nil || len(text) == 0 { // 204
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(reply); err != nil {
		return fail(exitSoftware, "%s %s: cannot read the answer: %v", method, path, err)
	}
	return nil
}

// send sends a request and returns the answer. The error is a refusal (apiError), or a url.Error if there is no answer.
func (c *client) send(ctx context.Context, method, path string, content []byte, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/api/"+path, bytes.NewReader(content))
	if err != nil {
		return nil, fail(exitUsage, "%v", err)
	}
	req.Header = header
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.dir == "" {
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, &url.Error{Op: method, URL: req.URL.String(), Err: err}
	}
	if resp.StatusCode >= 300 {
		return nil, refusal(resp.StatusCode, text)
	}
	return text, nil
}

func (c *client) unreachable(err error) error {
	var timeout interface{ Timeout() bool }
	var foreign *controlsocket.NotYoursError
	switch {
	case errors.As(err, &foreign):
		return fail(exitNoPerm, "%v", foreign)
	case errors.Is(err, controlsocket.ErrNoNode) && c.locked():
		return fail(exitUnavailable, "the node on data directory %s is starting or stopping, and answers nobody yet", c.dir)
	case errors.Is(err, controlsocket.ErrNoNode):
		return fail(exitUnavailable, "no node runs on data directory %s", c.dir)
	case errors.As(err, &timeout) && timeout.Timeout():
		return failPlainly(exitTempFail, "Error: operation on node at %s timed out. Timeout value used: %d", c.where, c.http.Timeout.Milliseconds())
	}
	return failPlainly(exitUnavailable, "Error: unable to perform an operation on the node at %s: %v", c.where, err)
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

// errAppStopped is what a verb says that needs a running application, with the code of a wrong call, as RabbitMQ's.
var errAppStopped = badArgument("this command requires the 'rabbit' app to be running on the target node. Start it with 'rabbitmqctl start_app'.")

// explain turns a refusal that the verb does not handle into a failure.
func explain(err error) error {
	var e *apiError
	if !errors.As(err, &e) {
		return err
	}
	if e.kind == appStopped {
		return errAppStopped
	}
	switch e.status {
	case http.StatusUnauthorized:
		if e.kind == "not_authorized" {
			return fail(exitNoPerm, "the management API does not accept this user and password")
		}
		return fail(exitNoPerm, "%s", e.reason)
	case http.StatusForbidden:
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

// inVHost explains an error of a request about the chosen virtual host, which may be
// missing.
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
			return i.elsewhere(explain(err))
		}
	}
	return noVHost(i.vhost)
}

// elsewhere adds to the refusal of a queue that is not in '/' where there is one of its name with letters: without --vhost some commands list
// the queues of all virtual hosts, and the others look in '/' alone.
func (i *invocation) elsewhere(err error) error {
	if i.set("vhost") || len(i.args) == 0 || !strings.Contains(err.Error(), "no queue '"+i.args[0]+"' in vhost") {
		return err
	}
	var queues []struct{ VHost, Name string }
	if i.get("office/queues", &queues) != nil {
		return err
	}
	for _, q := range queues {
		if q.Name == i.args[0] {
			return failPlainly(exitData, "%v; there is one in vhost '%s': add --vhost '%[2]s'", err, q.VHost)
		}
	}
	return err
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

// close deletes a connection with a reason for its client.
func (c *client) close(ctx context.Context, path, reason string) error {
	return c.doWith(ctx, http.MethodDelete, path, nil, nil, http.Header{"X-Reason": {strings.Join(strings.Fields(reason), " ")}})
}
