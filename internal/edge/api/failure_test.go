package api

import "testing"

// BR-15.8, BR-15.9: what is missing is listed as RabbitMQ's printer of terms breaks lines.
func TestMissingKeys(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{"a"}, "[{key_missing,a}]"},
		{[]string{"ackmode", "count", "encoding"}, "[{key_missing,ackmode},{key_missing,count},{key_missing,encoding}]"},
		{
			[]string{"routing_key", "properties", "payload", "payload_encoding"},
			"[{key_missing,routing_key},\n {key_missing,properties},\n {key_missing,payload},\n {key_missing,payload_encoding}]",
		},
	} {
		if err := missingKeys(map[string]any{}, c.keys...); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.keys, err, c.want)
		}
	}
	if err := missingKeys(map[string]any{"a": nil}, "a"); err != nil {
		t.Errorf("a key that is null is there: %v", err)
	}
}
