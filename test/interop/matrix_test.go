package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheMatrixHasAColumnForWhatSeveralTell(t *testing.T) {
	clients := []client{
		{name: "celery", stories: []story{{name: "reject"}, {name: "countdown"}, {name: "remote-control"}}},
		{name: "pika", stories: []story{{name: "confirms"}, {name: "reject"}}},
		{name: "rascal", stories: []story{{name: "confirms"}, {name: "replay"}}},
	}
	results := map[cell]result{
		{"celery", "reject"}: passed, {"celery", "countdown"}: failed, {"celery", "remote-control"}: passed,
		{"pika", "confirms"}: absent, {"pika", "reject"}: absent,
		{"rascal", "confirms"}: passed, {"rascal", "replay"}: ours,
	}
	var out strings.Builder
	printMatrix(&out, clients, results)
	want := `
client  reject  confirms  of its own
celery  ok      -         countdown FAILED, remote-control ok
pika    absent  absent    
rascal  -       ok        replay ours

`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[result]int{passed: 3, failed: 1, absent: 2, ours: 1}, count(results)); diff != "" {
		t.Error(diff)
	}
}
