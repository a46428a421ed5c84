package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// Letters that were exported are imported equal: an export of the copy is the same but for where it lies.
func TestExportAndImportOverHTTP(t *testing.T) {
	n := withOffice(t)
	lines := n.must("GET", "/office/export/%2F/orders.dead?where=header.tenant%3Dt1", "").body
	if strings.Contains(lines, "\n") || !strings.Contains(lines, `["tenant","S","t1"]`) {
		t.Fatalf("%q", lines)
	}
	lines = n.must("GET", "/office/export/%2F/orders.dead", "").body + "\n"
	n.must("PUT", "/queues/%2F/copy", `{"durable":true,"arguments":{"x-queue-type":"quorum"}}`)
	var result struct {
		Imported int
		Refused  []struct {
			Line int
			Why  string
		}
	}
	answer := n.must("POST", "/office/import/%2F/copy", lines+"{}\n")
	if err := json.Unmarshal([]byte(answer.body), &result); err != nil || result.Imported != 3 || len(result.Refused) != 1 || result.Refused[0].Line != 4 {
		t.Fatalf("%s", answer.body)
	}
	bare := func(lines string) (list []string) {
		for line := range strings.Lines(lines) {
			_, rest, _ := strings.Cut(line, `,"exchange":`)
			list = append(list, rest)
		}
		return list
	}
	if got, want := bare(n.must("GET", "/office/export/%2F/copy", "").body+"\n"), bare(lines); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s\nwant %s", got, want)
	}
	n.must("PUT", "/users/ada", `{"password":"p","tags":"management"}`)
	for _, c := range []struct {
		configure, write, read string
		export, imports        bool
	}{{".*", "", ".*", true, false}, {"", ".*", ".*", true, false}, {".*", ".*", "", false, true}} {
		n.user = "guest:guest"
		n.must("PUT", "/permissions/%2F/ada", fmt.Sprintf(`{"configure":%q,"write":%q,"read":%q}`, c.configure, c.write, c.read))
		n.user = "ada:p"
		if r := n.do("GET", "/office/export/%2F/orders.dead", ""); (r.status == 200) != c.export {
			t.Errorf("%+v: export %d", c, r.status)
		}
		if r := n.do("POST", "/office/import/%2F/copy", lines); (r.status == 200) != c.imports {
			t.Errorf("%+v: import %d", c, r.status)
		}
	}
}

// A letter whose headers no consumer could read, with those that tell of deaths, is not imported, and none is made by an edit: it would end
// the connection of each consumer that gets it.
func TestLettersThatNobodyCouldReadAreRefused(t *testing.T) {
	n := withOffice(t)
	line := n.must("GET", "/office/export/%2F/orders.dead?where=header.tenant%3Dt1", "").body
	var letter map[string]any
	if err := json.Unmarshal([]byte(line), &letter); err != nil {
		t.Fatal(err)
	}
	history := letter["history"].(map[string]any)
	one := history["deaths"].([]any)[0].(map[string]any)
	var deaths []any
	for i := range 3000 {
		d := maps.Clone(one)
		d["queue"] = fmt.Sprint("q", i)
		deaths = append(deaths, d)
	}
	history["deaths"] = deaths
	long, err := json.Marshal(letter)
	if err != nil {
		t.Fatal(err)
	}
	if a := n.must("POST", "/office/import/%2F/orders", string(long)+"\n"); !strings.Contains(a.body, `"imported":0`) || !strings.Contains(a.body, "a consumer could read") {
		t.Error(a.body)
	}
	id := n.letters("/office/letters/%2F/orders.dead")[0]["id"]
	edit := fmt.Sprintf(`{"action":"edit","vhost":"/","queue":"orders.dead","ids":[%q],"edit":{"headers":{"long":%q}}}`, id, strings.Repeat("x", 125<<10))
	if a := n.do("POST", "/office/jobs?dry_run=true", edit); a.status != 400 || !strings.Contains(a.body, "a consumer could read") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The filter of a job tells of letters: others than its user see it only if they may read its queues. Jobs come in pages.
func TestJobsThatOthersSee(t *testing.T) {
	n := withOffice(t)
	for range 3 {
		n.doJob(`{"action": "discard", "vhost": "/", "queue": "orders.dead", "limit": 1, "filter": {"where": ["header.tenant~t"]}}`)
	}
	page := func(query string) (ids []string, next any, body string) {
		var p struct {
			Items []struct{ ID string }
			Next  any
			Total int
		}
		r := n.must("GET", "/office/jobs?"+query, "")
		if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.Total != 3 {
			t.Fatal(r.body, err)
		}
		for _, i := range p.Items {
			ids = append(ids, i.ID)
		}
		return ids, p.Next, r.body
	}
	first, next, body := page("limit=2")
	if fmt.Sprintf("%v %v", first, next) != "[3 2] 2" || !strings.Contains(body, "tenant") {
		t.Errorf("%v %v %s", first, next, body)
	}
	if last, next, _ := page(fmt.Sprintf("limit=2&cursor=%v", next)); fmt.Sprintf("%v %v", last, next) != "[1] <nil>" {
		t.Errorf("%v %v", last, next)
	}
	n.must("PUT", "/users/ada", `{"password":"p","tags":"monitoring"}`)
	for read, hidden := range map[string]bool{"": true, "orders.*": false} {
		n.user = "guest:guest"
		n.must("PUT", "/permissions/%2F/ada", fmt.Sprintf(`{"configure":"","write":"","read":%q}`, read))
		n.user = "ada:p"
		for _, path := range []string{"/office/jobs", "/office/jobs?limit=1", "/office/jobs/2"} {
			if body := n.must("GET", path, "").body; strings.Contains(body, "tenant") == hidden || strings.Contains(body, `"filter_hidden":true`) != hidden {
				t.Errorf("read %q: %s: %s", read, path, body)
			}
		}
	}
}
