package api_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/repair"
)

// oddNumbers are what may stand where a number is wanted.
var oddNumbers = []string{
	"0", "1", "-1", "255", "256", "65536", "2147483647", "2147483648", "-2147483649", "4294967296", "9007199254740993", "315360000001",
	"4611686018427387904", "9223372036854775806", "9223372036854775807", "9223372036854775808", "18446744073709551615", "-9223372036854775808",
	"1.5", "1e3", "1e300", "-1e300", `"7"`, `"NaN"`, `""`, "null", "true", "[]", "{}", "[1]",
}

// numberRequests have a % where an odd number goes.
func numberRequests() (list [][3]string) {
	add := func(method, path, body string) { list = append(list, [3]string{method, path, body}) }
	for _, key := range []string{
		"expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes", "delivery-limit", "consumer-timeout",
		"consumer-disconnected-timeout", "delayed-retry-min", "delayed-retry-max", "delayed-retry-multiplier", "delayed-retry-jitter", "queue-version",
		"initial-cluster-size", "target-group-size", "stream-filter-size-bytes", "stream-max-segment-size-bytes",
	} {
		definition := `{"` + key + `":%}`
		if strings.HasPrefix(key, "delayed-retry-m") && key != "delayed-retry-min" {
			definition = `{"delayed-retry-type":"all","delayed-retry-min":1,"` + key + `":%}`
		}
		for _, kind := range []string{"policies", "operator-policies"} {
			add("PUT", "/"+kind+"/%2F/p", `{"pattern":"^work","apply-to":"queues","definition":`+definition+`}`)
		}
	}
	for _, kind := range []string{"policies", "operator-policies"} {
		add("PUT", "/"+kind+"/%2F/p", `{"pattern":"^work","definition":{"max-length":5},"priority":%}`)
	}
	for _, t := range []string{"classic", "quorum"} {
		for _, key := range []string{
			"x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-delivery-limit", "x-consumer-timeout", "x-max-priority",
			"x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-multiplier", "x-delayed-retry-jitter", "x-quorum-initial-group-size", "x-queue-version", "x-odd",
		} {
			add("PUT", "/queues/%2F/odd", `{"durable":true,"arguments":{"x-queue-type":"`+t+`","`+key+`":%}}`)
			add("DELETE", "/queues/%2F/odd", "")
		}
	}
	for _, limit := range []string{"max-queues", "max-connections"} {
		add("PUT", "/vhost-limits/%2F/"+limit, `{"value":%}`)
		add("DELETE", "/vhost-limits/%2F/"+limit, "")
	}
	for _, limit := range []string{"max-channels", "max-connections"} {
		add("PUT", "/user-limits/guest/"+limit, `{"value":%}`)
		add("DELETE", "/user-limits/guest/"+limit, "")
	}
	add("PUT", "/parameters/odd/%2F/x", `{"value":%}`)
	add("PUT", "/global-parameters/odd", `{"value":%}`)
	for _, q := range []string{"workclassic", "workquorum"} {
		add("POST", "/queues/%2F/"+q+"/get", `{"count":%,"ackmode":"ack_requeue_true","encoding":"auto"}`)
		add("POST", "/queues/%2F/"+q+"/get", `{"count":2,"ackmode":"reject_requeue_true","encoding":"auto","truncate":%}`)
		for _, property := range []string{"priority", "timestamp", "delivery_mode", "expiration", "message_id"} {
			add("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"`+q+`","payload":"x","payload_encoding":"string","properties":{"`+property+`":%}}`)
		}
		add("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"`+q+`","payload":"x","payload_encoding":"string","properties":{"headers":{"n":%}}}`)
	}
	for _, key := range []string{"rabbit_version", "queues", "policies", "vhosts", "parameters", "permissions", "exchanges", "bindings", "users"} {
		add("POST", "/definitions", `{"`+key+`":%}`)
		add("POST", "/definitions", `{"`+key+`":[%]}`)
	}
	add("POST", "/definitions", `{"queues":[{"name":"imported","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-message-ttl":%}}]}`)
	add("POST", "/definitions", `{"policies":[{"name":"p","vhost":"/","pattern":"^work","apply-to":"queues","definition":{"expires":%},"priority":0}]}`)
	add("POST", "/definitions", `{"policies":[{"name":"p","vhost":"/","pattern":"^work","apply-to":"queues","definition":{"max-length":9},"priority":%}]}`)
	for _, query := range []string{
		"queues?page=%", "queues?page=1&page_size=%", "queues?lengths_age=%&lengths_incr=5", "queues?lengths_age=60&lengths_incr=%", "queues?lengths_age=%&lengths_incr=%",
		"overview?msg_rates_age=%&msg_rates_incr=%", "overview?data_rates_age=60&data_rates_incr=%", "nodes?node_stats_age=%&node_stats_incr=1", "queues?columns=%",
		"queues?sort=%", "queues/%2F/workclassic?lengths_age=%&lengths_incr=1", "health/checks/port-listener/%", "health/checks/certificate-expiration/%/days",
	} {
		add("GET", "/"+query, "")
	}
	return list
}

// Whatever stands where a number is wanted is taken or refused by a status of the 400s;
// others are served meanwhile, and the node starts from what it has written of it.
func TestWhateverStandsForANumber(t *testing.T) {
	files := vfs.NewMem()
	open := func() *node {
		b, err := broker.Open(broker.Options{Dir: "data", FS: files, NodeName: "rabbit@test"})
		if err != nil {
			t.Fatal("the node does not start: ", err)
		}
		return &node{t, b, api.New(api.Options{Broker: b, ClusterName: "peer"}), "guest:guest"}
	}
	n := open()
	err := n.b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*"})
	if err != nil {
		t.Fatal(err)
	}
	declare := func() {
		for _, kind := range []string{"classic", "quorum"} {
			n.must("PUT", "/queues/%2F/work"+kind, `{"durable":true,"arguments":{"x-queue-type":"`+kind+`"}}`)
		}
	}
	n.must("PUT", "/queues/%2F/bystander", `{"durable":true}`)
	publish := func(queue string) {
		n.must("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"`+queue+`","payload":"x","payload_encoding":"string","properties":{"delivery_mode":2}}`)
	}
	restart := func() {
		if err := n.b.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := repair.Examine(files, "data", repair.SkipFrame); err != nil || !r.Clean() {
			t.Fatalf("the check: %v: %+v", err, r)
		}
		n = open()
	}
	for _, r := range numberRequests() {
		declare()
		taken := ""
		for _, odd := range oddNumbers {
			path, body := r[1], strings.ReplaceAll(r[2], "%", odd)
			if r[0] == "GET" {
				path = strings.ReplaceAll(strings.ReplaceAll(path, "%2F", "\x00"), "%", url.QueryEscape(strings.Trim(odd, `"`)))
				path = strings.ReplaceAll(path, "\x00", "%2F")
			}
			request := httptest.NewRequest(r[0], "/api"+path, strings.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			a := n.send(request)
			if a.status >= 500 && !strings.HasPrefix(path, "/health/") {
				t.Errorf("%s %s %s: %d %s", r[0], path, body, a.status, a.body)
			}
			if a.status < 300 {
				taken = odd
			}
			if r[0] == "PUT" && a.status < 300 { // what it means for messages
				for _, kind := range []string{"classic", "quorum"} {
					if n.do("GET", "/queues/%2F/work"+kind, "").status == 200 {
						n.do("POST", "/exchanges/%2F/amq.default/publish", `{"routing_key":"work`+kind+`","payload":"x","payload_encoding":"string","properties":{"delivery_mode":2}}`)
						n.do("POST", "/queues/%2F/work"+kind+"/get", `{"count":2,"ackmode":"reject_requeue_true","encoding":"auto"}`)
					}
				}
			}
		}
		publish("bystander")
		if taken != "" && r[0] != "GET" { // with it in force
			restart()
		}
		if taken != "" && r[0] == "PUT" && !strings.HasPrefix(r[1], "/vhost-limits") {
			n.do("DELETE", r[1], "")
		}
	}
	restart()
	want := len(numberRequests())
	a := n.must("GET", "/queues/%2F/bystander", "").object(t)
	if got := fmt.Sprint(a["messages"]); got != fmt.Sprint(want) {
		t.Errorf("the bystander has %s messages, want %d", got, want)
	}
	if err := n.b.Close(); err != nil {
		t.Fatal(err)
	}
}
