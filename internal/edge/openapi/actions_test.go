package openapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/wire/amqp091"
)

// queue finds a queue as the broker has it.
func (n *node) queue(v message.VHost, name message.QueueName) (found *topology.Queue) {
	n.b.Read(func(s *topology.State, _ *auth.Users) {
		if host, ok := s.VHost(v); ok {
			found, _ = host.Queue(name)
		}
	})
	return found
}

// CreateQueue makes a durable queue, and its parameters are arguments.
func TestDL22_16_CreateQueue(t *testing.T) {
	n := start(t)
	n.must("CreateQueue", "VirtualHost", "/", "QueueName", "orders", "AutoDeleteState", "True", "ExclusiveState", "false", "MessageTTL", "86400000",
		"AutoExpireState", "10000", "MaxLength", "1000", "MaximumPriority", "10", "DeadLetterExchange", "amq.direct", "DeadLetterRoutingKey", "dead/#@", "RegionId", "cn-hangzhou")
	q := n.queue("/", "orders")
	if q == nil || !q.Durable || !q.AutoDelete || q.Exclusive {
		t.Fatalf("the queue is %+v", q)
	}
	for key, want := range map[string]any{
		"x-message-ttl": int64(86400000), "x-expires": int64(10000), "x-max-length": int64(1000), "x-max-priority": int64(10),
		"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "dead/#@",
	} {
		if got, _ := q.Arguments.Get(key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	plain := func() {
		n.must("CreateQueue", "VirtualHost", "/", "QueueName", "plain", "MessageTTL", "", "DeadLetterExchange", "")
	}
	plain()
	plain() // what is there already is as good
	n.refused(400, "QueueHasDiffField", "CreateQueue", "VirtualHost", "/", "QueueName", "plain", "MessageTTL", "0")
}

// What the reference of CreateQueue does not allow is refused by the parameter's name.
func TestDL22_16_CreateQueueValidation(t *testing.T) {
	n := start(t)
	for _, c := range []struct {
		status           int
		code, name, text string
	}{
		{400, "MissingInstanceId", "InstanceId", ""},
		{400, "MissingVirtualHost", "VirtualHost", ""},
		{400, "MissingQueueName", "QueueName", ""},
		{404, "VhostNotExist", "VirtualHost", "nowhere"},
		{400, "InvalidQueueName", "QueueName", "a b"},
		{400, "InvalidQueueName", "QueueName", "a*"},
		{400, "InvalidQueueName", "QueueName", "队列"},
		{400, "InvalidQueueName", "QueueName", strings.Repeat("q", 256)},
		{400, "InvalidQueueName", "QueueName", "amq.q"},
		{400, "InvalidMessageTTL", "MessageTTL", "-1"},
		{400, "InvalidMessageTTL", "MessageTTL", "86400001"},
		{400, "InvalidMessageTTL", "MessageTTL", "1s"},
		{400, "InvalidMessageTTL", "MessageTTL", "9223372036854775808"},
		{400, "InvalidAutoExpireState", "AutoExpireState", "0"},
		{400, "InvalidMaxLength", "MaxLength", "-1"},
		{400, "InvalidMaximumPriority", "MaximumPriority", "256"},
		{400, "InvalidAutoDeleteState", "AutoDeleteState", "yes"},
		{400, "InvalidExclusiveState", "ExclusiveState", "true"},
		{400, "InvalidDeadLetterExchange", "DeadLetterExchange", "a b"},
		{400, "InvalidDeadLetterRoutingKey", "DeadLetterRoutingKey", "a*b"},
		{400, "InvalidDeadLetterRoutingKey", "DeadLetterRoutingKey", "a"}, // without an exchange
	} {
		p := []string{"VirtualHost", "/", "QueueName", "q"}
		n.refused(c.status, c.code, "CreateQueue", append(p, c.name, c.text)...)
	}
	if n.queue("/", "q") != nil {
		t.Error("there is a queue")
	}
	for _, name := range []string{strings.Repeat("q", 255), "AZaz09-_.#/@", "amq"} {
		n.must("CreateQueue", "VirtualHost", "/", "QueueName", name)
	}
}

// The other actions about queues.
func TestDL22_17_Queues(t *testing.T) {
	n := start(t)
	n.refused(404, "QueueNotExist", "DeleteQueue", "VirtualHost", "/", "QueueName", "q")
	n.must("CreateQueue", "VirtualHost", "/", "QueueName", "q", "DeadLetterExchange", "dlx")
	data := n.must("ListQueues", "VirtualHost", "/", "MaxResults", "10")
	want := "map[MaxResults:10 NextToken: Queues:[map[Attributes:map[x-dead-letter-exchange:dlx x-queue-type:classic] AutoDeleteState:false " +
		"ExclusiveState:false Name:q OwnerId:amqp-cn-1 VHostName:/]]]"
	if got := fmt.Sprint(data); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	data = n.must("ListQueueConsumers", "VirtualHost", "/", "Queue", "q")
	if got := fmt.Sprint(data); got != "map[Consumers:[] MaxResults:1 NextToken:]" {
		t.Errorf("the consumers are %s", got)
	}
	n.refused(404, "QueueNotExist", "ListQueueConsumers", "VirtualHost", "/", "Queue", "p")
	n.refused(400, "InvalidQueryCount", "ListQueueConsumers", "VirtualHost", "/", "Queue", "q", "QueryCount", "101")
	n.must("DeleteQueue", "VirtualHost", "/", "QueueName", "q")
	if n.queue("/", "q") != nil {
		t.Error("the queue is there still")
	}
}

// Exchanges of every type are made, and deleted but for those that are not to be.
func TestDL22_17_Exchanges(t *testing.T) {
	n := start(t)
	for _, kind := range []string{"DIRECT", "TOPIC", "FANOUT", "HEADERS", "X_CONSISTENT_HASH", "direct"} {
		n.must("CreateExchange", "VirtualHost", "/", "ExchangeName", "x-"+kind, "ExchangeType", kind, "AutoDeleteState", "false", "Internal", "false")
	}
	n.must("CreateExchange", "VirtualHost", "/", "ExchangeName", "inner", "ExchangeType", "FANOUT", "AutoDeleteState", "true", "Internal", "true",
		"AlternateExchange", "x-DIRECT")
	data := n.must("ListExchanges", "VirtualHost", "/")
	elements := data["Exchanges"].([]any)
	i := slices.IndexFunc(elements, func(e any) bool { return e.(map[string]any)["Name"] == "inner" })
	const want = "map[Attributes:map[alternate-exchange:x-DIRECT] AutoDeleteState:true ExchangeType:FANOUT Internal:true Name:inner VHostName:/]"
	if got := fmt.Sprint(elements[max(i, 0)]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	all := names(data, "Exchanges", "Name")
	if !slices.Contains(all, "amq.topic") || slices.Contains(all, "") || !slices.Contains(names(data, "Exchanges", "ExchangeType"), "X_CONSISTENT_HASH") {
		t.Errorf("the exchanges are %q", all)
	}

	for _, c := range []struct {
		status           int
		code, name, text string
	}{
		{400, "MissingExchangeType", "ExchangeType", ""},
		{400, "InvalidExchangeType", "ExchangeType", "QUEUE"},
		{400, "InvalidExchangeName", "ExchangeName", "amq.mine"},
		{400, "InvalidExchangeName", "ExchangeName", "a b"},
		{400, "MissingExchangeName", "ExchangeName", ""},
		{400, "InvalidAlternateExchange", "AlternateExchange", "a b"},
		{400, "InvalidInternal", "Internal", "1"},
		{404, "VhostNotExist", "VirtualHost", "nowhere"},
		{400, "ExchangeHasDiffFields", "ExchangeName", "inner"},
	} {
		n.refused(c.status, c.code, "CreateExchange", "VirtualHost", "/", "ExchangeName", "x", "ExchangeType", "DIRECT", c.name, c.text)
	}

	n.must("DeleteExchange", "VirtualHost", "/", "ExchangeName", "x-TOPIC")
	n.refused(404, "ExchangeNotExist", "DeleteExchange", "VirtualHost", "/", "ExchangeName", "x-TOPIC")
	n.refused(400, "InvalidExchangeName", "DeleteExchange", "VirtualHost", "/", "ExchangeName", "x-HEADERS")
	n.refused(400, "InvalidExchangeName", "DeleteExchange", "VirtualHost", "/", "ExchangeName", "amq.direct")
}

// Bindings to queues and exchanges are made, listed from all sides and deleted.
func TestDL22_17_Bindings(t *testing.T) {
	n := start(t)
	for _, x := range []string{"direct", "topic", "headers"} {
		n.must("CreateExchange", "VirtualHost", "/", "ExchangeName", x, "ExchangeType", x, "AutoDeleteState", "false", "Internal", "false")
	}
	n.must("CreateQueue", "VirtualHost", "/", "QueueName", "q")
	for _, b := range [][4]string{
		{"direct", "QUEUE", "q", "a/b"}, {"direct", "0", "q", "c"}, {"direct", "0", "q", "c"}, {"topic", "EXCHANGE", "direct", "*.x.#"}, {"topic", "1", "headers", "#"},
	} {
		n.must("CreateBinding", "VirtualHost", "/", "SourceExchange", b[0], "BindingType", b[1], "DestinationName", b[2], "BindingKey", b[3], "Argument", "x-match:any")
	}
	n.must("CreateBinding", "VirtualHost", "/", "SourceExchange", "headers", "BindingType", "QUEUE", "DestinationName", "q", "Argument", "x-match:any;type:report;format:pdf;")
	n.must("CreateBinding", "VirtualHost", "/", "SourceExchange", "headers", "BindingType", "QUEUE", "DestinationName", "q", "Argument", "type:bill")

	list := func(action string, parameters ...string) string {
		t.Helper()
		a := n.do(action, append([]string{"VirtualHost", "/"}, parameters...)...)
		if a.status != 200 {
			t.Fatalf("%s: %v", action, a.object)
		}
		data := a.object["Data"].(map[string]any)
		var all []string
		for _, e := range data["Bindings"].([]any) {
			b := e.(map[string]any)
			all = append(all, fmt.Sprintf("%v>%v %v[%v]%v", b["SourceExchange"], b["BindingType"], b["DestinationName"], b["BindingKey"], b["Argument"]))
		}
		slices.Sort(all)
		return fmt.Sprintf("%s %v %v %v", all, a.object["Code"], a.object["Success"], data["MaxResults"])
	}
	const toQueue = "direct>QUEUE q[a/b] direct>QUEUE q[c] headers>QUEUE q[]format:pdf;type:report;x-match:any headers>QUEUE q[]type:bill"
	const toDirect, toHeaders = "topic>EXCHANGE direct[*.x.#]", "topic>EXCHANGE headers[#]"
	for _, c := range []struct{ got, want string }{
		{list("ListBindings", "MaxResults", "100"), "[" + toQueue + " " + toDirect + " " + toHeaders + "] <nil> <nil> 100"},
		{list("ListQueueUpStreamBindings", "QueueName", "q", "MaxResults", "7"), "[" + toQueue + "] <nil> <nil> 7"},
		{list("ListExchangeUpStreamBindings", "ExchangeName", "direct"), "[" + toDirect + "] 200 true 100"},
		{list("ListDownStreamBindings", "ExchangeName", "topic"), "[" + toDirect + " " + toHeaders + "] 200 true 100"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
	if data := n.must("ListQueueUpStreamBindings", "VirtualHost", "/", "QueueName", "q", "MaxResults", "7"); data["MaxResults"] != "7" {
		t.Errorf("MaxResults is %v: in this answer it is a text", data["MaxResults"])
	}
	n.refused(404, "QueueNotExist", "ListQueueUpStreamBindings", "VirtualHost", "/", "QueueName", "p")
	n.refused(404, "ExchangeNotExist", "ListExchangeUpStreamBindings", "VirtualHost", "/", "ExchangeName", "p")
	n.refused(404, "ExchangeNotExist", "ListDownStreamBindings", "VirtualHost", "/", "ExchangeName", "p")

	for _, c := range []struct {
		status           int
		code, name, text string
	}{
		{400, "MissingSourceExchange", "SourceExchange", ""},
		{400, "MissingDestinationName", "DestinationName", ""},
		{400, "MissingBindingType", "BindingType", ""},
		{400, "InvalidBindingType", "BindingType", "2"},
		{404, "ExchangeNotExist", "SourceExchange", "p"},
		{404, "QueueNotExist", "DestinationName", "p"},
		{404, "ExchangeNotExist", "BindingType", "EXCHANGE"},
		{400, "InvalidBindingKey", "BindingKey", "a#"},
		{400, "InvalidBindingKey", "BindingKey", strings.Repeat("k", 256)},
	} {
		n.refused(c.status, c.code, "CreateBinding", "VirtualHost", "/", "SourceExchange", "direct", "BindingType", "QUEUE", "DestinationName", "q", "BindingKey", "k", c.name, c.text)
	}
	n.refused(400, "InvalidArgument", "CreateBinding", "VirtualHost", "/", "SourceExchange", "headers", "BindingType", "QUEUE", "DestinationName", "q", "Argument", "x-match")

	unbind := []string{"VirtualHost", "/", "SourceExchange", "headers", "BindingType", "QUEUE", "DestinationName", "q"}
	n.must("DeleteBinding", unbind...)
	n.refused(404, "BindingNotExist", "DeleteBinding", unbind...)
	n.must("DeleteBinding", append(unbind, "SourceExchange", "direct", "BindingKey", "c")...)
	if got := list("ListQueueUpStreamBindings", "QueueName", "q"); got != "[direct>QUEUE q[a/b]] <nil> <nil> 100" {
		t.Errorf("there is left %s", got)
	}
}

// What the profile refuses is told by the parameter's name too.
func TestProfileRefusesEmptyKeysOfDirectExchanges(t *testing.T) {
	n := start(t)
	n.must("CreateVirtualHost", "VirtualHost", "shop")
	n.must("CreateQueue", "VirtualHost", "shop", "QueueName", "q")
	n.refused(400, "InvalidBindingKey", "CreateBinding", "VirtualHost", "shop", "SourceExchange", "amq.direct", "BindingType", "QUEUE", "DestinationName", "q")
	n.must("CreateBinding", "VirtualHost", "shop", "SourceExchange", "amq.fanout", "BindingType", "QUEUE", "DestinationName", "q")
}

// Keys of topic exchanges have # and * as whole words only.
func TestDL22_17_BindingKeys(t *testing.T) {
	for _, c := range []struct {
		kind routing.Kind
		key  string
		ok   bool
	}{
		{"topic", "", true}, {"topic", "#", true}, {"topic", "*.a.#", true}, {"topic", "a.*.b", true}, {"topic", "a/b@c-d_e", true},
		{"topic", "a#", false}, {"topic", "#a.b", false}, {"topic", "a.*b", false}, {"topic", ".a", false}, {"topic", "a.", false}, {"topic", "a b", false},
		{"direct", "a.b", true}, {"direct", "", true}, {"direct", "a#b", false}, {"direct", "*", false}, {"fanout", "a/b@", true},
	} {
		if err := checkKey(c.kind, c.key); (err == nil) != c.ok {
			t.Errorf("%s %q: %v", c.kind, c.key, err)
		}
	}
}

// Virtual hosts are made with ApsaraMQ's profile, and deleted once they are empty.
func TestDL22_17_VirtualHosts(t *testing.T) {
	n := start(t)
	n.must("CreateVirtualHost", "VirtualHost", "shop")
	n.must("CreateVirtualHost", "VirtualHost", "shop") // as good as new
	n.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, _ := s.VHost("shop"); v.Profile() != deadletter.ApsaraMQ {
			t.Errorf("its profile is %s", v.Profile())
		}
	})
	if got := fmt.Sprint(names(n.must("ListVirtualHosts", "MaxResults", "100"), "VirtualHosts", "Name")); got != "[/ shop]" {
		t.Errorf("there are %s", got)
	}
	n.refused(400, "InvalidVirtualHost", "CreateVirtualHost", "VirtualHost", "a b")
	n.refused(400, "MissingVirtualHost", "CreateVirtualHost")
	n.refused(404, "VhostNotExist", "DeleteVirtualHost", "VirtualHost", "other")

	n.must("CreateQueue", "VirtualHost", "shop", "QueueName", "q")
	n.refused(400, "VhostNotEmpty", "DeleteVirtualHost", "VirtualHost", "shop")
	n.must("DeleteQueue", "VirtualHost", "shop", "QueueName", "q")
	n.must("CreateExchange", "VirtualHost", "shop", "ExchangeName", "x", "ExchangeType", "TOPIC", "AutoDeleteState", "false", "Internal", "false")
	n.refused(400, "VhostNotEmpty", "DeleteVirtualHost", "VirtualHost", "shop")
	n.must("DeleteExchange", "VirtualHost", "shop", "ExchangeName", "x")
	if _, err := n.b.By("").Do(declare.ProtectVHost{Name: "shop", On: true}); err != nil {
		t.Fatal(err)
	}
	n.refused(400, "OperationDenied.Protected", "DeleteVirtualHost", "VirtualHost", "shop")
	if _, err := n.b.By("").Do(declare.ProtectVHost{Name: "shop", On: false}); err != nil {
		t.Fatal(err)
	}
	n.must("DeleteVirtualHost", "VirtualHost", "shop")
	n.refused(404, "VhostNotExist", "ListQueues", "VirtualHost", "shop")
}

// A virtual host that others have made keeps what they have said of it.
func TestCreateVirtualHostChangesNoOther(t *testing.T) {
	n := start(t)
	if _, err := n.b.By("").Do(declare.PutVHost{Name: "theirs", Change: declare.All(topology.Metadata{Description: "theirs"})}); err != nil {
		t.Fatal(err)
	}
	n.must("CreateVirtualHost", "VirtualHost", "theirs")
	n.b.Read(func(s *topology.State, _ *auth.Users) {
		if v, _ := s.VHost("theirs"); v.Metadata.Description != "theirs" || v.Profile() != deadletter.RabbitMQ {
			t.Errorf("it is %+v", v.Metadata)
		}
	})
}

// GetMetadataAmount counts, and needs no instance.
func TestDL22_17_MetadataAmount(t *testing.T) {
	n := start(t)
	n.must("CreateVirtualHost", "VirtualHost", "shop")
	n.must("CreateQueue", "VirtualHost", "shop", "QueueName", "q")
	got := fmt.Sprint(n.must("GetMetadataAmount", "InstanceId", ""))
	if want := "map[CurrentExchanges:12 CurrentQueues:1 CurrentVirtualHosts:2 MaxExchanges:2.147483647e+09 MaxQueues:2.147483647e+09 MaxVirtualHosts:2.147483647e+09]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Lists come in pages, and what goes away between two moves nothing.
func TestDL22_17_Pages(t *testing.T) {
	n := start(t)
	for i := range 7 {
		n.must("CreateQueue", "VirtualHost", "/", "QueueName", fmt.Sprint("q", i))
	}
	var all []string
	token := ""
	for {
		data := n.must("ListQueues", "VirtualHost", "/", "MaxResults", "3", "NextToken", token)
		page := names(data, "Queues", "Name")
		all = append(all, page...)
		if len(all) == 3 {
			n.must("DeleteQueue", "VirtualHost", "/", "QueueName", "q0")
			n.must("DeleteQueue", "VirtualHost", "/", "QueueName", "q2") // the token's
		}
		if token = data["NextToken"].(string); token == "" {
			break
		}
	}
	if got := fmt.Sprint(all); got != "[q0 q1 q2 q3 q4 q5 q6]" {
		t.Errorf("the pages are %s", got)
	}
	n.refused(400, "InvalidNextToken", "ListQueues", "VirtualHost", "/", "NextToken", "!")
	for _, size := range []string{"0", "101", "x"} {
		n.refused(400, "InvalidMaxResults", "ListQueues", "VirtualHost", "/", "MaxResults", size)
	}
}

// A key may do what its user may: configure what the permissions say, and make virtual
// hosts if it is an administrator.
func TestKeysHaveTheirUsersPermissions(t *testing.T) {
	n := start(t)
	n.must("CreateVirtualHost", "VirtualHost", "shop")
	ada := n.with(adaKey)
	ada.must("CreateQueue", "VirtualHost", "/", "QueueName", "own.q")
	ada.must("CreateExchange", "VirtualHost", "/", "ExchangeName", "own.x", "ExchangeType", "DIRECT", "AutoDeleteState", "false", "Internal", "false")
	ada.must("CreateBinding", "VirtualHost", "/", "SourceExchange", "own.x", "BindingType", "QUEUE", "DestinationName", "own.q", "BindingKey", "k")
	ada.refused(403, "Forbidden.RAM", "CreateQueue", "VirtualHost", "/", "QueueName", "q")
	ada.refused(403, "Forbidden.RAM", "CreateExchange", "VirtualHost", "/", "ExchangeName", "x", "ExchangeType", "DIRECT")
	ada.refused(403, "Forbidden.RAM", "CreateVirtualHost", "VirtualHost", "hers")
	ada.refused(403, "Forbidden.RAM", "DeleteVirtualHost", "VirtualHost", "/")
	ada.refused(404, "VhostNotExist", "ListQueues", "VirtualHost", "shop") // which is not hers to see
	if got := fmt.Sprint(names(ada.must("ListVirtualHosts"), "VirtualHosts", "Name")); got != "[/]" {
		t.Errorf("she sees %s", got)
	}
	if _, err := n.b.By("").Do(declare.DeleteUser{Name: "ada"}); err != nil {
		t.Fatal(err)
	}
	ada.refused(403, "Forbidden.RAM", "ListVirtualHosts")

	// The user guest may log in from this machine only, by whatever means.
	r := n.request("ListVirtualHosts")
	r.RemoteAddr = "203.0.113.7:1234"
	if a := n.send(r); a.code() != "Forbidden.RAM" {
		t.Errorf("from elsewhere: %d %v", a.status, a.object)
	}
}

// Where an instance is named there is no other.
func TestInstances(t *testing.T) {
	n := start(t)
	n.access.InstanceID = "amqp-cn-2"
	n.refused(404, "InstanceNotExist", "ListVirtualHosts")
	n.refused(404, "InstanceNotExist", "GetMetadataAmount")
	n.must("ListVirtualHosts", "InstanceId", "amqp-cn-2")
	n.must("GetMetadataAmount", "InstanceId", "")
}

// What is no request of this API goes on, and so does all without keys.
func TestOtherRequestsGoOn(t *testing.T) {
	n := start(t)
	request := func(method, target string) *http.Request {
		r := post("")
		r.Header.Del("Content-Type")
		r.Method = method
		r.URL, _ = r.URL.Parse(target)
		return r
	}
	for _, target := range []string{"/", "/?action=x", "/api/overview?Action=ListQueues", "/index.html"} {
		if a := n.send(request("GET", target)); a.status != http.StatusTeapot {
			t.Errorf("%s: %d %v", target, a.status, a.object)
		}
	}
	if a := n.send(request("POST", "/")); a.status != http.StatusTeapot {
		t.Errorf("POST without a form: %d", a.status)
	}
	if a := n.send(request("GET", "/?Action=ListQueues")); a.code() != "MissingAccessKeyId" {
		t.Errorf("an action: %d %v", a.status, a.object)
	}
	n.access.Keys = nil
	if a := n.send(n.request("ListVirtualHosts")); a.status != http.StatusTeapot {
		t.Errorf("without keys: %d %v", a.status, a.object)
	}
}

// Who changed what is in the audit log; what only reads is not.
func TestChangesAreAudited(t *testing.T) {
	n := start(t)
	n.must("CreateQueue", "VirtualHost", "/", "QueueName", "q", "MessageTTL", "1")
	n.must("ListQueues", "VirtualHost", "/")
	n.with(adaKey).refused(403, "Forbidden.RAM", "DeleteQueue", "VirtualHost", "/", "QueueName", "q")
	log := n.log.String()
	for _, want := range []string{
		`msg="administrative action" user=guest peer=127.0.0.1:1234 method=POST resource=openapi/CreateQueue object.VirtualHost=/ object.QueueName=q result=done status=200`,
		`user=ada peer=127.0.0.1:1234 method=POST resource=openapi/DeleteQueue object.VirtualHost=/ object.QueueName=q result=refused status=403`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("there is no %s in\n%s", want, log)
		}
	}
	if strings.Contains(log, "ListQueues") {
		t.Errorf("a list is in\n%s", log)
	}
}

// Large requests are refused before they are read.
func TestLargeRequests(t *testing.T) {
	n := start(t)
	r := post("Action=CreateQueue&Argument=" + strings.Repeat("x", maxBody))
	if a := n.send(r); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d %v", a.status, a.object)
	}
	r = post("Action=CreateQueue&Argument=" + strings.Repeat("x", maxBody))
	r.ContentLength = -1
	if a := n.send(r); a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("without a length: got %d %v", a.status, a.object)
	}
	var form strings.Builder
	for i := range maxParameters + 1 {
		fmt.Fprintf(&form, "&p%d=", i)
	}
	if a := n.send(post("Action=x" + form.String())); a.code() != "InvalidParameter" {
		t.Errorf("many parameters: got %d %v", a.status, a.object)
	}
}

// Attributes of bindings that others have made are shown whatever they are.
func TestBindingsOfOthersAreShown(t *testing.T) {
	n := start(t)
	c := n.operator("/")
	if _, err := c.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Bind(topology.BindingDecl{
		Source: "amq.headers", DestinationKind: topology.QueueResource, Destination: "q", Key: "a key",
		Arguments: amqp091.Table{{Key: "n", Value: int64(1)}, {Key: "x-match", Value: "all"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	data := n.must("ListBindings", "VirtualHost", "/")
	if got := fmt.Sprint(names(data, "Bindings", "Argument"), names(data, "Bindings", "BindingKey")); got != "[n:1;x-match:all] [a key]" {
		t.Errorf("got %s", got)
	}
	n.must("DeleteBinding", "VirtualHost", "/", "SourceExchange", "amq.headers", "BindingType", "QUEUE", "DestinationName", "q", "BindingKey", "a key")
}
