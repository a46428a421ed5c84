package ctl

import (
	"encoding/json"
	"testing"

	"github.com/spf13/cobra"
)

// DESIGN 11: the policy of the documents is set from every shell. Windows' take
// quotes away; what reaches the program is read all the same.
func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"dead-letter-exchange":"my-dlx"}`, `{"dead-letter-exchange":"my-dlx"}`}, // POSIX, cmd.exe with "" for "
		{`'{dead-letter-exchange:my-dlx}'`, `{"dead-letter-exchange":"my-dlx"}`},   // cmd.exe with single quotes
		{`{dead-letter-exchange:my-dlx}`, `{"dead-letter-exchange":"my-dlx"}`},     // PowerShell
		{`{dead-letter-exchange:my-dlx, message-ttl:60000}`, `{"dead-letter-exchange":"my-dlx","message-ttl":60000}`},
		{`{delayed-retry-jitter:0.5,x:true,y:-1}`, `{"delayed-retry-jitter":0.5,"x":true,"y":-1}`},
		{`{dead-letter-exchange:}`, `{"dead-letter-exchange":""}`},
		{`[1,"a"]`, `[1,"a"]`},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567890}`},
	} {
		v, err := parseJSON(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := json.Marshal(v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "x", `{bad`, `{"a":1} x`, `{"a":b}`, `{}x`, `'{a:b}`, `{a}`, `{a:{b:c}}`} {
		if v, err := parseJSON(text); err == nil {
			t.Errorf("%q is read as %v", text, v)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add(`{a:b}`)
	f.Add(`'{"a":[1]}'`)
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := parseJSON(text); err == nil {
			if _, err := json.Marshal(v); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}

// Sizes are read with RabbitMQ's units.
func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "12": 12, "1k": 1024, "1kB": 1000, "1KiB": 1024, "2GB": 2e9, "2 GiB": 2 << 30, "3M": 3 << 20} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "k", "-1", "1x", "1kk", "99999999TB", "1.5G"} {
		if got, ok := parseSize(text); ok {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	root := &cobra.Command{}
	for _, name := range []string{"list_bindings", "list_queues", "status", "stop"} {
		root.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	for typed, want := range map[string]string{
		"list_quees": "list_queues", "lst_qeues": "list_queues", "stp": "stop", "statsu": "status", "list": "list_bindings", "bogus": "", "x": "",
	} {
		if got := nearest(root, typed); got != want {
			t.Errorf("%s: got %q, want %q", typed, got, want)
		}
	}
}
