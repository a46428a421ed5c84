package config

import "testing"

// A flag given wins over the file, which wins over the flag's default.
func TestAMQPAddresses(t *testing.T) {
	const byDefault = "127.0.0.1:5672"
	for _, tt := range []struct {
		file []string
		flag string
		said bool
		want []string
	}{
		{nil, byDefault, false, []string{byDefault}},
		{[]string{":5673"}, byDefault, false, []string{":5673"}},
		{[]string{":5673"}, "h:1,h:2", true, []string{"h:1", "h:2"}},
		{[]string{":5673"}, NoAddress, true, nil},
		{[]string{}, byDefault, false, []string{}},
	} {
		got := (&Config{AMQP: tt.file}).AMQPAddresses(Address{tt.flag, tt.said})
		if len(got) != len(tt.want) {
			t.Errorf("%+v gives %q", tt, got)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%+v gives %q", tt, got)
			}
		}
	}
}
