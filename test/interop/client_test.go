package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStoriesAreReadALine(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []story
		err        string
	}{
		{"names", "confirms\nconsume\n", []story{{name: "confirms"}, {name: "consume"}}, ""},
		{"words", "reconnect alone\nreplay bartleby alone", []story{{name: "reconnect", alone: true}, {name: "replay", ours: true, alone: true}}, ""},
		{"comments", "# the common ones\n\nreject # into a dead letter exchange\n", []story{{name: "reject"}}, ""},
		{"unknown word", "reject loudly", nil, `unknown word "loudly"`},
		{"twice", "reject\nreject", nil, "twice"},
		{"nothing", "# later\n", nil, "no story"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseStories(test.text)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(story{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestArgumentsSelectClientsAndStories(t *testing.T) {
	clients := []client{
		{name: "bunny", stories: []story{{name: "confirms"}, {name: "reject"}}},
		{name: "pika", stories: []story{{name: "confirms"}, {name: "reject"}, {name: "retry"}}},
	}
	for _, test := range []struct {
		args, want string
	}{
		{"", "bunny/confirms bunny/reject pika/confirms pika/reject pika/retry"},
		{"pika", "pika/confirms pika/reject pika/retry"},
		{"pika/retry bunny/reject", "bunny/reject pika/retry"},
		{"bunny bunny/reject", "bunny/confirms bunny/reject"},
	} {
		got, err := selected(clients, strings.Fields(test.args))
		if err != nil {
			t.Fatal(err)
		}
		var cells []string
		for _, c := range got {
			for _, s := range c.stories {
				cells = append(cells, c.name+"/"+s.name)
			}
		}
		if diff := cmp.Diff(strings.Fields(test.want), cells); diff != "" {
			t.Errorf("%q selects: %s", test.args, diff)
		}
	}
	if _, err := selected(clients, []string{"bunny/retry"}); err == nil {
		t.Error("a story that the client does not tell is no error")
	}
}

func TestADirectoryWithoutStoriesIsNoClient(t *testing.T) {
	root := t.TempDir()
	for name, stories := range map[string]string{"pika": "confirms", "python": "", "bunny": "reject"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if stories != "" {
			if err := os.WriteFile(filepath.Join(root, name, "stories"), []byte(stories), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	clients, err := findClients(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range clients {
		names = append(names, c.name)
	}
	if diff := cmp.Diff([]string{"bunny", "pika"}, names); diff != "" {
		t.Error(diff)
	}
}
