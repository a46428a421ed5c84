package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/definitions"
	"bartleby.mq/internal/run/office"
	"bartleby.mq/internal/run/share"
)

// request is one request of a user, with its body decoded.
type request struct {
	*http.Request
	s      *server
	rt     *route
	params map[string]string
	// identity is the requesting user; nil for the operator.
	identity *broker.Identity
	user     string
	tags     []auth.Tag
	proof    proof
	local    bool              // it came through Local
	visible  broker.Visibility // which virtual hosts the user may look into
	raw      []byte
	room     *share.Place[string]            // see waitForRoom
	body     map[string]any                  // of PUT and POST; empty if there was none
	points   int                             // see span
	sights   map[message.VHost]*office.Sight // see sight
	did      []any                           // what the audit log tells of it besides
}

// vhost is the virtual host named in the path.
func (r *request) vhost() message.VHost { return message.VHost(r.params["vhost"]) }

// queueName is the queue named in the path.
func (r *request) queueName() message.QueueName { return message.QueueName(r.params["queue"]) }

// exchangeName is the exchange named in the path; amq.default is the default one (BR-15.1),
// as its own name is, which is empty.
func (r *request) exchangeName() message.ExchangeName { return exchangeName(r.params["exchange"]) }

func exchangeName(segment string) message.ExchangeName {
	if segment == "amq.default" {
		return ""
	}
	return message.ExchangeName(segment)
}

// by is the user of a change, "" for the node's operator.
func (r *request) by() string {
	if r.local {
		return ""
	}
	return r.user
}

// link is the user's access to the virtual host in the path.
// admin is the broker on behalf of the user.
func (r *request) admin() broker.Admin {
	return r.s.b.By(r.by()).Known(broker.Doer(r.actor())).As(r.identity)
}

func (r *request) link() *broker.Connection { return r.linkTo(r.vhost()) }

func (r *request) linkTo(v message.VHost) *broker.Connection {
	if r.local {
		return r.s.b.AsOperator(r.user, v)
	}
	return r.s.b.For(r.identity, v)
}

// Limits of bodies. A body is decoded in memory, which takes several times its size.
const (
	// maxStrangerBody is the maximal size of a body before the login: a form with a name and a password.
	maxStrangerBody = 64 << 10
	// maxPlainBody is the maximal size of a body that is neither definitions nor a message. Arguments have at most 128 KiB.
	maxPlainBody = 1 << 20
	// maxBodyValues is how many values such a body may have, and a message with its headers, which have 128 KiB at most.
	maxBodyValues = 200_000
	// smallBody is how many bytes a body has that waits for no other.
	smallBody = 64 << 10
	// plainBodies and largeBodies are how many bodies there may be at once of up to maxPlainBody and above.
	plainBodies, largeBodies = 32, 4
)

// isLarge says whether a route takes bodies above maxPlainBody: definitions and messages.
func (rt *route) isLarge() bool {
	return rt.takesDefinitions() || strings.HasSuffix(rt.pattern, "/publish")
}

// streams says whether the handler reads the body, which may have any length.
func (rt *route) streams() bool { return rt.pattern == "office/import/{vhost}/{queue}" }

// takesEdit says whether a request may have a body of a message of any size.
func (rt *route) takesEdit() bool { return rt.pattern == "office/jobs" }

func (rt *route) takesDefinitions() bool {
	return rt.pattern == "definitions" || rt.pattern == "definitions/{vhost}" || rt.pattern == "all-configuration"
}

// bodyLimit is how many bytes the body may have.
func (r *request) bodyLimit() int64 {
	switch {
	case r.rt.access == open:
		return min(r.s.MaxBody, maxStrangerBody)
	case r.rt.takesEdit():
		return max(r.s.MaxBody, maxPlainBody+int64(max(r.s.b.MaxMessageSize, r.s.b.ApsaraMQ.MaxMessageSize))*4/3) // as base64
	case r.rt.isLarge():
		return r.s.MaxBody
	}
	return min(r.s.MaxBody, maxPlainBody)
}

// tooLarge is the refusal of a body above limit. What RabbitMQ has a bound for, too, is refused with its text.
func (r *request) tooLarge(limit int64) *failure {
	if limit == r.s.MaxBody {
		return bodyTooLarge
	}
	return &failure{bodyTooLarge.status, bodyTooLarge.kind, fmt.Sprintf("%v: this request has at most %d bytes", bodyTooLarge.reason, limit)}
}

// waitForRoom waits until there is room for the body. Of those who wait, users take turns; if one has two places more than
// another who comes, the last of its bodies gives way. The place is the request's until leaveRoom.
func (r *request) waitForRoom(limit int64) error {
	size := r.ContentLength
	if size < 0 {
		size = limit // it may have so much
	}
	room := r.s.largeBodies
	switch {
	case size <= smallBody:
		return nil
	case size <= maxPlainBody:
		room = r.s.plainBodies
	}
	if r.room = room.Wait(r.user, r.Context().Done()); r.room == nil {
		return nobodyWaits
	}
	return nil
}

// leaveRoom lets the next body in.
func (r *request) leaveRoom() {
	if r.room != nil {
		r.room.Leave()
	}
}

// A body must arrive: leastRate is how many bytes a second must, after bodyGrace, and a client that was fast may stop for bodyGrace
// at most. So a place is held by who sends, and not by who stays.
const (
	leastRate = 4 << 10
	perByte   = time.Second / leastRate
	bodyGrace = 30 * time.Second
	bodyTime  = time.Minute // for a body that is in memory: it keeps its place from others until it is there
)

// gaveWay is the answer to who sends a body whose place another needs more.
var gaveWay = &failure{http.StatusServiceUnavailable, "too_many_bodies", "you have more requests with large bodies under way than others, who need the room: send fewer at once"}

// tooSlow is the answer to who sends a body below leastRate.
var tooSlow = &failure{http.StatusRequestTimeout, "request_timeout", fmt.Sprintf("the request body came too slowly: it must have %d bytes a second, and no pause above %v", leastRate, bodyGrace)}

// arriving is a body on its way.
type arriving struct {
	out  *responder
	body io.Reader
	mu   sync.Mutex // guards gave, and when the read deadline is set
	gave bool       // its place was given to another
	due  time.Time  // when more must have come
	end  time.Time  // when all must have come; the zero value: it may have any length, and take as long
	now  func() time.Time
}

func (r *request) arriving(out *responder, body io.Reader, place *share.Place[string]) *arriving {
	b := &arriving{out: out, body: body, due: time.Now().Add(bodyGrace), now: time.Now}
	if place != nil {
		place.OnYield(b.giveWay)
	}
	return b
}

// giveWay ends a read that waits for more, and those that follow.
func (b *arriving) giveWay() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gave = true
	b.wait(time.Unix(1, 0))
}

// wait says until when a read waits. REQUIRES: mu is held.
func (b *arriving) wait(until time.Time) {
	_ = http.NewResponseController(b.out.ResponseWriter).SetReadDeadline(until) // a recorder in a test has none
}

// mayRead says whether its place is still its own. Then a read may wait for more.
func (b *arriving) mayRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gave {
		b.wait(b.due)
	}
	return !b.gave
}

// Read implements io.Reader.
func (b *arriving) Read(p []byte) (int, error) {
	if !b.mayRead() {
		b.out.Header().Set("Connection", "close") // the rest is not read
		return 0, gaveWay
	}
	n, err := b.body.Read(p)
	if b.came(n); err != nil && err != io.EOF {
		b.out.Header().Set("Connection", "close")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err = tooSlow; !b.mayRead() {
			err = gaveWay
		}
	}
	return n, err
}

// came notes that bytes have come.
func (b *arriving) came(n int) {
	b.due = b.due.Add(time.Duration(n) * perByte) // n is what one read returns
	if latest := b.now().Add(bodyGrace); b.due.After(latest) {
		b.due = latest
	}
	if !b.end.IsZero() && b.due.After(b.end) {
		b.due = b.end
	}
}

// readBody reads and decodes the body of a PUT or POST. It is refused when more
// has arrived than may; nothing is set aside for what a client only announces.
func (r *request) readBody(w *responder) error {
	r.body = map[string]any{}
	if r.Method != http.MethodPut && r.Method != http.MethodPost {
		return nil
	}
	if r.rt.streams() {
		if !r.mayBeOfThisType() {
			return wrongType
		}
		return nil
	}
	limit := r.bodyLimit()
	if r.ContentLength > limit {
		return r.tooLarge(limit) // without waiting for what will not be read
	}
	if err := r.waitForRoom(limit); err != nil {
		return err
	}
	body := r.arriving(w, http.MaxBytesReader(w, r.Body, limit), r.room)
	body.end = body.now().Add(bodyTime)
	var err error
	if r.raw, err = io.ReadAll(body); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return r.tooLarge(limit)
		}
		var why *failure
		if errors.As(err, &why) {
			return why
		}
		return badRequest("the request body could not be read")
	}
	if r.s.b.Strict {
		if r.wantsOtherType() {
			return unsupportedType
		}
		if text := string(r.raw); text == "null" || text == "undefined" {
			return nil // RabbitMQ takes them for an empty object
		}
	}
	if blank := strings.TrimSpace(string(r.raw)) == ""; blank && (!r.s.b.Strict || len(r.raw) == 0) {
		return nil
	}
	if !r.mayBeOfThisType() {
		return wrongType
	}
	if !r.isJSON() {
		return nil
	}
	v, err := topology.ParseJSONOf(r.raw, maxBodyValues)
	if err != nil {
		return definitions.NotJSON(err, "not_json")
	}
	switch v := v.(type) {
	case map[string]any:
		r.body = v
		return nil
	case string:
		return badRequest("invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?")
	}
	return badRequest("not_json")
}

// mayBeOfThisType says whether the content type of the body is allowed. Programs such as curl may
// send any type. A browser must send JSON, because pages of other sites can send the other types
// without permission; the only exception is the file of a form, which RabbitMQ's console sends.
func (r *request) mayBeOfThisType() bool {
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return false
	case r.rt.pattern == "login":
		return kind == "application/x-www-form-urlencoded"
	case r.rt.streams():
		return kind == ndjson
	case strings.HasPrefix(r.rt.pattern, "definitions") && kind == "multipart/form-data":
		return true
	}
	return kind == "application/json"
}

// isJSON says whether the body is decoded here: the handlers of forms and definitions
// read their bodies themselves.
func (r *request) isJSON() bool {
	t := r.Header.Get("Content-Type")
	return !strings.HasPrefix(t, "multipart/") && r.rt.pattern != "login" && !strings.HasPrefix(r.rt.pattern, "definitions")
}

// boolean reads an optional boolean, which may be text (BR-15.5).
func (r *request) boolean(key string) (bool, error) {
	v, ok := r.body[key]
	if !ok {
		return false, nil
	}
	return definitions.Boolean(v)
}

// asInteger reads an integer, which may be text: rabbitmqadmin sends it so.
func asInteger(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, badRequest("not_integer", v)
}

// text reads an optional string.
func (r *request) text(key string) (string, error) {
	switch v := r.body[key].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	default:
		return "", badRequest("not_string", v)
	}
}

// flag reads a boolean of the query.
func (r *request) flag(name string) bool { return r.URL.Query().Get(name) == "true" }

// object reads an optional object; RabbitMQ takes an empty list for an empty one.
func (r *request) object(key string) (map[string]any, error) {
	return definitions.Object(r.body[key], key)
}
