package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The settings of the profile apsaramq, their defaults and their bounds.
func TestApsaraMQ(t *testing.T) {
	c := Default()
	want := ApsaraMQ{
		MaxRedeliveries: 16, ResetRedeliveries: true, ConsumerTimeout: 5 * time.Minute, MaxConsumerTimeout: 3 * time.Hour,
		LimitReason: "consumption_limit_exceeded", MaxHops: 16, MaxDelay: 168 * time.Hour, MaxRetention: 72 * time.Hour,
		MaxMessageSize: 10485760, ErrorHelp: "https://www.alibabacloud.com/help/en/apsaramq-for-rabbitmq",
	}
	if diff := cmp.Diff(want, c.ApsaraMQ); diff != "" || c.Profile != "rabbitmq" {
		t.Errorf("profile %s, defaults (-want +got):\n%s", c.Profile, diff)
	}
	const text = `profile = apsaramq
apsaramq.max_redeliveries = 64
apsaramq.reset_redeliveries = false
apsaramq.consumer_timeout = 1800000
apsaramq.max_consumer_timeout = 43200000
apsaramq.limit_reason = too_often
apsaramq.dlq_ttl = true
apsaramq.max_dead_letter_hops = 8
apsaramq.max_delay = 86400000
apsaramq.max_retention = infinity
apsaramq.max_message_size = 65536
apsaramq.priorities = true
apsaramq.error_style = true
apsaramq.error_help = http://help
`
	if warnings, err := Parse(&c, text); err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	want = ApsaraMQ{
		MaxRedeliveries: 64, ConsumerTimeout: 30 * time.Minute, MaxConsumerTimeout: 12 * time.Hour, LimitReason: "too_often", DLQTTL: true,
		MaxHops: 8, MaxDelay: 24 * time.Hour, MaxMessageSize: 65536, Priorities: true, ErrorStyle: true, ErrorHelp: "http://help",
	}
	if diff := cmp.Diff(want, c.ApsaraMQ); diff != "" || c.Profile != "apsaramq" {
		t.Errorf("profile %s, read (-want +got):\n%s", c.Profile, diff)
	}
	for _, line := range []string{
		"profile = kafka", "apsaramq.max_redeliveries = -1", "apsaramq.consumer_timeout = 0", "apsaramq.max_dead_letter_hops = 0",
		"apsaramq.max_delay = -1", "apsaramq.max_retention = 0", "apsaramq.max_message_size = 536870913", "apsaramq.limit_reason = ''",
	} {
		if _, err := Parse(&c, line); err == nil || !strings.Contains(err.Error(), "is not ") && !strings.Contains(err.Error(), "must not be empty") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
