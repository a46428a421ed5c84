package api_test

import (
	"strings"
	"testing"
)

// The seeds' line "D TTL DLX DLK": the column "Features" as RabbitMQ 4.3.6's own script
// computes it. Since 4.0 every queue has x-queue-type, which is "Args".
func TestFeaturesAreThoseOfTheManagementPage(t *testing.T) {
	n := start(t)
	for path, body := range map[string]string{
		"/queues/%2F/dead letters": `{"durable":true,"arguments":{"x-message-ttl":5000,"x-dead-letter-exchange":"my-dlx","x-dead-letter-routing-key":"k"}}`,
		"/queues/%2F/limits": `{"durable":true,"auto_delete":true,"arguments":{"x-max-length":5,"x-max-length-bytes":7,"x-overflow":"reject-publish",
			"x-max-priority":3,"x-single-active-consumer":true,"x-expires":600000}}`,
		"/queues/%2F/quorum":  `{"durable":true,"arguments":{"x-queue-type":"quorum","x-delivery-limit":5,"x-single-active-consumer":false,"x-other":"a<b"}}`,
		"/queues/%2F/retries": `{"durable":true,"arguments":{"x-queue-type":"quorum","x-delayed-retry-type":"all","x-delayed-retry-min":10,"x-delayed-retry-max":100}}`,
		"/exchanges/%2F/x":    `{"type":"topic","durable":true,"auto_delete":true,"internal":true,"arguments":{"alternate-exchange":"ae","durable":[1,{"a":true}]}}`,
		"/exchanges/%2F/none": `{"type":"topic","durable":false}`,
		// A policy's keys are behind its name, and are no codes of the queue.
		"/policies/%2F/TTL":         `{"pattern":"^dead|^x$","definition":{"message-ttl":100},"apply-to":"queues"}`,
		"/policies/%2F/AEP":         `{"pattern":"^x$","definition":{"alternate-exchange":"z"},"apply-to":"exchanges"}`,
		"/operator-policies/%2F/OP": `{"pattern":"^dead","definition":{"max-length":100},"apply-to":"queues"}`,
	} {
		n.must("PUT", strings.ReplaceAll(path, " ", "%20"), body)
	}
	for path, want := range map[string]string{
		"/queues/%2F/dead%20letters": `D: durable: true
			TTL: x-message-ttl: 5000
			DLX: x-dead-letter-exchange: my-dlx
			DLK: x-dead-letter-routing-key: k
			Args: x-queue-type: classic
			TTL: Policy: TTL
			OP: Operator policy: OP`,
		"/queues/%2F/limits": `D: durable: true
			AD: auto-delete: true
			Exp: x-expires: 600000
			Lim: x-max-length: 5
			Lim B: x-max-length-bytes: 7
			Ovfl: x-overflow: reject-publish
			Pri: x-max-priority: 3
			SAC: x-single-active-consumer: true
			Args: x-queue-type: classic`,
		"/queues/%2F/quorum": `D: durable: true
			DR: delayed retry: not enabled
			DlL: x-delivery-limit: 5
			Args: x-other: a<b, x-queue-type: quorum`,
		"/queues/%2F/retries": `D: durable: true
			DR: delayed retry: all (min: 10ms, max: 100ms)
			DRT: x-delayed-retry-type: all
			DRm: x-delayed-retry-min: 10
			DRM: x-delayed-retry-max: 100
			Args: x-queue-type: quorum`,
		"/exchanges/%2F/x": `D: durable: true
			AD: auto-delete: true
			I: internal: true
			AE: alternate-exchange: ae
			Args: durable: [1,(a: true)]
			AEP: Policy: AEP`,
		"/exchanges/%2F/none": ``,
	} {
		var shown []string
		for _, f := range n.must("GET", path, "").object(t)["features"].([]any) {
			feature := f.(map[string]any)
			shown = append(shown, feature["code"].(string)+": "+feature["title"].(string))
		}
		if got, want := strings.Join(shown, "\n"), strings.ReplaceAll(want, "\t", ""); got != want {
			t.Errorf("%s\n%s\nwant\n%s", path, got, want)
		}
	}
	// The lists have them too, also the short ones.
	for _, path := range []string{"/queues/%2F", "/queues/%2F?disable_stats=true", "/queues/%2F?columns=name,features", "/exchanges/%2F"} {
		for _, o := range n.must("GET", path, "").list(t) {
			if _, ok := o["features"].([]any); !ok {
				t.Errorf("%s: %v has no features", path, o["name"])
			}
		}
	}
}
