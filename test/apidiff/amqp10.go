package apidiff

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bartleby.mq/internal/wire/amqp10"
)

// What a node shows of clients of AMQP 1.0, and what becomes of these when an operator ends them. Names, handles and
// counts are the test's, so values are compared, not only types.

// vhost10 is where everything of AMQP 1.0 is built; user10 is a user that has rights there only.
const (
	vhost10 = "apidiff10"
	user10  = "apidiff10"
)

// amqp10File is what RabbitMQ shows of the clients of AMQP 1.0.
const (
	amqp10File          = "testdata/amqp10-4.3.txt"
	amqp10ExceptionFile = "testdata/amqp10-exceptions.txt"
)

// declared10 is what is put by the API, in order: method, path, body.
var declared10 = [][3]string{
	{"PUT", "vhosts/apidiff10", `{"default_queue_type":"classic"}`},
	{"PUT", "users/apidiff10", `{"password":"apidiff10","tags":"management"}`},
	{"PUT", "permissions/apidiff10/apidiff10", `{"configure":".*","write":".*","read":".*"}`},
	{"PUT", "permissions/apidiff10/guest", `{"configure":".*","write":".*","read":".*"}`},
	{"PUT", "queues/apidiff10/classic", `{"durable":true}`},
	{"PUT", "queues/apidiff10/quorum", `{"durable":true,"arguments":{"x-queue-type":"quorum","x-single-active-consumer":true}}`},
}

// resources10 are read while a client has its links, with CONNECTION for its connection's name.
var resources10 = strings.Fields(`
connections
connections/CONNECTION
connections/CONNECTION?disable_stats=true
connections/CONNECTION/sessions
connections/CONNECTION/sessions?columns=channel_number
connections/CONNECTION/channels
connections/username/apidiff10
vhosts/apidiff10/connections
vhosts/apidiff10/channels
vhosts/apidiff10
channels
channels/CONNECTION%20(0)
consumers/apidiff10
queues/apidiff10/classic
queues/apidiff10/quorum
`)

type action10 struct {
	name, method, path, body, reason string
	then                             effect10
}

// effect10 is what an action does to the connection.
type effect10 int

const (
	ends     effect10 = iota
	goesOn            // and the client publishes
	detaches          // it goes on without the link on which the client then publishes
)

// actions10 are what an operator does while a client is connected, which then publishes if nothing has ended it.
var actions10 = []action10{
	{"close", "DELETE", "connections/CONNECTION", "", "", ends},
	{"close-with-a-reason", "DELETE", "connections/CONNECTION", "", `enough "of" this`, ends},
	{"close-all-of-a-user", "DELETE", "connections/username/apidiff10", "", "", ends},
	{"close-all-of-a-user-with-a-reason", "DELETE", "connections/username/apidiff10", "", "maintenance", ends},
	{"take-write-permission", "PUT", "permissions/apidiff10/apidiff10", `{"configure":".*","write":"","read":".*"}`, "", goesOn},
	{"take-read-permission", "PUT", "permissions/apidiff10/apidiff10", `{"configure":".*","write":".*","read":""}`, "", goesOn},
	{"take-all-permissions", "DELETE", "permissions/apidiff10/apidiff10", "", "", goesOn},
	{"change-the-password", "PUT", "users/apidiff10", `{"password":"other","tags":"management"}`, "", goesOn},
	{"delete-the-queue", "DELETE", "queues/apidiff10/classic", "", "", detaches},
	{"delete-the-user", "DELETE", "users/apidiff10", "", "", ends},
	{"delete-the-virtual-host", "DELETE", "vhosts/apidiff10", "", "", ends},
}

// wipe10 removes what build10 makes; that there is none is fine.
func (t target) wipe10() error {
	var failed error
	for _, path := range []string{"vhosts/apidiff10", "users/apidiff10"} {
		if a, err := t.do("DELETE", path, ""); err != nil || a.status != http.StatusNoContent && a.status != http.StatusNotFound {
			failed = errors.Join(failed, fmt.Errorf("DELETE %s: %d %s %w", path, a.status, a.body, err))
		}
	}
	return failed
}

func (t target) build10() error {
	if err := t.wipe10(); err != nil {
		return err
	}
	for _, d := range declared10 {
		if a, err := t.do(d[0], d[1], d[2]); err != nil || a.status >= 300 {
			return fmt.Errorf("%s %s: %d %s %w", d[0], d[1], a.status, a.body, err)
		}
	}
	return nil
}

// opening10 is what the client says of itself, with values of several types.
func opening10() *amqp10.Open {
	b, start := amqp10.BeginMap(nil)
	b = amqp10.AppendString(amqp10.AppendSymbol(b, "product"), "apidiff")
	b = amqp10.AppendSymbol(amqp10.AppendSymbol(b, "version"), "1.0")
	b = amqp10.AppendString(amqp10.AppendSymbol(b, "connection_name"), "the client's name")
	b = amqp10.AppendBool(amqp10.AppendSymbol(b, "truth"), true)
	b = amqp10.AppendUint(amqp10.AppendSymbol(b, "uint"), 7)
	b = amqp10.AppendLong(amqp10.AppendSymbol(b, "long"), -8)
	b = amqp10.AppendDouble(amqp10.AppendSymbol(b, "double"), 1.5)
	b = amqp10.AppendBinary(amqp10.AppendSymbol(b, "binary"), "octets")
	b = amqp10.AppendTimestamp(amqp10.AppendSymbol(b, "timestamp"), 1700000000000)
	b = amqp10.AppendNull(amqp10.AppendSymbol(b, "nothing"))
	b = amqp10.AppendSymbol(b, "list")
	b, list := amqp10.BeginList(b)
	b = amqp10.EndCompound(amqp10.AppendInt(amqp10.AppendString(b, "a"), 1), list, 2)
	b = amqp10.AppendSymbol(b, "map")
	b, inner := amqp10.BeginMap(b)
	b = amqp10.EndCompound(amqp10.AppendString(amqp10.AppendSymbol(b, "key"), "value"), inner, 2)
	return &amqp10.Open{
		ContainerID: []byte("the container"), Hostname: []byte("vhost:" + vhost10), MaxFrameSize: amqp10.Some[uint32](8192), ChannelMax: amqp10.Some[uint16](9),
		IdleTimeOut: amqp10.Some[uint32](25000), Properties: value10(amqp10.EndCompound(b, start, 24)),
	}
}

func composite10(v amqp10.Composite) amqp10.Value { return value10(v.Append(nil)) }

// attach10 attaches a link. a has its name, handle, role and what is out of the ordinary.
func (c *recorded10) attach10(a *amqp10.Attach, source *amqp10.Source, target *amqp10.Target) error {
	a.Source, a.Target = composite10(source), composite10(target)
	if a.Role == amqp10.RoleSender {
		a.InitialDeliveryCount = amqp10.Some[uint32](0)
	}
	c.send(0, a)
	_, err := await10[*amqp10.Attach](c)
	if err == nil && a.Role == amqp10.RoleSender {
		_, err = await10[*amqp10.Flow](c)
	}
	return err
}

// linked10 opens a connection with two sessions and links of every kind.
func (t target) linked10(user string) (c *recorded10, err error) {
	if c, err = t.open10(user, opening10()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	c.send(0, &amqp10.Begin{NextOutgoingID: 5, IncomingWindow: 100, OutgoingWindow: 200, HandleMax: amqp10.Some[uint32](20)})
	if _, err = await10[*amqp10.Begin](c); err != nil {
		return c, err
	}
	c.send(3, &amqp10.Begin{IncomingWindow: 1, OutgoingWindow: 2})
	if _, err = await10[*amqp10.Begin](c); err != nil {
		return c, err
	}
	b, start := amqp10.BeginMap(nil)
	paired := value10(amqp10.EndCompound(amqp10.AppendBool(amqp10.AppendSymbol(b, "paired"), true), start, 2))
	b, start = amqp10.BeginMap(nil)
	urgent := value10(amqp10.EndCompound(amqp10.AppendInt(amqp10.AppendSymbol(b, "rabbitmq:priority"), 3), start, 2))
	in, out := amqp10.RoleReceiver, amqp10.RoleSender
	settled := amqp10.Some(amqp10.SenderSettleModeSettled)
	return c, errors.Join(
		c.attach10(&amqp10.Attach{Name: []byte("out"), Handle: 0, Role: out}, &amqp10.Source{Address: []byte("from")}, &amqp10.Target{Address: []byte("/queues/classic")}),
		c.attach10(&amqp10.Attach{Name: []byte("anywhere"), Handle: 1, Role: out, SndSettleMode: settled}, &amqp10.Source{}, &amqp10.Target{}),
		c.attach10(&amqp10.Attach{Name: []byte("key"), Handle: 2, Role: out, SndSettleMode: amqp10.Some(amqp10.SenderSettleModeUnsettled), MaxMessageSize: amqp10.Some[uint64](1000)},
			&amqp10.Source{}, &amqp10.Target{Address: []byte("/exchanges/amq.direct/nowhere%20to%20go")}),
		c.attach10(&amqp10.Attach{Name: []byte("in"), Handle: 3, Role: in, MaxMessageSize: amqp10.Some[uint64](100000)},
			&amqp10.Source{Address: []byte("/queues/classic")}, &amqp10.Target{Address: []byte("to")}),
		c.attach10(&amqp10.Attach{Name: []byte("first"), Handle: 4, Role: in, SndSettleMode: settled, Properties: urgent},
			&amqp10.Source{Address: []byte("/queues/quorum")}, &amqp10.Target{}),
		c.attach10(&amqp10.Attach{Name: []byte("second"), Handle: 5, Role: in}, &amqp10.Source{Address: []byte("/queues/quorum")}, &amqp10.Target{}),
		c.attach10(&amqp10.Attach{Name: []byte("manage"), Handle: 6, Role: out, SndSettleMode: settled, Properties: paired},
			&amqp10.Source{Address: []byte("me")}, &amqp10.Target{Address: []byte("/management")}),
		c.attach10(&amqp10.Attach{Name: []byte("manage"), Handle: 7, Role: in, Properties: paired, SndSettleMode: settled},
			&amqp10.Source{Address: []byte("/management")}, &amqp10.Target{Address: []byte("me")}),
	)
}

// work10 publishes and consumes on the links, and leaves something unsettled.
func (c *recorded10) work10() error {
	payload := amqp10.AppendData(nil, []byte("body"))
	id := uint32(0)
	publish := func(handle uint32, settled bool, count int) error {
		for range count {
			c.transfer(0, amqp10.Transfer{
				Handle: handle, DeliveryID: amqp10.Some(id), DeliveryTag: []byte{byte(id)}, MessageFormat: amqp10.Some[uint32](0), Settled: amqp10.Some(settled),
			}, payload)
			id++
			if settled {
				continue
			}
			if _, err := await10[*amqp10.Disposition](c); err != nil {
				return err
			}
		}
		return nil
	}
	credit := func(handle, count, credit uint32) {
		c.send(0, &amqp10.Flow{
			NextIncomingID: amqp10.Some(count), IncomingWindow: 100, NextOutgoingID: 5 + id, OutgoingWindow: 200,
			Handle: amqp10.Some(handle), DeliveryCount: amqp10.Some(count), LinkCredit: amqp10.Some(credit),
		})
	}
	if err := errors.Join(publish(0, false, 4), publish(2, false, 2)); err != nil {
		return err
	}
	p, start := amqp10.BeginList(nil) // properties: to, the third field
	p = amqp10.EndCompound(amqp10.AppendString(amqp10.AppendNull(amqp10.AppendNull(p)), "/queues/quorum"), start, 3)
	properties := append(amqp10.AppendDescriptor(nil, amqp10.DescriptorProperties), p...)
	body := payload
	payload = append(properties, body...)
	if err := publish(1, true, 3); err != nil {
		return err
	}
	payload = body
	credit(3, 0, 6)
	for range 4 {
		if _, err := await10[*amqp10.Transfer](c); err != nil {
			return err
		}
	}
	settle := func(first, last uint32, state amqp10.Composite) {
		c.send(0, &amqp10.Disposition{Role: amqp10.RoleReceiver, First: first, Last: amqp10.Some(last), Settled: true, State: composite10(state)})
	}
	settle(0, 1, &amqp10.Accepted{})
	settle(2, 2, &amqp10.Released{})
	if _, err := await10[*amqp10.Transfer](c); err != nil { // what was released, again
		return err
	}
	credit(4, 0, 2)
	for range 2 {
		if _, err := await10[*amqp10.Transfer](c); err != nil {
			return err
		}
	}
	// Everything is done when it is confirmed.
	return publish(0, false, 1)
}

// shapes10 reads what is shown of a client with its links, and what the actions do.
func (t target) shapes10(lag time.Duration) (shapes map[string][]string, err error) {
	shapes = map[string][]string{}
	if err = t.build10(); err != nil {
		return nil, err
	}
	before, err := t.counters10()
	if err != nil {
		return nil, err
	}
	c, err := t.linked10(user10)
	if err != nil {
		return nil, err
	}
	if err = c.work10(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	time.Sleep(lag)
	if err = t.idle10(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	after, err := t.counters10()
	if err == nil {
		shapes["metrics"] = differences10(before, after)
		err = t.read10(c, shapes)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return nil, err
	}
	gone, err := t.counters10()
	shapes["metrics-after-the-end"] = differences10(before, gone)
	for _, a := range actions10 {
		if err == nil {
			shapes[a.name], err = t.act10(a)
		}
	}
	return shapes, errors.Join(err, t.wipe10())
}

// idle10 waits until the queue says since when it is idle.
func (t target) idle10() error {
	for range 100 {
		var queue struct {
			Since string `json:"idle_since"`
		}
		if err := t.read("queues/apidiff10/classic", &queue); err != nil || queue.Since != "" {
			return err
		}
		time.Sleep(time.Second / 10)
	}
	return errors.New("the queue is not idle")
}

// order10 are the sections of the recording.
func order10() []string {
	list := append(slices.Clone(resources10), "metrics", "metrics-after-the-end")
	for _, a := range actions10 {
		list = append(list, a.name)
	}
	return list
}

// name10 is the name that the node gives to a client's connection.
func (c *recorded10) name10() string {
	return c.LocalAddr().String() + " -> " + c.RemoteAddr().String()
}

// read10 reads the resources.
func (t target) read10(c *recorded10, shapes map[string][]string) error {
	mask, err := t.mask10(c)
	if err != nil {
		return err
	}
	for _, r := range resources10 {
		a, err := t.do("GET", strings.ReplaceAll(r, "CONNECTION", escape(c.name10())), "")
		if err != nil {
			return err
		}
		shapes[r] = append([]string{strconv.Itoa(a.status)}, valueLines(a.body, mask)...)
	}
	return nil
}

// mask10 returns what hides the names that differ from run to run.
func (t target) mask10(c *recorded10) (*strings.Replacer, error) {
	var overview struct{ Node string }
	if err := t.read("overview", &overview); err != nil {
		return nil, err
	}
	return strings.NewReplacer(c.name10(), "<connection>", overview.Node, "<node>"), nil
}

// act10 has a client connected while an operator acts, and shows what the client hears.
func (t target) act10(a action10) (lines []string, err error) {
	if err = t.build10(); err != nil {
		return nil, err
	}
	c, err := t.linked10(user10)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err = t.listed10(c); err != nil {
		return nil, err
	}
	r, err := http.NewRequest(a.method, t.http+"/api/"+strings.ReplaceAll(a.path, "CONNECTION", escape(c.name10())), strings.NewReader(a.body))
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth("guest", "guest")
	if a.reason != "" {
		r.Header.Set("X-Reason", a.reason)
	}
	if a.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := send(r)
	if err != nil {
		return nil, err
	}
	lines = append(lines, strconv.Itoa(answer.status))
	publish := func() {
		c.transfer(0, amqp10.Transfer{
			Handle: 0, DeliveryID: amqp10.Some[uint32](0), DeliveryTag: []byte("t"), MessageFormat: amqp10.Some[uint32](0),
		}, amqp10.AppendData(nil, []byte("body")))
	}
	if a.then == goesOn {
		publish()
	}
	for {
		f, err := c.Next()
		if err != nil {
			return lines, err
		}
		if _, ok := f.Is.(*amqp10.Flow); !ok {
			// Two of RabbitMQ's processes end a deleted virtual host's connections, each with its text.
			lines = append(lines, strings.ReplaceAll(shown10(f.Is), "vhost 'apidiff10' is deleted", "vhost 'apidiff10' is down"))
		}
		switch f.Is.(type) {
		case *amqp10.Close:
			c.send(0, &amqp10.Close{})
			return lines, nil
		case *amqp10.Disposition, *amqp10.End:
			return lines, c.close()
		case *amqp10.Detach: // told beside the answer to the request, before or after it
			if a.then == detaches {
				publish()
			}
		}
	}
}

// listed10 waits until the node shows the connection: RabbitMQ closes none before.
func (t target) listed10(c *recorded10) error {
	for range 100 {
		a, err := t.do("GET", "connections/"+escape(c.name10()), "")
		if err != nil || a.status == http.StatusOK {
			return err
		}
		time.Sleep(time.Second / 10)
	}
	return errors.New("the connection is not shown")
}

// counter10 is a sample of AMQP 1.0, bound10 the bound of a bucket, which each node writes in its own way.
var (
	bound10   = regexp.MustCompile(`le="([0-9.e+]+)"`)
	counter10 = regexp.MustCompile(`(?m)^(rabbitmq_[a-z_]+\{[^}]*protocol="amqp10"[^}]*\}) ([0-9.e+]+)$`)
)

// counters10 are what the node counts of AMQP 1.0.
func (t target) counters10() (map[string]float64, error) {
	counters := map[string]float64{}
	for _, page := range []string{"metrics", "metrics/detailed?family=auth_attempt_metrics"} {
		a, err := get(t.metrics + "/" + page)
		if err != nil {
			return nil, err
		}
		for _, m := range counter10.FindAllStringSubmatch(string(a.body), -1) {
			series := bound10.ReplaceAllStringFunc(m[1], func(le string) string {
				n, _ := strconv.ParseFloat(bound10.FindStringSubmatch(le)[1], 64)
				return fmt.Sprintf("le=\"%.0f\"", n)
			})
			counters[series], _ = strconv.ParseFloat(m[2], 64)
		}
	}
	return counters, nil
}

// differences10 are what has changed.
func differences10(before, after map[string]float64) (lines []string) {
	for k, v := range after {
		if v != before[k] {
			lines = append(lines, fmt.Sprintf("%s +%g", k, v-before[k]))
		}
	}
	slices.Sort(lines)
	return lines
}
