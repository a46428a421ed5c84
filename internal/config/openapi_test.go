package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const accessKeys = `
apsaramq.instance_id = amqp-cn-1
apsaramq.access_key.ci.id = LTAI5t.ci
apsaramq.access_key.ci.secret = a secret of the CI
apsaramq.access_key.ci.user = ci
apsaramq.access_key.app.user = app
apsaramq.access_key.app.secret = a secret of the app
apsaramq.access_key.app.id = LTAI5t-app
`

// Access keys are read whatever the order of their lines, and shown without secrets.
func TestDL22_17_AccessKeys(t *testing.T) {
	c := Default()
	if _, err := Parse(&c, accessKeys); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	want := OpenAPI{InstanceID: "amqp-cn-1", AccessKeys: []AccessKey{
		{"app", "LTAI5t-app", "a secret of the app", "app"}, {"ci", "LTAI5t.ci", "a secret of the CI", "ci"},
	}}
	if diff := cmp.Diff(want, c.OpenAPI); diff != "" {
		t.Error(diff)
	}
	var again strings.Builder
	for _, s := range c.Settings() {
		if strings.Contains(s.String(), "secret of") {
			t.Errorf("%s shows the secret", s.Key)
		}
		again.WriteString(s.line() + "\n")
	}
	read := Default()
	if _, err := Parse(&read, again.String()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read.OpenAPI); diff != "" {
		t.Error(diff)
	}
}

// An incomplete access key, or one with the ID of another, is refused. The reason
// contains no secret.
func TestBadAccessKeys(t *testing.T) {
	for text, want := range map[string]string{
		"apsaramq.access_key.ci.id = a b":                         "letters, digits",
		"apsaramq.access_key.ci.secret = s3cret":                  "at least 16",
		"apsaramq.access_key.ci.id = LTAI":                        "an access key needs",
		accessKeys + "apsaramq.access_key.app.id = LTAI5t.ci\n":   "apsaramq.access_key.app has the same ID",
		"apsaramq.access_key.ci.password = s3cret":                "did you mean apsaramq.access_key",
		"apsaramq.access_key.ci.id = " + strings.Repeat("k", 129): "at most 128",
	} {
		c := Default()
		_, err := Parse(&c, text)
		if err == nil {
			err = c.Check()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// Keys can be changed while a node runs.
func TestAccessKeysAreTakenOver(t *testing.T) {
	old, next := Default(), Default()
	if _, err := Parse(&next, accessKeys); err != nil {
		t.Fatal(err)
	}
	now, waiting, err := TakeOver(&old, &next)
	if err != nil || len(waiting) > 0 || len(now.OpenAPI.AccessKeys) != 2 {
		t.Errorf("got %+v, waiting %v, %v", now.OpenAPI, waiting, err)
	}
}
