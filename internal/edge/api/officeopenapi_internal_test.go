package api

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/office"
)

// Every route of the office is in the OpenAPI document, and nothing else is.
func TestTheDocumentHasAllRoutesOfTheOffice(t *testing.T) {
	s := &server{Options: Options{Broker: &broker.Broker{}, Office: &office.Office{Jobs: &office.Jobs{}, Drops: &office.Drops{}}}}
	var routes, described []string
	for _, r := range s.routes() {
		if strings.HasPrefix(r.pattern, "office/") {
			routes = append(routes, r.method+" "+r.pattern)
		}
	}
	for i := range officeOperations {
		described = append(described, officeOperations[i].route)
	}
	slices.Sort(routes)
	slices.Sort(described)
	for _, r := range routes {
		if !slices.Contains(described, r) {
			t.Errorf("officeOperations has no %q", r)
		}
	}
	for _, r := range described {
		if !slices.Contains(routes, r) {
			t.Errorf("there is no route %q", r)
		}
	}
	if len(slices.Compact(described)) != len(officeOperations) {
		t.Error("an operation is described twice")
	}
}

// All references of the document lead to a schema, and all schemas are referred to.
func TestReferencesOfTheDocument(t *testing.T) {
	var d struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(officeDocument(), &d); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"#/components/schemas/([^"]*)"`).FindAllStringSubmatch(string(officeDocument()), -1) {
		used[m[1]] = true
		if d.Components.Schemas[m[1]] == nil {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
	for name := range d.Components.Schemas {
		if !used[name] {
			t.Errorf("nothing refers to %s", name)
		}
	}
}
