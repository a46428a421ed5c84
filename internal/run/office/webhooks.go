package office

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/mutation"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/wire/amqp091"
)

// Webhooks tell addresses outside of events. What waits to be told is in the store, so a restart loses nothing of it; an event of the last moments
// before a crash may be lost, as it may be for who listens with AMQP.
type Webhooks struct {
	f      *Office
	b      *broker.Broker
	log    *slog.Logger
	now    func() int64
	passes func() int64 // the clock of pauses, which never steps back
	local  atomic.Bool  // they may reach addresses of this machine and its link (isLocal)
	client *http.Client
	life   context.Context
	end    context.CancelFunc
	work   sync.WaitGroup
	wakec  chan struct{} // has one token when there is something to do
	room   chan struct{} // has one for each message under way

	filters atomic.Pointer[[]*hook] // those that are on, for whoever tells of an event with locks held

	hearing sync.Mutex // guards what follows; no other lock is taken under it
	heard   []heardEvent

	mu       sync.Mutex // guards what follows
	hooks    map[string]*hook
	last     uint64 // number of the last message
	onChange func()
}

// hook is a webhook. Those in filters are not changed, except for missed.
type hook struct {
	Webhook
	missed atomic.Uint64 // events that were not even noted
	*hookState
}

// hookState is what changes of a webhook. Webhooks.mu guards it.
type hookState struct {
	kept    hookCounts
	waiting []*tell // in no order
	bytes   int
	busy    bool  // a message is under way
	pause   int64 // none goes before this
}

// hookCounts is what the store keeps of what a webhook has been told.
type hookCounts struct {
	By        string `json:"by"`
	SetMS     int64  `json:"set_ms"`
	Delivered uint64 `json:"delivered"`
	Failed    uint64 `json:"failed"`            // messages that it never got
	LastMS    int64  `json:"last_ms,omitempty"` // when it last got one
	LastError string `json:"last_error,omitempty"`
	LastErrMS int64  `json:"last_error_ms,omitempty"`
}

// hookRecord is a webhook in the store.
type hookRecord struct {
	Version int `json:"version"`
	Webhook
	hookCounts
}

const hookVersion = 1

// tell is a message that waits. Its body is in the store.
type tell struct {
	number uint64
	size   int
	due    int64
	tries  int
}

// tellRecord is a message in the store.
type tellRecord struct {
	Due   int64           `json:"due_ms"`
	Tries int             `json:"tries"`
	Body  json.RawMessage `json:"body"`
}

// The keys of records, after datadir.RecordPrefix; see appendKey, in which the name of the webhook stands for that of the virtual host.
//
//	webhook/ | webhook | 0          a hookRecord
//	tell/    | webhook | number     a tellRecord
const (
	hookPrefix = "webhook/"
	tellPrefix = "tell/"
)

// tellPauses are the pauses between tries: after the last one the message has failed.
var tellPauses = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour}

// longestPause is the last of them.
const longestPause = 2 * time.Hour

// How long one message may take.
const (
	hookDial    = 5 * time.Second
	hookTimeout = 10 * time.Second
)

// heardEvent is an event that happened.
type heardEvent struct {
	key   string
	at    int64
	facts amqp091.Table
}

// message is what a webhook is told, as JSON.
type hookMessage struct {
	ID    string `json:"id"` // the same for each try
	Event string `json:"event"`
	Time  int64  `json:"time_ms"`
	Node  string `json:"node"`
	Facts any    `json:"facts"`
}

// letterTell is what a rule tells of letters.
type letterTell struct {
	Rule    string `json:"rule"`
	VHost   string `json:"vhost"`
	Queue   string `json:"queue"`
	Letters []Row  `json:"letters"`
}

const ruleEvent = "rule.matched"

// openWebhooks reads the webhooks of an office, and begins to tell them of events. Close ends it.
func openWebhooks(f *Office) (*Webhooks, error) {
	h := &Webhooks{
		f: f, b: f.b, log: f.Logger, now: f.now, passes: f.deaths, wakec: make(chan struct{}, 1), room: make(chan struct{}, hooksAtOnce), hooks: map[string]*hook{}, onChange: func() {},
	}
	h.local.Store(f.WebhooksLocal)
	dialer := &net.Dialer{Timeout: hookDial, Control: func(_, address string, _ syscall.RawConn) error { return h.mayDial(address) }}
	h.client = &http.Client{
		Timeout: hookTimeout,
		Transport: &http.Transport{ // no proxy: it would be dialled in place of what the name says
			DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: hookDial, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: maxHookResponse,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	h.life, h.end = context.WithCancel(context.Background())
	if err := h.load(); err != nil {
		h.end()
		return nil, err
	}
	h.mu.Lock()
	h.publish()
	h.mu.Unlock()
	h.b.OnVHostEnd(h.endVHost)
	h.work.Go(bug.Guarded(h.log, "the webhooks", h.run))
	return h, nil
}

// Close ends the telling. It waits for messages under way, which are cut.
func (h *Webhooks) Close() {
	h.b.Listen(nil)
	h.end()
	h.work.Wait()
	h.client.CloseIdleConnections()
}

// mayDial refuses addresses of this machine and its link. It is asked about the address that a name has when it is dialled, so a name that changes
// its address is no way around.
func (h *Webhooks) mayDial(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if h.local.Load() {
		return nil
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	if isLocal(at.Addr(), own) {
		return fmt.Errorf("the address %s belongs to this machine or its link, which webhooks may reach only with webhooks.allow_local = true", at.Addr())
	}
	return nil
}

func (h *Webhooks) load() error {
	err := h.b.RangeRecords(hookPrefix, func(key, value []byte) error {
		var rec hookRecord
		if err := json.Unmarshal(value, &rec); err != nil || rec.Version != hookVersion || rec.check() != nil {
			h.log.Error("A webhook cannot be read: it is passed over", "key", string(key), "error", err)
			return nil
		}
		h.hooks[rec.Name] = &hook{Webhook: rec.Webhook, hookState: &hookState{kept: rec.hookCounts}}
		return nil
	})
	if err != nil {
		return err
	}
	var strays []mutation.Change
	err = h.b.RangeRecords(tellPrefix, func(key, value []byte) error {
		name, number, ok := splitKey(key, tellPrefix)
		var rec tellRecord
		k := h.hooks[name]
		if err := json.Unmarshal(value, &rec); !ok || err != nil || k == nil {
			strays = append(strays, mutation.Change{Key: append([]byte(datadir.RecordPrefix), key...)})
			return nil
		}
		k.add(&tell{number, len(rec.Body), rec.Due, rec.Tries})
		h.last = max(h.last, number)
		return nil
	})
	if err != nil || len(strays) == 0 {
		return err
	}
	return h.b.PutRecords(mutation.All(strays), false)
}

func (s *hookState) add(t *tell) {
	s.waiting = append(s.waiting, t)
	s.bytes += t.size
}

func (s *hookState) remove(t *tell) {
	if i := slices.Index(s.waiting, t); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.bytes -= t.size
	}
}

// full says whether so many more messages have no room.
func (s *hookState) full(messages, size int) bool {
	return len(s.waiting)+messages > maxHookWaiting || s.bytes+size > maxHookBytes
}

// changed sets what is called when webhooks have changed. It is called once.
func (h *Webhooks) changed(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onChange = f
	h.publish()
}

// publish tells the broker which events are wanted. REQUIRES: h.mu is held.
func (h *Webhooks) publish() {
	var on []*hook
	for _, k := range h.hooks {
		if k.On {
			on = append(on, k)
		}
	}
	h.filters.Store(&on)
	changed := h.onChange
	if len(on) == 0 {
		h.b.Listen(&broker.Ear{Wants: func(string) bool { return false }, Bound: changed})
	} else {
		h.b.Listen(&broker.Ear{Wants: h.wants, Hear: h.hear, Bound: changed})
	}
	h.poke()
	changed()
}

// wants says whether any webhook is told of events with this name.
func (h *Webhooks) wants(key string) bool {
	if h == nil {
		return false
	}
	for _, k := range *h.filters.Load() {
		if k.wants(key) {
			return true
		}
	}
	return false
}

// hear notes an event. Locks may be held, so nothing is written.
func (h *Webhooks) hear(key string, at time.Time, facts amqp091.Table) {
	h.hearing.Lock()
	full := len(h.heard) >= maxHeard
	if !full {
		h.heard = append(h.heard, heardEvent{key, at.UnixMilli(), facts})
	}
	h.hearing.Unlock()
	if full {
		for _, k := range *h.filters.Load() {
			if k.wants(key) {
				k.missed.Add(1)
			}
		}
	}
	h.poke()
}

func (h *Webhooks) poke() {
	select {
	case h.wakec <- struct{}{}:
	default:
	}
}

// run is the goroutine: it notes what was heard, and begins what is due.
func (h *Webhooks) run() {
	for {
		h.note()
		wait := h.begin()
		var alarm <-chan time.Time
		var t *time.Timer
		if wait < math.MaxInt64 {
			t = time.NewTimer(wait)
			alarm = t.C
		}
		select {
		case <-h.wakec:
		case <-alarm:
		case <-h.life.Done():
		}
		if t != nil {
			t.Stop()
		}
		if h.life.Err() != nil {
			h.note()
			return
		}
	}
}

// note makes messages of what was heard.
func (h *Webhooks) note() {
	h.hearing.Lock()
	heard := h.heard
	h.heard = nil
	h.hearing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	var changes []mutation.Change
	for _, k := range h.hooks {
		before := k.kept
		if n := k.missed.Swap(0); n > 0 {
			k.fails(n, "events came faster than they could be noted", h.now())
		}
		for i := range heard {
			e := &heard[i]
			vhost, _ := e.facts.Get("vhost")
			name, _ := vhost.(string)
			if !k.wants(e.key) || !k.in(name) {
				continue
			}
			body := h.body(e.key, e.at, factsJSON(e.facts))
			switch {
			case len(body) > maxTellBytes:
				k.fails(1, fmt.Sprintf("event %s has %d bytes; at most %d are told", e.key, len(body), maxTellBytes), h.now())
			case k.full(1, len(body)):
				k.fails(1, fmt.Sprintf("%d messages wait, which is as many as may", len(k.waiting)), h.now())
			default:
				changes = append(changes, h.enqueue(k, body))
			}
		}
		if k.kept != before {
			changes = append(changes, k.change())
		}
	}
	if len(changes) > 0 {
		_ = h.b.PutRecords(mutation.All(changes), false) // a failure ends the node
	}
}

func (k *hook) fails(n uint64, why string, at int64) {
	k.kept.Failed += n
	k.kept.LastError, k.kept.LastErrMS = why, at
}

// change stores the webhook.
func (k *hook) change() mutation.Change {
	value, _ := json.Marshal(hookRecord{hookVersion, k.Webhook, k.kept}) // texts and numbers: it never fails
	return mutation.Change{Key: appendKey([]byte(datadir.RecordPrefix), hookPrefix, k.Name, 0), Value: value}
}

// enqueue adds a message and returns its record. REQUIRES: h.mu is held.
func (h *Webhooks) enqueue(k *hook, body []byte) mutation.Change {
	h.last++
	t := &tell{number: h.last, size: len(body), due: h.passes()}
	k.add(t)
	return k.record(t, body)
}

func (k *hook) record(t *tell, body []byte) mutation.Change {
	value, _ := json.Marshal(tellRecord{t.due, t.tries, body}) // it is JSON
	return mutation.Change{Key: appendKey([]byte(datadir.RecordPrefix), tellPrefix, k.Name, t.number), Value: value}
}

func (h *Webhooks) body(event string, at int64, facts any) []byte {
	text, err := json.Marshal(hookMessage{ID: strings.ToLower(rand.Text()), Event: event, Time: at, Node: h.b.NodeName, Facts: facts})
	if err != nil { // a number that is none
		text, _ = json.Marshal(hookMessage{ID: strings.ToLower(rand.Text()), Event: event, Time: at, Node: h.b.NodeName})
	}
	return text
}

// factsJSON is a table as a JSON object.
func factsJSON(t amqp091.Table) map[string]any {
	facts := make(map[string]any, len(t))
	for _, f := range t {
		facts[f.Key] = factJSON(f.Value)
	}
	return facts
}

func factJSON(v any) any {
	switch v := v.(type) {
	case amqp091.Table:
		return factsJSON(v)
	case amqp091.Array:
		list := make([]any, len(v))
		for i := range v {
			list[i] = factJSON(v[i])
		}
		return list
	case []byte:
		return string(v)
	case nil, string, bool:
		return v
	}
	if n, ok := amqp091.Int64(v); ok {
		return n
	}
	return fmt.Sprint(v)
}

// usable says why a rule of a virtual host cannot tell a webhook.
func (h *Webhooks) usable(name string, vhost message.VHost) error {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if k := h.hooks[name]; k != nil && k.in(string(vhost)) {
			return nil
		}
	}
	return fmt.Errorf("webhook '%s' does not exist, or is not for virtual host '%s'; an administrator makes webhooks", name, vhost)
}

// ready says after how long to try to tell a webhook of a virtual host's letters, 0: now.
func (h *Webhooks) ready(name string, vhost message.VHost) time.Duration {
	if h == nil {
		return tryAgain
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch k := h.hooks[name]; {
	case k == nil || !k.On || !k.in(string(vhost)):
		return tryAgain
	case k.full(1, maxTellBytes):
		return alarmAgain
	}
	return 0
}

// tellOf tells a webhook of letters that a rule has found, and writes more with it. If that cannot be now it says after how long to
// try again, and why.
func (h *Webhooks) tellOf(name string, vhost message.VHost, l letterTell, more []mutation.Change) (wait time.Duration, why string, err error) {
	if err := h.usable(name, vhost); err != nil {
		return tryAgain, err.Error(), nil
	}
	var bodies [][]byte
	size := 0
	for rows := range slices.Chunk(l.Letters, maxTellLetters) {
		some := l
		some.Letters = slices.Clone(rows)
		for i := range some.Letters {
			some.Letters[i].shorten()
		}
		bodies = append(bodies, h.body(ruleEvent, h.now(), &some))
		size += len(bodies[len(bodies)-1])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.hooks[name]
	switch {
	case k == nil || !k.On:
		return tryAgain, fmt.Sprintf("webhook '%s' is off", name), nil
	case k.full(len(bodies), size):
		return alarmAgain, fmt.Sprintf("%d messages wait for webhook '%s', which is as many as may", len(k.waiting), name), nil
	}
	for _, b := range bodies {
		more = append(more, h.enqueue(k, b))
	}
	h.poke()
	return 0, "", h.b.PutRecords(mutation.All(more), false)
}

// shorten bounds what a letter has in a message.
func (r *Row) shorten() {
	r.Keys = r.Keys[:min(len(r.Keys), maxTellKeys)]
	for _, text := range []*string{&r.Error, &r.ErrorClass, &r.Type, &r.MessageID} {
		if len(*text) > maxTellText {
			*text = strings.ToValidUTF8((*text)[:maxTellText], "") + "…"
		}
	}
}

// begin begins messages that are due, one at a time for each webhook, and returns after how long there is more.
func (h *Webhooks) begin() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, first := h.passes(), moment.Never
	for _, k := range h.hooks {
		if !k.On || k.busy || len(k.waiting) == 0 {
			continue
		}
		t := slices.MinFunc(k.waiting, func(a, b *tell) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.number, b.number)) })
		// No pause is longer: a due moment that is further off is from a time when the clock was wrong.
		if due := min(max(t.due, k.pause), moment.After(at, longestPause.Milliseconds())); due > at {
			t.due, k.pause = min(t.due, due), min(k.pause, due)
			first = min(first, due)
			continue
		}
		select {
		case h.room <- struct{}{}:
		default:
			continue // the next one that ends wakes us
		}
		k.busy = true
		h.work.Go(bug.Guarded(h.log, "a message to a webhook", func() { h.deliver(k, t) }))
	}
	if first == moment.Never {
		return math.MaxInt64
	}
	return moment.Milliseconds(first - at)
}

// deliver tries to tell a webhook of a message.
func (h *Webhooks) deliver(k *hook, t *tell) {
	var rec tellRecord
	key := appendKey(nil, tellPrefix, k.Name, t.number)
	err := h.b.RangeRecords(string(key), func(_, value []byte) error { return json.Unmarshal(value, &rec) })
	if err == nil && rec.Body == nil {
		err = errors.New("the message is gone")
	} else if err == nil {
		_, err = h.post(h.life, &k.Webhook, rec.Body)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k.busy = false
	<-h.room
	h.poke()
	if err != nil && h.life.Err() != nil || !slices.Contains(k.waiting, t) {
		return // it goes on after a restart, or the webhook is gone
	}
	now := h.now()
	changes := []mutation.Change{{Key: append([]byte(datadir.RecordPrefix), key...)}}
	switch {
	case err == nil:
		k.remove(t)
		k.kept.Delivered++
		k.kept.LastMS = now
	case t.tries >= len(tellPauses):
		k.remove(t)
		k.fails(1, err.Error(), now)
	default:
		t.due = moment.After(h.passes(), tellPauses[t.tries].Milliseconds())
		t.tries++
		k.pause = moment.After(h.passes(), tellPauses[0].Milliseconds())
		k.kept.LastError, k.kept.LastErrMS = err.Error(), now
		changes[0] = k.record(t, rec.Body)
	}
	if at := h.hooks[k.Name]; at != nil { // it may have been changed meanwhile
		changes = append(changes, at.change())
	}
	_ = h.b.PutRecords(mutation.All(changes), false) // a failure ends the node
}

// post sends a message. The error says why it is not delivered.
func (h *Webhooks) post(ctx context.Context, k *Webhook, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Bartleby/"+cmp.Or(h.f.Version, "dev"))
	var m struct{ ID string }
	if json.Unmarshal(body, &m) == nil { // with it the transport tries again if a connection that was kept has ended meanwhile
		req.Header.Set("Idempotency-Key", m.ID)
	}
	req.Header.Set("Bartleby-Signature", Signature(k.Secret, h.now()/1000, body))
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, plainly(err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHookResponse)) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, fmt.Errorf("the answer was %s", strings.ToValidUTF8(resp.Status[:min(len(resp.Status), 100)], ""))
	}
	return resp.StatusCode, nil
}

// plainly is an error without the address, which may contain a token.
func plainly(err error) error {
	var u interface{ Unwrap() error }
	if errors.As(err, &u) && u.Unwrap() != nil && strings.Contains(err.Error(), "://") {
		return u.Unwrap()
	}
	return err
}

// Signature is the header with which a webhook can check who has sent a message, and when: t=SECONDS,v1=HEX, where HEX is HMAC-SHA256 of the
// seconds, a full stop and the body, with the secret as the key.
func Signature(secret string, seconds int64, body []byte) string {
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(m, "%d.", seconds) // it never fails
	_, _ = m.Write(body)
	return fmt.Sprintf("t=%d,v1=%s", seconds, hex.EncodeToString(m.Sum(nil)))
}

// WebhookShown is a webhook as the API shows it.
type WebhookShown struct {
	Name      string   `json:"name"`
	URL       string   `json:"url"`
	Events    []string `json:"events"`
	VHost     string   `json:"vhost"`
	On        bool     `json:"on"`
	By        string   `json:"by"`
	SetMS     int64    `json:"set_ms"`
	Delivered uint64   `json:"delivered"`
	Failed    uint64   `json:"failed"`
	Waiting   int      `json:"waiting"`
	LastMS    int64    `json:"last_ms"` // when it last got a message; 0: never
	LastError string   `json:"last_error"`
	LastErrMS int64    `json:"last_error_ms"`
}

// WebhookFacts are the keys of a WebhookShown that are not set by anybody.
var WebhookFacts = []string{"by", "set_ms", "delivered", "failed", "waiting", "last_ms", "last_error", "last_error_ms"}

func (k *hook) show() WebhookShown {
	return WebhookShown{k.Name, k.URL, append([]string{}, k.Events...), k.VHost, k.On, k.kept.By, k.kept.SetMS, k.kept.Delivered, k.kept.Failed, len(k.waiting), k.kept.LastMS, k.kept.LastError, k.kept.LastErrMS}
}

// List returns all webhooks, by name.
func (h *Webhooks) List() []WebhookShown {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := []WebhookShown{}
	for _, k := range h.hooks {
		list = append(list, k.show())
	}
	slices.SortFunc(list, func(a, b WebhookShown) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Webhook returns one.
func (h *Webhooks) Webhook(name string) (WebhookShown, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.hooks[name]; k != nil {
		return k.show(), nil
	}
	return WebhookShown{}, noHook(name)
}

func noHook(name string) error { return refuse(NotFound, "there is no webhook '%s'", name) }

// Put makes or changes a webhook. Without a secret it keeps the one that it has.
func (h *Webhooks) Put(w Webhook, by Actor) (shown WebhookShown, created bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.hooks[w.Name]
	var had []string
	if was != nil {
		had = was.Events
		w.Secret = cmp.Or(w.Secret, was.Secret)
	} else if len(h.hooks) >= maxHooks {
		return shown, false, refuse(Conflict, "there are %d webhooks, which is as many as may be", maxHooks)
	}
	if err := cmp.Or(w.check(), w.knowsEvents(had)); err != nil {
		return shown, false, err
	}
	k := &hook{Webhook: w, hookState: &hookState{}}
	if was != nil {
		k.hookState = was.hookState
		k.pause = 0
	}
	k.kept.By, k.kept.SetMS = by.Who, h.now()
	if err := h.f.audit.With(k.act(by, "set"), []mutation.Change{k.change()}); err != nil {
		return shown, false, err
	}
	h.hooks[w.Name] = k
	h.publish()
	return k.show(), was == nil, nil
}

// act is what the audit tells of a deed: not the address, which may contain a token.
func (k *hook) act(by Actor, deed string) Act {
	detail, _ := json.Marshal(map[string]any{"events": k.Events, "on": k.On})
	return Act{Actor: by, What: "webhook." + deed, Object: k.Name, VHost: k.VHost, Detail: string(detail)}
}

// endVHost switches off the webhooks of a virtual host that is deleted: they would be told of a later one of that name.
func (h *Webhooks) endVHost(name message.VHost, _ broker.Doer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, was := range h.hooks {
		if was.VHost != string(name) || !was.On {
			continue
		}
		k := &hook{Webhook: was.Webhook, hookState: was.hookState}
		k.On, k.kept.LastError, k.kept.LastErrMS = false, fmt.Sprintf("virtual host '%s' was deleted", name), h.now()
		if h.f.audit.With(k.act(Actor{}, "set"), []mutation.Change{k.change()}) == nil { // an error ends the node
			h.hooks[k.Name] = k
		}
	}
	h.publish()
}

// Remove removes a webhook, and what waits for it.
func (h *Webhooks) Remove(name string, by Actor) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.hooks[name]
	if k == nil {
		return noHook(name)
	}
	changes := []mutation.Change{{Key: appendKey([]byte(datadir.RecordPrefix), hookPrefix, name, 0)}}
	for _, t := range k.waiting {
		changes = append(changes, mutation.Change{Key: appendKey([]byte(datadir.RecordPrefix), tellPrefix, name, t.number)})
	}
	if err := h.f.audit.With(k.act(by, "removed"), changes); err != nil {
		return err
	}
	k.waiting = nil
	delete(h.hooks, name)
	h.publish()
	return nil
}

// HookTest is what came of a test.
type HookTest struct {
	Delivered bool   `json:"delivered"`
	Status    int    `json:"status"` // of the answer; 0: there was none
	Error     string `json:"error,omitempty"`
	TookMS    int64  `json:"took_ms"`
}

// Test tells a webhook of an event webhook.test, once, whether it is on or off.
func (h *Webhooks) Test(ctx context.Context, name string, by Actor) (t HookTest, err error) {
	h.mu.Lock()
	k := h.hooks[name]
	h.mu.Unlock()
	if k == nil {
		return t, noHook(name)
	}
	select {
	case h.room <- struct{}{}:
	case <-time.After(hookTimeout):
		return t, refuse(Conflict, "%d messages to webhooks are under way: try again later", hooksAtOnce)
	case <-ctx.Done():
		return t, ctx.Err()
	}
	began := time.Now()
	status, failed := h.post(ctx, &k.Webhook, h.body("webhook.test", h.now(), map[string]any{"webhook": name, "user_who_performed_action": by.Who}))
	<-h.room
	h.poke()
	t = HookTest{Delivered: failed == nil, Status: status, TookMS: time.Since(began).Milliseconds()}
	if failed != nil {
		t.Error = failed.Error()
	}
	return t, nil
}
