package auth

import "testing"

// No response makes a mechanism panic, and none without a user logs anybody in.
func FuzzMechanisms(f *testing.F) {
	f.Add("PLAIN", []byte("\x00guest\x00guest"))
	f.Add("AMQPLAIN", []byte("\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"))
	f.Fuzz(func(t *testing.T, name string, response []byte) {
		m, ok := NewMechanism(name)
		if !ok {
			return
		}
		challenge, c, err := m.Step(response)
		if err == nil && (c == nil) == (challenge == nil) {
			t.Fatalf("%s: neither credentials nor a challenge nor an error for %q", name, response)
		}
		if c != nil {
			if _, err := New().Authenticate(*c, true); err == nil {
				t.Fatalf("%s: %q logged in where there are no users", name, response)
			}
		}
	})
}
